"""Answers of the reference side by side: how much is finite, how far they move, whether they are the same."""

from __future__ import annotations

import math
from typing import Any

import torch

from egg.evaluator.compare.bands import FEW, rms_by_band
from egg.evaluator.compare.compare import STILL, Moved
from egg.evaluator.compare.part import Part
from egg.evaluator.compare.scales import rms_by_pool
from egg.evaluator.tensors import memory
from egg.evaluator.tensors.reals import as_reals, finite

FAR = 2.0**-4
"""Relative rms distance between the reference and a stand-in for its fp64 run: more is no rounding."""

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
"""By the bytes of an element; words of eight make up the others."""


def finite_share(outputs: list[tuple[str, Any]]) -> float:
    """The part of all elements that are finite."""
    count, total = 0, 0
    for _, leaf in outputs:
        if isinstance(leaf, torch.Tensor):
            count += sum(int(finite(piece).sum()) for (piece,) in memory.pieces(leaf))
            total += leaf.numel()
        else:
            count, total = count + int(math.isfinite(abs(leaf))), total + 1
    return count / max(total, 1)


def response(exact: Any, up: Any, down: Any, limit: float, part: Part | None = None) -> Moved:
    """The linear part of how an output follows a perturbation and its mirror image.

    ``limit``: of its own size; how many elements move by more is counted. ``part``: of some elements alone.
    """
    if not isinstance(exact, torch.Tensor):
        exact, up, down = (torch.tensor(float(abs(v)), dtype=torch.float64) for v in (exact, up, down))
    if exact.shape != up.shape or exact.shape != down.shape or not inexact(exact):
        return STILL
    if part is not None:
        exact, up, down = (part.of(t) for t in (exact, up, down))
        part = part.in_pairs() if exact.is_complex() else part
    largest = square = 0.0
    count = lost = 0
    bands: dict[int, float] = {}
    reals = [as_reals(t) for t in (exact, up, down)]
    for g, a, b in memory.pieces(*reals):
        linear = _linear(g, a, b)
        off = (linear > g.double().abs().mul_(limit)).sum()
        counted = torch.stack([torch.isfinite(g).sum(), off]).tolist()
        count, lost = count + counted[0], lost + counted[1]
        peak = linear.amax() if linear.numel() else linear.sum()
        summed = torch.stack([linear.square().sum(), peak]).tolist()
        square, largest = square + summed[0], max(largest, summed[1])
        for band, value in rms_by_band(linear, g).items():
            bands[band] = max(bands.get(band, 0.0), value)
    pools = rms_by_pool(reals, _linear, part)
    each = tuple(_linear(*reals).reshape(-1).tolist()) if exact.numel() <= FEW else ()
    return Moved(largest, math.sqrt(square / max(count, 1)), lost / max(count, 1), bands, pools, each)


def _linear(g: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How far elements move oppositely under a perturbation and its mirror image; zero where they do not."""
    above, below = a.double() - g.double(), b.double() - g.double()
    linear = (above - below) / 2
    follows = torch.isfinite(linear) & ((above + below).abs() <= 0.5 * linear.abs())
    return torch.where(follows, linear, 0.0).abs()


def alike(outputs: list[tuple[str, Any]], exact: list[tuple[str, Any]]) -> bool:
    """Whether two answers have the same paths, with tensors of the same shapes."""
    return [(path, _shape(leaf)) for path, leaf in outputs] == [(path, _shape(leaf)) for path, leaf in exact]


def _shape(leaf: Any) -> torch.Size | None:
    return leaf.shape if isinstance(leaf, torch.Tensor) else None


def far(outputs: list[tuple[str, Any]], exact: list[tuple[str, Any]]) -> bool:
    """Whether a stand-in for the fp64 run answers something else than the reference."""
    if not alike(outputs, exact):
        return True
    for (_, given), (_, wide) in zip(outputs, exact, strict=True):
        if not isinstance(given, torch.Tensor) or not inexact(given):
            continue
        away = size = 0.0
        for r, g in memory.pieces(as_reals(given), as_reals(wide)):
            both = torch.isfinite(r) & torch.isfinite(g)
            away += float(torch.where(both, r.double() - g.double(), 0.0).square().sum())
            size += float(torch.where(both, g.double(), 0.0).square().sum())
        if away > FAR**2 * size:
            return True
    return False


def inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in shape, type and every value, NaN equal to NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(
        torch.equal(x, y) or bool(((x == y) | ((x != x) & (y != y))).all()) for x, y in memory.pieces(a, b)
    )


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in shape, type and every bit: for what must be *unchanged*.

    Numbers that compare equal are not one: a caller divides by a zero of the other sign, and a file could
    remember in the signs of zeros or in the payloads of NaN.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(torch.equal(bits(x), bits(y)) for x, y in memory.pieces(a, b))


def bits(flat: torch.Tensor) -> torch.Tensor:
    """As integers of the same width."""
    return flat.resolve_conj().resolve_neg().view(INTEGERS.get(flat.element_size(), torch.int64))


def differ(a: Any, b: Any) -> bool:
    """Whether two runs gave different numbers, beyond what another order of summation explains."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    if a.shape != b.shape:
        return True
    return not same_values(a, b) and not all(
        torch.allclose(x.double(), y.double(), 1e-3, 1e-6, equal_nan=True) for x, y in memory.pieces(a, b)
    )


def follows_seed(one: list[tuple[str, Any]], other: list[tuple[str, Any]], *, drawn: bool) -> bool:
    """Whether answers to one question follow the seed.

    Where random numbers were ``drawn`` any difference is theirs, and noise may be small. Where none were, it
    is what another order of summation does not explain.
    """
    for (_, a), (_, b) in zip(one, other, strict=True):
        if differ(a, b) or (drawn and not same_values(torch.as_tensor(a), torch.as_tensor(b))):
            return True
    return False
