"""The sums that a comparison needs, over three tensors of one shape, in two passes.

Two ways to the same numbers. By PyTorch's operations, a piece at a time: everywhere. By one kernel a pass,
where all three lie in a GPU's memory one element after another: a task of gigabytes is compared dozens of
times in an evaluation, and fifty operations in fp64 over each piece took longer than everything else.
"""

# pyright: reportArgumentType=false

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from egg.evaluator.tensors import memory

KINDS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
BLOCK = 1024
PROGRAMS = 1056
"""Eight for each multiprocessor of the largest GPUs; each goes over many blocks."""


AROUND = 2.0**-3
"""Of its own size and of the typical one: how far an element may lie from a number that the reference, which
overflows on the way, does not have."""
SAMPLE = 4096
"""Elements from which the typical size of an output is estimated."""


@dataclass(frozen=True)
class Norms:
    """Of the exact result and of the reference's own error."""

    count: int
    """Elements that have a right answer."""
    nonfinite: int
    """Elements that are NaN, Inf or a number where they must not be."""
    golden_sq: float
    ref_sq: float
    ref_max: float


@dataclass(frozen=True)
class Errors:
    """Of the candidate."""

    cand_sq: float
    max_ratio: float
    """The largest error of an element, as a multiple of what is allowed there."""
    close: bool
    """Whether it is as close to the reference as KernelBench asks."""
    reference_close: bool = True
    """Whether the reference is as close to the exact result as KernelBench asks of a candidate."""
    off: int = 0
    """Elements that are off by more than ``Allowed.own`` of their own size and by more than ``least``."""
    reference_off: int = 0
    """Elements of which the reference is off by more than a tenth of that."""


@dataclass(frozen=True)
class Allowed:
    """What an element may be off: ``base`` everywhere, and ``relative`` of its own size."""

    base: float
    relative: float
    tolerance: float
    """KernelBench's, absolute and relative."""
    own: float = 1e300
    """Of its own size: an element that is further off has lost its value."""
    least: float = 0.0
    """An error up to this is no loss, however small the element is."""


Three = Sequence[torch.Tensor]
"""Candidate, reference, exact."""


def limit_of(dtype: torch.dtype) -> float:
    """The largest finite number of the reference's type.

    An exact result beyond it has no counterpart: the least number of fp64 where the program masks by
    ``torch.finfo(x.dtype).min``, or an overflow.
    """
    return math.inf if dtype is torch.float64 else torch.finfo(dtype).max


def sentinel_tolerance(dtype: torch.dtype) -> float:
    """How far from the reference, relatively, where only the reference has a number."""
    return 1e-4 if dtype in (torch.float32, torch.float64) else 1e-2


def fusible(three: Three) -> bool:
    """Whether one kernel can go over all of it."""
    return all(t.is_cuda and t.is_contiguous() and t.dtype in KINDS for t in three)


def sampled_sizes(tensor: torch.Tensor) -> torch.Tensor:
    """Absolute values of a sample, at fixed places drawn by lot, on the host; finite ones."""
    if not tensor.numel():
        return torch.empty(0)
    generator = torch.Generator().manual_seed(SAMPLE)
    at = torch.randint(tensor.numel(), (min(SAMPLE, 4 * tensor.numel()),), generator=generator)
    sizes = tensor[torch.unravel_index(at.to(tensor.device), tensor.shape)].cpu().double().abs()
    return sizes[torch.isfinite(sizes)]


