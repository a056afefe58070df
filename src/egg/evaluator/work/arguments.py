"""What a kernel was launched with, without the data: numbers as they are, tensors by size and alignment.

That is all that counting a launch's work needs. It holds no tensor alive, and can be compared
and hashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from egg.core.resources import GRANULE_BYTES

ADDRESS = 1 << 40
"""Integers from here on may be addresses, which differ between two processes."""


@dataclass(frozen=True)
class TensorArgument:
    """A tensor, or anything else with a ``data_ptr``."""

    bytes: int
    """From its first element to its last, gaps included; 0 where it does not say."""
    itemsize: int
    misaligned: int = 0
    """Bytes between its first element and the boundary before it at which memory hands out a piece."""
    before: int = field(default=0, compare=False)
    """Bytes of its storage that lie before its first element."""
    storage: int = field(default=0, compare=False)
    """Bytes of its storage; 0 where it does not say."""
    address: int = field(default=0, compare=False)
    """Of its storage: tensors that share one say the same."""


@dataclass(frozen=True)
class DescriptorArgument:
    """A ``TensorDescriptor`` made on the host."""

    tensor: TensorArgument
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    block_shape: tuple[int, ...]


Argument = int | float | str | None | TensorArgument | DescriptorArgument | tuple["Argument", ...]
"""``None`` stands for whatever has no part in addresses and bounds."""


def argument_forms(bound: Mapping[str, Any]) -> dict[str, Argument]:
    """The forms of a launch's arguments by parameter name, as Triton bound them."""
    return {name: form_of(value) for name, value in bound.items()}


def form_of(value: Any) -> Argument:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return tuple(form_of(item) for item in value)
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        return DescriptorArgument(
            _tensor_form(value.base),
            tuple(int(n) for n in value.shape),
            tuple(int(n) for n in value.strides),
            tuple(int(n) for n in value.block_shape),
        )
    return _tensor_form(value) if hasattr(value, "data_ptr") else None


def _tensor_form(value: Any) -> TensorArgument:
    """Of a tensor, or of what wraps one to reinterpret its elements."""
    inner = getattr(value, "base", value) if not hasattr(value, "stride") else value
    itemsize = int(getattr(getattr(inner, "dtype", None), "itemsize", 1))
    if not (hasattr(inner, "shape") and callable(getattr(inner, "stride", None))):
        return TensorArgument(0, itemsize)
    shape, strides = tuple(inner.shape), tuple(inner.stride())
    span = sum((size - 1) * abs(stride) for size, stride in zip(shape, strides, strict=True)) + 1
    nbytes = 0 if 0 in shape else span * itemsize
    address = int(inner.data_ptr())
    before = int(inner.storage_offset()) * itemsize if callable(getattr(inner, "storage_offset", None)) else 0
    storage = int(inner.untyped_storage().nbytes()) if hasattr(inner, "untyped_storage") else 0
    return TensorArgument(nbytes, itemsize, address % GRANULE_BYTES, before, storage, address - before)


def numbers_in(bound: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """The plain values of a launch by name, constants of compilation among them; no addresses."""
    plain = {name: value for name, value in bound.items() if isinstance(value, bool | int | float | str)}
    return tuple(sorted((n, repr(v)) for n, v in plain.items() if not (type(v) is int and v >= ADDRESS)))


def heft(arguments: Mapping[str, Argument]) -> int:
    """Bytes of all the tensors: which of two launches of one kernel is the larger."""

    def of(form: Argument) -> int:
        if isinstance(form, DescriptorArgument):
            return form.tensor.bytes
        if isinstance(form, tuple):
            return sum(map(of, form))
        return form.bytes if isinstance(form, TensorArgument) else 0

    return sum(map(of, arguments.values()))
