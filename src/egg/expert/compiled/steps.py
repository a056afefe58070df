"""Host code as a row of steps: a launch or a call of a library each, with what is made for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

ITEM = "item"
"""What the choice of one result of a call is called."""
LAY = "with_strides"
LAY_TEXT = f'''def {LAY}(result, strides):
    """A library's result, copied where it does not lie in memory as what reads it takes it to."""
    found = zip(result.shape, result.stride(), strides)
    if all(n == 1 or one == other for n, one, other in found):
        return result
    room = torch.empty_strided(result.shape, strides, device=result.device, dtype=result.dtype)
    return room.copy_(result)'''
"""A function of the host: which strides a library returns may depend on its version."""


@dataclass(frozen=True)
class Step:
    """A launch or a call of a library, with what is made for it."""

    lines: tuple[str, ...]
    reads: tuple[str, ...]
    """Variables and arguments that it mentions and does not make."""
    makes: tuple[str, ...]
    kernel: str = ""
    """The kernel's name in the generated module; empty for a library call, and for views alone."""
    call: str = ""
    """What a library call is called."""
    writes: tuple[str, ...] = ()
    """Arguments that it changes."""
    operations: float = 0.0
    """Floating-point operations of a library call."""


@dataclass(frozen=True)
class Launch:
    """The arguments of one launch, as text and as values."""

    texts: tuple[str, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True)
class HostCode:
    """A graph's host code."""

    steps: tuple[Step, ...]
    tensors: Mapping[str, torch.Tensor]
    """The form of each variable."""
    outputs: tuple[str | None, ...]
    """The variable of each output; ``None`` for one that is no tensor."""
