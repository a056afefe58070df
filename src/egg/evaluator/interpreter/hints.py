"""What a kernel swears of its own numbers is checked: the compiler believes it.

``tl.multiple_of`` and ``tl.max_contiguous`` make loads and stores wide; where they are false, a
GPU reads and writes other elements or stops at a misaligned address. No access is wider than 16
elements, so no hint is held to more than that. ``tl.multiple_of`` speaks of the first element of
every contiguous run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from egg.evaluator.interpreter.fault import KernelFault

WIDEST = 16
"""Elements of one byte that one access moves."""


def divisible(values: np.ndarray, by: int, axis: int, step: int = 1) -> bool:
    """Whether the first element of each contiguous run along ``axis`` is a multiple; addresses, in bytes."""
    along = np.moveaxis(values, axis, -1)
    starts = np.ones(along.shape, dtype=bool)
    starts[..., 1:] = along[..., 1:] != along[..., :-1] + along.dtype.type(step)
    return not (along[starts].astype(np.int64) % by).any()


def contiguous(values: np.ndarray, run: int, axis: int, step: int = 1) -> bool:
    """Whether aligned groups of ``run`` elements count up by ``step``."""
    return _grouped(values, run, axis, lambda group: (np.diff(group, axis=-1) == step).all())


def constant(values: np.ndarray, run: int, axis: int, step: int = 1) -> bool:
    return _grouped(values, run, axis, lambda group: (group == group[..., :1]).all())


def _grouped(values: np.ndarray, run: int, axis: int, holds: Callable[[np.ndarray], Any]) -> bool:
    along = np.moveaxis(values, axis, -1)
    run = min(run, along.shape[-1])
    if run < 2 or along.shape[-1] % run:
        return True
    return bool(holds(along.reshape(*along.shape[:-1], -1, run).astype(np.int64)))


def checked(name: str, holds: Callable[[np.ndarray, int, int, int], bool], where: Callable[[], str]) -> Any:
    """The language's function ``name`` with a look at the numbers themselves."""

    def hint(input: Any, values: Any, _semantic: Any = None, **_: Any) -> Any:
        if not isinstance(input, tl.tensor):
            return input
        listed = values if isinstance(values, list | tuple) else [values]
        claims = [int(v.value if isinstance(v, tl.constexpr) else v) for v in listed]
        data = input.handle.data
        tile = data if len(input.shape) else data.reshape(-1)[:1]
        for axis, claim in enumerate(claims[: tile.ndim]):
            held = min(claim, WIDEST)
            if held > 1 and not holds(tile, held, axis, _step(input)):
                raise KernelFault("hint", f"{where()}: tl.{name}(..., {claim}) does not hold: {_shown(tile)}")
        return input

    return hint


def _step(input: Any) -> int:
    """From an element to the next: 1, or for addresses the bytes of what they point to."""
    scalar = input.type.scalar
    return max(1, scalar.element_ty.primitive_bitwidth // 8) if scalar.is_ptr() else 1


def _shown(values: np.ndarray) -> str:
    flat = values.reshape(-1)
    return ", ".join(str(int(v)) for v in flat[:6]) + (", ..." if flat.size > 6 else "")


def mend(where: Callable[[], str]) -> None:
    for module in (tl, tl.core):
        for name, holds in (
            ("multiple_of", divisible),
            ("max_contiguous", contiguous),
            ("max_constancy", constant),
        ):
            setattr(module, name, checked(name, holds, where))
