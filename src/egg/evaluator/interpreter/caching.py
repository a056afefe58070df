"""Types of tiles are made once, not at every operation.

Triton's interpreter makes the type of every tile anew: its shape as a tuple of the language's own, its name,
a table of NumPy's types. That is a fifth of the time of a small kernel. Nothing changes a type, so equal ones
can share their parts. Every function here answers as Triton's own does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language.core as core
from triton.runtime import interpreter

MOST = 4096
"""Types that are remembered; a kernel has a few dozen."""


def mend() -> None:
    """Replace the functions that make types, in this process."""
    _remember_blocks()
    _remember_tensors()
    _plain_values_first()
    _one_table_of_types()


def _remember_blocks() -> None:
    made: dict[tuple[Any, ...], tuple[Any, dict[str, Any]]] = {}
    original = core.block_type.__init__

    def __init__(self: Any, element_ty: Any, shape: Any) -> None:
        key = (id(element_ty), *map(_number, shape))
        known = made.get(key)
        if known is None:
            original(self, element_ty, shape)
            if len(made) >= MOST:
                made.clear()
            made[key] = (element_ty, dict(vars(self)))  # keeps the element type, and so its identity
        else:
            self.__dict__.update(known[1])

    core.block_type.__init__ = __init__  # pyright: ignore[reportAttributeAccessIssue]


def _number(size: Any) -> Any:
    return size.value if type(size) is core.constexpr else size


def _remember_tensors() -> None:
    made: dict[tuple[int, int], tuple[Any, dict[str, Any]]] = {}
    original = core.tensor.__init__

    def __init__(self: Any, handle: Any, type: Any) -> None:
        if not type.is_block():
            original(self, handle, type)
            return
        key = (id(type.shape), id(type.element_ty))
        known = made.get(key)
        if known is None:
            original(self, handle, type)
            if len(made) >= MOST:
                made.clear()
            parts = {name: part for name, part in vars(self).items() if name not in ("handle", "type")}
            made[key] = (type, parts)
        else:
            self.__dict__.update(known[1], handle=handle, type=type)

    core.tensor.__init__ = __init__  # pyright: ignore[reportAttributeAccessIssue]


def _plain_values_first() -> None:
    """Most of what is asked for its value is a number or a constant: no need to try for tuples first."""
    original: Any = core._unwrap_if_constexpr
    constexpr, plain = core.constexpr, frozenset((int, float, bool, str, type(None), core.tensor))

    def unwrapped(value: Any) -> Any:
        kind = type(value)
        if kind is constexpr:
            return value.value
        return value if kind in plain else original(value)

    core._unwrap_if_constexpr = unwrapped  # pyright: ignore[reportAttributeAccessIssue]


def _one_table_of_types() -> None:
    original: Any = interpreter._get_np_dtype
    address = np.dtype(np.uint64)
    table: dict[str, Any] = {}

    def numpy_type(dtype: Any) -> Any:
        if isinstance(dtype, core.block_type):
            dtype = dtype.element_ty
        if isinstance(dtype, core.pointer_type):
            return address
        found = table.get(dtype.name)
        if found is None:
            found = table[dtype.name] = original(dtype)
        return found

    interpreter._get_np_dtype = numpy_type  # pyright: ignore[reportAttributeAccessIssue]
