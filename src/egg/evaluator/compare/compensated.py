"""Outputs that hold what another one lost to rounding: held together with it.

A compensated step (Kahan, error feedback) returns a number of few bits and, beside it, the error of rounding
to them: the exact run has next to nothing there, and the reference is right in no digit. So is zero, or the
error with the other sign. What such an answer must have right is the sum of the two, which is far more exact
than either. That is how it is found: by the reference's own sum with another output, or its difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from egg.core.policy import Precision
from egg.evaluator.compare.compare import ROUNDOFF, LeafError, Moved, compare
from egg.evaluator.tensors.reals import EIGHT_BITS

CLOSER = 2.0
"""How many times closer to the exact sum than one output to its own."""
LEAST = 16
"""Elements, of which that is no chance."""
MOST = 1 << 16
"""Elements that are looked at for it."""
SIGNS = (1.0, -1.0)


def partner(position: int, outputs: Sequence[Any], golden: Sequence[Any]) -> tuple[int, float] | None:
    """The output of which this one holds the rounding error, and the sign with which it is added to it."""
    rest, exact = outputs[position], golden[position]
    if not _inexact(rest) or rest.numel() < LEAST:
        return None
    lost = _some(rest) - _some(exact)
    for at, (main, wide) in enumerate(zip(outputs, golden, strict=True)):
        if at == position or not _inexact(main) or main.shape != rest.shape:
            continue
        off = _some(main) - _some(wide)
        for sign in SIGNS:
            if 0.0 < _rms(off) < math.inf and CLOSER * _rms(off + sign * lost) <= _rms(off):
                return at, sign
    return None


def together(
    main: Sequence[torch.Tensor], rest: Sequence[torch.Tensor], sign: float, precision: Precision
) -> LeafError:
    """The sum of two outputs, each as the candidate, the reference and the exact run have it: as exact as the
    reference's, but for a rounding of the rest itself, or as one in fp32 where the two have fewer bits."""
    kind = torch.float32 if main[1].itemsize < torch.float32.itemsize else torch.float64
    candidate, reference, golden = (m.double() + sign * r.double() for m, r in zip(main, rest, strict=True))
    left, unit = rest[1].double().nan_to_num(0.0, 0.0, 0.0), ROUNDOFF[rest[1].dtype]
    rounding = Moved(unit * float(left.abs().max()), unit * _rms(left))
    return compare(candidate, reference, golden, precision, rounding, computed_in=kind)


def _inexact(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dtype not in EIGHT_BITS


def _some(leaf: torch.Tensor) -> torch.Tensor:
    """Elements all over it, the same of every tensor of a shape."""
    return leaf.reshape(-1)[:: max(1, leaf.numel() // MOST)].double()


def _rms(values: torch.Tensor) -> float:
    found = float(values.square().mean().sqrt())
    return found if math.isfinite(found) else math.inf
