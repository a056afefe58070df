"""Null answers, which a kernel returns that does not do the work, and how near to the right one they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

CHUNK = 1 << 19
"""Elements compared at a time, in fp64, so that an audit needs little memory beside the outputs."""
SAMPLED = 16
"""Such pieces, spread evenly, from which an error or a fit is estimated. Verdicts look at every element."""

Outputs = list[torch.Tensor]
Answer = list[torch.Tensor | float | None]
"""One value per output; a number stands for a tensor full of it, ``None`` for having no answer."""


def all_close(answer: Answer, expected: Outputs, tolerance: float) -> bool:
    """KernelBench's rule on every output; NaN is close to nothing, not even to NaN."""
    if len(answer) != len(expected):
        return False
    return all(
        a is not None
        and (not isinstance(a, torch.Tensor) or a.shape == e.shape)
        and all(torch.allclose(x, y, rtol=tolerance, atol=tolerance) for x, y in chunks(a, e))
        for a, e in zip(answer, expected, strict=True)
    )


def error_of(answer: Answer, expected: Outputs) -> float:
    if len(answer) != len(expected):
        return math.inf
    return max((relative_error(a, e) for a, e in zip(answer, expected, strict=True)), default=0.0)


def relative_error(answer: torch.Tensor | float | None, expected: torch.Tensor) -> float:
    """Rms of the difference over rms of ``expected``; infinite where only one side is finite."""
    if answer is None or (isinstance(answer, torch.Tensor) and answer.shape != expected.shape):
        return math.inf
    difference = scale = 0.0
    for x, y in chunks(answer, expected, SAMPLED):
        finite = torch.isfinite(y)
        if not torch.equal(torch.isfinite(x), finite):
            return math.inf
        difference += float(torch.where(finite, x - y, 0.0).square().sum())
        scale += float(torch.where(finite, y, 0.0).square().sum())
    if difference == 0.0:
        return 0.0
    return math.sqrt(difference / scale) if scale else math.inf


def chunks(
    answer: torch.Tensor | float, expected: torch.Tensor, most: int | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both sides in fp64, a piece at a time; with ``most``, no more than that many pieces, spread evenly."""
    flat = expected.reshape(-1)
    if isinstance(answer, torch.Tensor):
        given = answer.reshape(-1)
    else:
        dtype = torch.complex128 if flat.is_complex() else torch.float64
        given = torch.full((), answer, dtype=dtype, device=flat.device).expand(flat.shape)
    starts = range(0, flat.numel(), CHUNK)
    for start in starts[:: max(1, math.ceil(len(starts) / (most or len(starts) or 1)))]:
        yield widened(given[start : start + CHUNK]), widened(flat[start : start + CHUNK])


def widened(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.to(torch.complex128)) if tensor.is_complex() else tensor.double()


def all_finite(tensor: torch.Tensor) -> bool:
    return all(bool(torch.isfinite(y).all()) for _, y in chunks(0.0, tensor))


def mean_of(tensor: torch.Tensor) -> float:
    pieces = [(float(y.sum()), y.numel()) for _, y in chunks(0.0, tensor, SAMPLED)]
    return sum(total for total, _ in pieces) / max(1, sum(count for _, count in pieces))


def closest(expected: torch.Tensor, inputs: list[Any], *, affine: bool) -> torch.Tensor | None:
    """The input that fits in the output's place, itself or under its best affine map, nearest to it."""
    if expected.is_complex():
        return None
    fitting = [
        t.reshape(expected.shape)
        for t in inputs
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel() == expected.numel()
    ]
    answers = [least_squares(t, expected) if affine else t for t in fitting]
    return min(answers, key=lambda a: relative_error(a, expected), default=None)


def least_squares(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """``slope * x + offset`` with the least squared distance from ``y``."""
    mean_x, mean_y = mean_of(x), mean_of(y)
    covariance = variance = 0.0
    for a, b in chunks(x, y, SAMPLED):
        covariance += float(((a - mean_x) * (b - mean_y)).sum())
        variance += float((a - mean_x).square().sum())
    slope = covariance / variance if variance > 0.0 else 0.0
    return x.double().mul_(slope).add_(mean_y - slope * mean_x).float()


def half_outputs(expected: Outputs) -> list[Callable[[], Answer]]:
    """The right answer in the first half along one axis, zeros after it."""

    def without(axis: int) -> Answer:
        return [_without_second_half(e, axis) for e in expected]

    axes = range(max((e.dim() for e in expected), default=0))
    return [partial(without, a) for a in axes if all(e.dim() > a and e.shape[a] >= 2 for e in expected)]


def _without_second_half(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    halved = tensor.clone()
    size = tensor.shape[axis]
    halved.narrow(axis, size - size // 2, size // 2).zero_()
    return halved


def eight_bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float8_e4m3fn).to(tensor.dtype) if tensor.is_floating_point() else tensor
