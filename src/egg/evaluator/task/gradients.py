"""Forward and backward under grad mode, the same on both sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.evaluator.task.program import map_tensors, outputs_of


@dataclass(frozen=True)
class Differentiated:
    """What became of the gradients of one call."""

    requires: tuple[bool, ...]
    """Of every floating output: whether it can be differentiated."""
    gradients: dict[str, torch.Tensor | None]
    """By parameter name, and ``input 0``, ``input 1``, ... for the floating tensors of the inputs."""
    error: str = ""
    """What calling or ``backward`` raised; then there are no gradients."""


def differentiated(
    module: nn.Module, inputs: list[Any], seed: int, call: Callable[..., Any] | None = None
) -> Differentiated:
    """Call ``module`` with everything floating requiring a gradient, and go back from all of its outputs.

    ``call`` stands for ``module`` where more is to be done around its call.
    The gradients of the outputs are drawn after ``seed``, rounded so that every dtype holds them exactly:
    runs in different precision go back from the same.
    """
    leaves: list[torch.Tensor] = []

    def leaf(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        leaves.append(tensor.detach().requires_grad_(True))
        return leaves[-1]

    arguments = map_tensors(inputs, leaf)
    module.zero_grad(set_to_none=True)
    with torch.enable_grad():
        given = [t for _, t in outputs_of((call or module)(*arguments)) if isinstance(t, torch.Tensor)]
    outputs = [t for t in given if t.is_floating_point()]
    requires = tuple(bool(t.requires_grad) for t in outputs)
    wanted = [t for t in outputs if t.requires_grad]
    if not wanted:
        return Differentiated(requires, {})
    try:
        torch.autograd.backward(wanted, [_drawn(t, seed + at) for at, t in enumerate(wanted)])
    except Exception as error:
        return Differentiated(requires, {}, f"{type(error).__name__}: {error}")
    found = {name: parameter.grad for name, parameter in module.named_parameters()}
    found |= {f"input {at}": tensor.grad for at, tensor in enumerate(leaves)}
    module.zero_grad(set_to_none=True)
    return Differentiated(requires, found)


def _drawn(output: torch.Tensor, seed: int) -> torch.Tensor:
    generator = torch.Generator(output.device).manual_seed(seed)
    drawn = torch.randn(output.shape, generator=generator, dtype=torch.float32, device=output.device)
    return drawn.bfloat16().to(output.dtype)
