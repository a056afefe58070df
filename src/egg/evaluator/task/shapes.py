"""Forms of results without asking PyTorch, for calls that take it milliseconds on tensors without data.

Activations and norms are taken apart in Python on the meta device, which is most of a forward's time there.
Their results have the form of their first operand. What PyTorch refuses is refused here as well, because
whether a program runs at some sizes is the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional as F

ACTIVATIONS = frozenset(
    {"relu", "relu6", "gelu", "silu", "mish", "hardswish", "hardsigmoid", "sigmoid", "tanh", "hardtanh",
     "leaky_relu", "elu", "selu", "celu", "softplus", "softsign"}
)  # fmt: skip
_PLACES = ("torch.nn.functional", "torch._C._nn", "torch", "torch._C", "builtins", "")


def quick_result(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> torch.Tensor | None:
    """A new tensor of the result's form; ``None`` where PyTorch has to be asked."""
    if norm := _NORMS.get(func):
        return norm(*args, **named)
    if getattr(func, "__name__", "") in ACTIVATIONS and args and isinstance(args[0], torch.Tensor):
        plain = args[0].is_floating_point() and not any(isinstance(a, torch.Tensor) for a in args[1:])
        own = (getattr(func, "__module__", "") or "") in _PLACES
        return torch.empty_like(args[0]) if plain and own and not named.get("out") else None
    return None


def _check(held: bool, reason: str) -> None:
    if not held:
        raise ValueError(reason)


def _channels(x: torch.Tensor, *tensors: torch.Tensor | None) -> None:
    for tensor in tensors:
        _check(tensor is None or tensor.numel() == x.shape[1], f"{x.shape[1]} channels")


def _batch_norm(
    input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> torch.Tensor:  # fmt: skip
    _channels(input, running_mean, running_var, weight, bias)
    _check(not training or input.numel() != input.shape[1], "one value per channel in training")
    return torch.empty_like(input)


def _instance_norm(
    input: torch.Tensor, running_mean: Any = None, running_var: Any = None, weight: Any = None,
    bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> torch.Tensor:  # fmt: skip
    _channels(input, running_mean, running_var, weight, bias)
    _check(not use_input_stats or input.shape[2:].numel() != 1, "one spatial element in training")
    return torch.empty_like(input)


def _group_norm(
    input: torch.Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> torch.Tensor:
    _channels(input, weight, bias)
    _check(input.shape[1] % num_groups == 0, f"{input.shape[1]} channels in {num_groups} groups")
    _check(input.numel() != num_groups, "one value per group")
    return torch.empty_like(input)


def _layer_norm(
    input: torch.Tensor, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None,
    eps: float = 1e-5,
) -> torch.Tensor:  # fmt: skip
    shape = tuple(normalized_shape)
    for held in (
        input.shape[input.dim() - len(shape) :],
        *(t.shape for t in (weight, bias) if t is not None),
    ):
        _check(tuple(held) == shape, f"normalized over {shape}")
    return torch.empty_like(input)


_NORMS: Mapping[Any, Callable[..., torch.Tensor]] = {
    F.batch_norm: _batch_norm,
    F.instance_norm: _instance_norm,
    F.group_norm: _group_norm,
    F.layer_norm: _layer_norm,
}
