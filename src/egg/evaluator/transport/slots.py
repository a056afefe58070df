"""Where tensors lie in shared memory: values that name bytes and hold none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies in the arena, and how it is laid out."""

    offset: int
    nbytes: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    lead: int = 0
    """Elements of its storage before its first: a tensor that begins one element in is aligned to nothing."""
    learns: bool = False
    """Whether the caller's tensor requires a gradient."""
