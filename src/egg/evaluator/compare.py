"""Is this output right? Errors against an fp64 run, in units of what the reference itself gets wrong.

For every floating output, with ``g`` the fp64 result, ``r`` the reference under the declared
precision and ``c`` the candidate:

* max: ``|c - g| <= max(4 max|r - g|, F_max u rms(g), 8 u |g|)`` element by element,
* rms: ``rms(c - g) <= max(2 rms(r - g), F_rms u rms(g))``,

where ``u`` is the unit roundoff of the policy's arithmetic. The floors allow for another order
of summation, which is honest. For fp32 they are 256 and 32: 1.9e-6 in rms, far below TF32.
In 16-bit and TF32 arithmetic one rounding dominates any order of summation, and 32 u of bf16
would be an error of 12%: there the floors are 8 and 1.

Elements that the reference and the fp64 run do not agree to be finite (an overflow in one
of them) have no right answer and are passed over; everywhere else NaN and Inf must match.
Integers and booleans must equal the reference or the fp64 run exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from egg.core.policy import Precision
from egg.evaluator import memory

CHUNK = memory.CHUNK
ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
TF32_ROUNDOFF = 2.0**-11


@dataclass(frozen=True)
class Floor:
    """The error another order of summation may cause, relative to the output's rms."""

    roundoff: float
    max_factor: float
    rms_factor: float


@dataclass(frozen=True)
class LeafError:
    """One output's errors as multiples of what is allowed, and what else is wrong with it."""

    max_ratio: float
    rms_ratio: float
    relative: float
    reference_relative: float
    kernelbench: bool
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem and self.max_ratio <= 1.0 and self.rms_ratio <= 1.0


@dataclass
class Worst:
    """The worst errors seen so far, over all cases and outputs."""

    checks: int = 0
    max_ratio: float = 0.0
    rms_ratio: float = 0.0
    relative: float = 0.0
    reference_relative: float = 0.0
    kernelbench: bool = True

    def take(self, error: LeafError) -> None:
        self.max_ratio = max(self.max_ratio, error.max_ratio)
        self.rms_ratio = max(self.rms_ratio, error.rms_ratio)
        if error.relative > self.relative:
            self.relative, self.reference_relative = error.relative, error.reference_relative
        self.kernelbench &= error.kernelbench


def floor_for(dtype: torch.dtype, precision: Precision) -> Floor:
    roundoff = ROUNDOFF.get(dtype, 2.0**-24)
    if precision is Precision.TF32 and dtype is torch.float32:
        return Floor(TF32_ROUNDOFF, 8.0, 1.0)
    if roundoff <= ROUNDOFF[torch.float32]:
        return Floor(roundoff, 256.0, 32.0)
    return Floor(roundoff, 8.0, 1.0)


def compare(
    candidate: torch.Tensor, reference: torch.Tensor, golden: torch.Tensor, precision: Precision
) -> LeafError:
    """Judge one output; all three have the same shape, and live where the oracle lives."""
    if not (candidate.is_floating_point() or candidate.is_complex()):
        return _compare_exact(candidate, reference, golden)
    floor = floor_for(reference.dtype, precision)
    sums = _Sums(floor)
    three = [_real(t) for t in (candidate, reference, golden)]
    for c, r, g in memory.pieces(*three, size=CHUNK):
        sums.first_pass(c, r, g.double())
    for c, r, g in memory.pieces(*three, size=CHUNK):
        sums.second_pass(c, r, g.double())
    return sums.result()


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _compare_exact(candidate: torch.Tensor, reference: torch.Tensor, golden: torch.Tensor) -> LeafError:
    count, equal = 0, True
    for c, r, g in memory.pieces(candidate, reference, golden, size=CHUNK):
        unequal = c != r
        equal &= not bool(unequal.any())
        count += int((unequal & (c != g.to(c.dtype))).sum())
    problem = f"{count} of {candidate.numel()} integer elements differ" if count else ""
    return LeafError(float(count > 0), float(count > 0), 0.0, 0.0, equal, problem)


class _Sums:
    """Two passes over the chunks: norms and the reference's own error first, then the candidate's."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._count = 0
        self._golden_sq = self._ref_sq = self._cand_sq = 0.0
        self._ref_max = self._max_ratio = 0.0
        self._nonfinite = 0
        self._kernelbench = True

    def first_pass(self, c: torch.Tensor, r: torch.Tensor, g: torch.Tensor) -> None:
        valid = torch.isfinite(g) & torch.isfinite(r)
        undefined = torch.isfinite(g) != torch.isfinite(r)
        agrees = torch.where(
            valid,
            torch.isfinite(c),
            undefined | (c.double() == r.double()) | (torch.isnan(c) & torch.isnan(r)),
        )
        self._nonfinite += int((~agrees).sum())
        gv = torch.where(valid, g, 0.0)
        error = torch.where(valid, r.double() - g, 0.0)
        self._count += int(valid.sum())
        self._golden_sq += float(gv.square().sum())
        self._ref_sq += float(error.square().sum())
        self._ref_max = max(self._ref_max, float(error.abs().amax()) if error.numel() else 0.0)

    def second_pass(self, c: torch.Tensor, r: torch.Tensor, g: torch.Tensor) -> None:
        valid = torch.isfinite(g) & torch.isfinite(r) & torch.isfinite(c)
        error = torch.where(valid, c.double() - g, 0.0).abs()
        base = max(4.0 * self._ref_max, self._floor.max_factor * self._floor.roundoff * self._rms)
        allowed = (
            torch.where(valid, g, 0.0).abs().mul_(8.0 * self._floor.roundoff).clamp_min_(max(base, 1e-300))
        )
        self._cand_sq += float(error.square().sum())
        if error.numel():
            self._max_ratio = max(self._max_ratio, float((error / allowed).amax()))
        tolerance = 1e-4 if r.dtype in (torch.float32, torch.float64) else 1e-2
        self._kernelbench &= torch.allclose(c, r, rtol=tolerance, atol=tolerance, equal_nan=True)

    @property
    def _rms(self) -> float:
        return math.sqrt(self._golden_sq / self._count) if self._count else 0.0

    def result(self) -> LeafError:
        count = max(self._count, 1)
        cand, ref = math.sqrt(self._cand_sq / count), math.sqrt(self._ref_sq / count)
        allowed = max(2.0 * ref, self._floor.rms_factor * self._floor.roundoff * self._rms, 1e-300)
        scale = self._rms or 1.0
        problem = (
            f"{self._nonfinite} elements are NaN or Inf where they must not be" if self._nonfinite else ""
        )
        return LeafError(
            self._max_ratio,
            cand / allowed,
            cand / scale,
            ref / scale,
            self._kernelbench and not problem,
            problem,
        )
