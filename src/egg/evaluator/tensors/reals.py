"""Tensors on which every operation of PyTorch works: complex numbers as pairs, 8-bit floats in fp32.

PyTorch moves, copies and converts floats of 8 bits; sums, comparisons by size and ``isfinite`` it has not for
them. In fp32 each of their values is exact, NaN and infinities included.
"""

from __future__ import annotations

import torch

EIGHT_BITS = frozenset(
    {
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
    }
)


EXPONENTS = torch.float8_e8m0fnu
"""Powers of two and nothing else: the scales that blocks of 8-bit elements share."""


def as_reals(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, for reading: of a complex or an 8-bit tensor in a type that can be computed with."""
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor.float() if tensor.dtype in EIGHT_BITS else tensor


def finite(tensor: torch.Tensor) -> torch.Tensor:
    """``torch.isfinite``, of 8-bit floats too."""
    return torch.isfinite(tensor.float() if tensor.dtype in EIGHT_BITS else tensor)


def narrowed(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """In ``dtype``; where that has 8 bits, what is beyond its largest number becomes that number."""
    if dtype in EIGHT_BITS:
        kind = torch.finfo(dtype)
        return tensor.clamp(kind.min, kind.max).to(dtype)
    return tensor.to(dtype)


def nudged(tensor: torch.Tensor, lots: torch.Tensor) -> torch.Tensor:
    """Each element plus its product with a lot (fp32, of the same shape), in the tensor's own type."""
    if tensor.dtype in EIGHT_BITS:
        wide = tensor.float()
        return torch.addcmul(wide, wide, lots).to(tensor.dtype)
    return torch.addcmul(tensor, tensor, lots.to(tensor.dtype))


def scaled(tensor: torch.Tensor, factor: float, offset: float = 0.0) -> torch.Tensor:
    """``tensor * factor + offset`` in its own type, of 8-bit floats too."""
    if tensor.dtype in EIGHT_BITS:
        return narrowed(tensor.float() * factor + offset, tensor.dtype)
    return tensor * factor + offset
