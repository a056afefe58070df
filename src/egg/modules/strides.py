"""Tensors with the strides that code behind them relies on."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def with_strides(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """The tensor with these strides: a view where its elements lie so already, otherwise a copy.

    A dimension of one element lies anywhere: for a decoder, whose sequence is one token long, the strides
    that PyTorch and a kernel give it differ without a difference in memory.
    """
    if tensor.stride() == tuple(stride):
        return tensor
    if all(
        size <= 1 or own == wanted
        for size, own, wanted in zip(tensor.shape, tensor.stride(), stride, strict=True)
    ):
        return tensor.as_strided(tensor.shape, stride)
    return fresh(tensor, stride).copy_(tensor)


def fresh(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    """Memory for a tensor like another, with these strides."""
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