def upper_quartile(sizes: torch.Tensor) -> float:
    """The size that a quarter of them exceed: unlike the rms it does not follow a few large elements."""
    return float(sizes.kthvalue(1 + 3 * (len(sizes) - 1) // 4).values) if len(sizes) else 0.0


def norms(three: Three, typical: float = 0.0) -> Norms:
    """``typical``: the size of an element; where the reference overflows one may be off by a part of it."""
    return _fused_norms(three, typical) if fusible(three) else _norms_by_pieces(three, typical)


def errors(three: Three, allowed: Allowed) -> Errors:
    return _fused_errors(three, allowed) if fusible(three) else _errors_by_pieces(three, allowed)


# -- by PyTorch's operations -------------------------------------------------------------------------


def _norms_by_pieces(three: Three, typical: float = 0.0) -> Norms:
    count = nonfinite = 0
    golden_sq = ref_sq = ref_max = 0.0
    limit, near = limit_of(three[1].dtype), sentinel_tolerance(three[1].dtype)
    for c, r, exact in memory.pieces(*three):
        g = exact.double()
        valid = _both_numbers(g, r, limit)
        agrees = torch.where(valid, torch.isfinite(c), _stands_for(c, r, g, limit, near, typical))
        nonfinite += int((~agrees).sum())
        error = torch.where(valid, r.double() - g, 0.0)
        count += int(valid.sum())
        golden_sq += float(torch.where(valid, g, 0.0).square().sum())
        ref_sq += float(error.square().sum())
        ref_max = max(ref_max, float(error.abs().amax()) if error.numel() else 0.0)
    return Norms(count, nonfinite, golden_sq, ref_sq, ref_max)


def _both_numbers(g: torch.Tensor, r: torch.Tensor, limit: float) -> torch.Tensor:
    """Where the exact result and the reference are numbers of the reference's type."""
    return torch.isfinite(g) & (g.abs() <= limit) & torch.isfinite(r)


def _stands_for(
    c: torch.Tensor, r: torch.Tensor, g: torch.Tensor, limit: float, near: float, typical: float
) -> torch.Tensor:
    """Where an element may be as it is though there is no number to compare it with: the reference overflows
    and it does so too, or is near the exact number, or the last one of the type; or it equals the reference,
    or the exact result as the type holds it. One temporary at a time: these may be gigabytes."""
    away = g.clamp(-limit, limit).sub_(c).abs_()
    found = away <= g.abs().clamp_max_(limit).add_(typical).mul_(AROUND)
    del away
    found |= ~torch.isfinite(c)
    found &= torch.isfinite(g) & ~torch.isfinite(r)
    away = (c.double() - r).abs_()
    found |= torch.isfinite(r) & (away <= r.abs().double().mul_(near))
    del away
    found |= _equal(c, r)
    beyond = g.abs() > limit
    found |= beyond & torch.isinf(c) & (torch.signbit(c) == torch.signbit(g))
    return found | (~beyond & _equal(c.double(), g))


def _equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """NaN equals NaN, an infinity the infinity of its sign."""
    return (a == b) | (torch.isnan(a) & torch.isnan(b))


def _errors_by_pieces(three: Three, allowed: Allowed) -> Errors:
    cand_sq = max_ratio = 0.0
    off = reference_off = 0
    close = reference_close = True
    limit = limit_of(three[1].dtype)
    for c, r, exact in memory.pieces(*three):
        g = exact.double()
        valid = _both_numbers(g, r, limit) & torch.isfinite(c)
        error = torch.where(valid, c.double() - g, 0.0).abs()
        bound = torch.where(valid, g, 0.0).abs().mul_(allowed.relative).clamp_min_(allowed.base)
        cand_sq += float(error.square().sum())
        if error.numel():
            max_ratio = max(max_ratio, float((error / bound).amax()))
        del bound
        off += int((error > g.abs().mul_(allowed.own).clamp_min_(allowed.least)).sum())
        del error
        close &= torch.allclose(c, r, rtol=allowed.tolerance, atol=allowed.tolerance, equal_nan=True)
        apart = torch.where(_both_numbers(g, r, limit), r.double() - g, 0.0).abs()
        reference_close &= not bool((apart > allowed.tolerance * (1.0 + r.double().abs())).any())
        tenth = g.abs().mul_(allowed.own).clamp_min_(allowed.least).mul_(0.1)
        reference_off += int((apart > tenth).sum())
        del apart, tenth
    return Errors(cand_sq, max_ratio, close, reference_close, off, reference_off)


# -- by one kernel a pass ----------------------------------------------------------------------------


@triton.jit
def _finite(x):
    return (x == x) & (tl.abs(x) != float("inf"))


@triton.jit
def _blocks(BLOCK: tl.constexpr):
    """Where the blocks of this program begin: the first, and how far the next is; the lanes of one."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    return first, tl.num_programs(0).to(tl.int64) * BLOCK, tl.arange(0, BLOCK)


@triton.jit
def _elements(c_ptr, r_ptr, g_ptr, at, inside):
    """The candidate's, the reference's and the golden elements of a block, in double precision."""
    c = tl.load(c_ptr + at, mask=inside, other=0.0).to(tl.float64)
    r = tl.load(r_ptr + at, mask=inside, other=0.0).to(tl.float64)
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float64)
    return c, r, g


@triton.jit
def _norms_kernel(
    c_ptr, r_ptr, g_ptr, typical_ptr, count_ptr, nonfinite_ptr, golden_ptr, ref_ptr, max_ptr, n,
    LIMIT: tl.constexpr, NEAR: tl.constexpr, AROUND: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """What :func:`_norms_by_pieces` says, of every block that is this program's."""
    first, step, lanes = _blocks(BLOCK)
    count = tl.zeros((BLOCK,), tl.int64)
    nonfinite = tl.zeros((BLOCK,), tl.int64)
    golden_sq = tl.zeros((BLOCK,), tl.float64)
    ref_sq = tl.zeros((BLOCK,), tl.float64)
    ref_max = tl.zeros((BLOCK,), tl.float64)
    for start in range(first, n, step):
        at = start + lanes
        inside = at < n
        c, r, g = _elements(c_ptr, r_ptr, g_ptr, at, inside)
        valid = _finite(g) & (tl.abs(g) <= LIMIT) & _finite(r)
        last = tl.minimum(tl.maximum(g, -LIMIT), LIMIT)
        around = tl.abs(c - last) <= AROUND * (tl.abs(last) + tl.load(typical_ptr))
        overflow = _finite(g) & (_finite(r) == 0) & (around | (_finite(c) == 0))
        beside = _finite(r) & (tl.abs(c - r) <= NEAR * tl.abs(r))
        beyond = tl.where(tl.abs(g) > LIMIT, tl.where(g > 0, float("inf"), float("-inf")), g)
        same = (c == r) | ((c != c) & (r != r)) | (c == beyond) | ((c != c) & (g != g))
        agrees = (valid & _finite(c)) | (~valid & (overflow | beside | same))
        counted = valid & inside
        error = tl.where(counted, r - g, 0.0)
        size = tl.where(counted, g, 0.0)
        count += counted.to(tl.int64)
        nonfinite += (inside & ~agrees).to(tl.int64)
        golden_sq += size * size
        ref_sq += error * error
        ref_max = tl.maximum(ref_max, tl.abs(error))
    program = tl.program_id(0)
    tl.store(count_ptr + program, tl.sum(count))
    tl.store(nonfinite_ptr + program, tl.sum(nonfinite))
    tl.store(golden_ptr + program, tl.sum(golden_sq))
    tl.store(ref_ptr + program, tl.sum(ref_sq))
    tl.store(max_ptr + program, tl.max(ref_max))


@triton.jit
def _errors_kernel(
    c_ptr, r_ptr, g_ptr, allowed_ptr, cand_ptr, max_ptr, far_ptr, ref_far_ptr, off_ptr, ref_off_ptr, n,
    LIMIT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """What :func:`_errors_by_pieces` says, of every block that is this program's."""
    base, relative, tolerance = tl.load(allowed_ptr), tl.load(allowed_ptr + 1), tl.load(allowed_ptr + 2)
    own, least = tl.load(allowed_ptr + 3), tl.load(allowed_ptr + 4)
    first, step, lanes = _blocks(BLOCK)
    cand_sq = tl.zeros((BLOCK,), tl.float64)
    max_ratio = tl.zeros((BLOCK,), tl.float64)
    far = tl.zeros((BLOCK,), tl.int64)
    ref_far = tl.zeros((BLOCK,), tl.int64)
    off = tl.zeros((BLOCK,), tl.int64)
    ref_off = tl.zeros((BLOCK,), tl.int64)
    for start in range(first, n, step):
        at = start + lanes
        inside = at < n
        c, r, g = _elements(c_ptr, r_ptr, g_ptr, at, inside)
        both = inside & _finite(g) & (tl.abs(g) <= LIMIT) & _finite(r)
        valid = both & _finite(c)
        error = tl.where(valid, tl.abs(c - g), 0.0)
        bound = tl.maximum(tl.where(valid, tl.abs(g), 0.0) * relative, base)
        cand_sq += error * error
        max_ratio = tl.maximum(max_ratio, error / bound)
        apart = tl.abs(c - r)
        near = (
            (c == r) | ((c != c) & (r != r)) | (_finite(apart) & (apart <= tolerance + tolerance * tl.abs(r)))
        )
        far += (inside & ~near).to(tl.int64)
        ref_far += (both & (tl.abs(r - g) > tolerance + tolerance * tl.abs(r))).to(tl.int64)
        lost = tl.maximum(tl.where(both, tl.abs(g), 0.0) * own, least)
        off += (valid & (error > lost)).to(tl.int64)
        ref_off += (both & (tl.abs(r - g) > 0.1 * lost)).to(tl.int64)
    program = tl.program_id(0)
    tl.store(cand_ptr + program, tl.sum(cand_sq))
    tl.store(max_ptr + program, tl.max(max_ratio))
    tl.store(far_ptr + program, tl.sum(far))
    tl.store(ref_far_ptr + program, tl.sum(ref_far))
    tl.store(off_ptr + program, tl.sum(off))
    tl.store(ref_off_ptr + program, tl.sum(ref_off))


def _fused_norms(three: Three, typical: float = 0.0) -> Norms:
    c, r, g = three
    programs, counted, summed = _partial(c)
    count, nonfinite = counted(), counted()
    golden_sq, ref_sq, ref_max = summed(), summed(), summed()
    n, size = c.numel(), torch.tensor([typical], dtype=torch.float64, device=c.device)
    with torch.cuda.device_of(c):
        _norms_kernel[(programs,)](
            c, r, g, size, count, nonfinite, golden_sq, ref_sq, ref_max, n,
            LIMIT=limit_of(r.dtype), NEAR=sentinel_tolerance(r.dtype), AROUND=AROUND, BLOCK=BLOCK,
        )  # fmt: skip
    sums = torch.stack([golden_sq.sum(), ref_sq.sum(), ref_max.max()]).tolist()
    return Norms(int(count.sum()), int(nonfinite.sum()), *sums)


def _fused_errors(three: Three, allowed: Allowed) -> Errors:
    c, r, g = three
    programs, counted, summed = _partial(c)
    far, ref_far, cand_sq, max_ratio = counted(), counted(), summed(), summed()
    off, ref_off = counted(), counted()
    n = c.numel()
    bounds = torch.tensor(
        [allowed.base, allowed.relative, allowed.tolerance, allowed.own, allowed.least],
        dtype=torch.float64,
        device=c.device,
    )  # in memory: as an argument a float would be rounded to fp32
    with torch.cuda.device_of(c):
        _errors_kernel[(programs,)](
            c, r, g, bounds, cand_sq, max_ratio, far, ref_far, off, ref_off, n,
            LIMIT=limit_of(r.dtype), BLOCK=BLOCK,
        )  # fmt: skip
    sums = torch.stack([cand_sq.sum(), max_ratio.max()]).tolist()
    far_off = torch.stack([far.sum(), ref_far.sum(), off.sum(), ref_off.sum()]).tolist()
    return Errors(sums[0], sums[1], not far_off[0], not far_off[1], *far_off[2:])


def _partial(of: torch.Tensor) -> tuple[int, Any, Any]:
    """How many programs, and makers of a place for each of them to leave a count or a sum."""
    programs = max(1, min(PROGRAMS, triton.cdiv(of.numel(), BLOCK)))
    where = of.device
    return (
        programs,
        lambda: torch.empty(programs, dtype=torch.int64, device=where),
        lambda: torch.empty(programs, dtype=torch.float64, device=where),
    )
