"""Memory that generated host code takes for a tensor of another form, as PyTorch's views.

``reinterpret_tensor(x, size, stride, offset)`` counts the offset from where ``x`` begins. A plain view or a
transpose says the same where it exists; anything else is ``as_strided``, whose offset counts from where the
memory begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

Sizes = Sequence[int]


@dataclass(frozen=True)
class Held:
    """A tensor of the host code: how it is written, its form, and where it begins in its memory."""

    text: str
    tensor: torch.Tensor
    """Without data."""
    offset: int | None = 0
    """``None`` where it is not known."""

    def reinterpreted(self, size: Sizes, stride: Sizes, offset: int) -> Held:
        dtype = self.tensor.dtype
        made = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device="meta")
        begin = None if self.offset is None else self.offset + offset
        return Held(self._text(made, offset), made, begin)

    def _text(self, made: torch.Tensor, offset: int) -> str:
        own = self.tensor
        if offset == 0 and same_form(own, made):
            return self.text
        if offset == 0 and own.dim() == 2 and same_form(own.t(), made):
            return f"{self.text}.t()"
        if offset == 0 and own.is_contiguous() and made.is_contiguous() and own.numel() == made.numel():
            return f"{self.text}.view({', '.join(map(str, made.shape)) or '()'})"
        place = (
            f", {self._begin(offset)}" if offset else ""
        )  # without one a view begins where its source does
        return f"{self.text}.as_strided({tuple_text(made.shape)}, {tuple_text(made.stride())}{place})"

    def _begin(self, offset: int) -> str:
        return (
            f"{self.text}.storage_offset() + {offset}" if self.offset is None else str(self.offset + offset)
        )


def same_form(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same shape, and the same strides wherever they matter."""
    if a.shape != b.shape:
        return False
    return all(x == y for n, x, y in zip(a.shape, a.stride(), b.stride(), strict=True) if n > 1)


def tuple_text(items: Sequence[int]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(map(str, items))})"


def allocation(made: torch.Tensor, device: str) -> str:
    """A call that makes a tensor of this form."""
    kind = f"device={device}, dtype={made.dtype}"
    if made.is_contiguous():
        return f"torch.empty({tuple_text(made.shape) if made.dim() else '()'}, {kind})"
    return f"torch.empty_strided({tuple_text(made.shape)}, {tuple_text(made.stride())}, {kind})"
