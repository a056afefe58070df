"""Is this output right? Errors against an fp64 run, in units of what the reference itself gets wrong.

For every floating output, with ``g`` the fp64 result, ``r`` the reference under the declared
precision and ``c`` the candidate:

* max: ``|c - g| <= max(4 max|r - g|, F_max u rms(g), 8 u |g|)`` element by element,
* rms: ``rms(c - g) <= max(2 rms(r - g), F_rms u rms(g))``,

where ``u`` is the unit roundoff of the policy's arithmetic. The floors allow for another order
of summation, which is honest. For fp32 they are 256 and 32: 1.9e-6 in rms, far below TF32.
In 16-bit and TF32 arithmetic one rounding dominates any order of summation, and 32 u of bf16
would be an error of 12%: there the floors are 8 and 1.

A float of 8 bits is what a program quantizes to, and the fp64 run is rounded to it as well: another
arithmetic on the way moves an element to the next number, which is 2 u away, and few of them. Eight u of e4m3
would be half of an element's value. So there one step of the type is allowed (2.5 u of the element, or the
smallest number that the type has), half a u of the rms elsewhere, which is the floor of bf16, and half a u in
rms: one element in eight moved, where rounding toward zero moves every second.

An output may span many orders of magnitude (an exponential), and then the rms is that of a few elements: all
others could be zero. So the elements that have lost their own value are counted as well: those off by more
than ``max(1e-2, 16 u)`` of themselves, and by more than the max floor relative to the *upper quartile* of the
output, which a few large elements do not move. A candidate may have one in a thousand of them (and two), and
twice as many as the reference has by a tenth of these bounds: where results cancel, it has many. Where whole
slices are small beside the rest, they are looked at by themselves (:mod:`~egg.evaluator.compare.slices`).
Elements of one magnitude, and slices of one scale, are held to the reference's error there
(:mod:`~egg.evaluator.compare.bands`, :mod:`~egg.evaluator.compare.scales`).

Where the program itself amplifies the rounding of its inputs (an exponential of large numbers), every
implementation is off by as much, and a reference that happens to round elsewhere is no measure. How far the
exact result moves under such roundings (:class:`Moved`) is therefore allowed too, with a factor of two. It
takes further fp64 runs, so it is asked for only where the rule above refuses.

A library decides by shape whether it uses an arithmetic that it may use (TF32 in a convolution). At a call of
another shape the reference's error at the task's own call (:class:`Usual`) is therefore allowed as well, with
the factors 4 and 2 from above.

Where a result cancels so far that the reference has no digit of it right (``rms(r - g) > rms(g)``, as of the
mean of a normalized tensor), both sides answer with their roundings alone, and how large those are is chance.
There the factors 4 and 2 are twice as large.

Of few elements the rms of two honest errors differs by chance: its logarithm has a spread of ``1 / sqrt(n)``.
The factor 2 of the reference's error is ``1.5 exp(3.7 / sqrt(n))`` where that is more (below 166 elements),
up to the 4 of a single element.

An element where the reference overflows and the fp64 run does not has no right answer and is passed over.
Everywhere else NaN and Inf must stand where the reference or the fp64 run has them, and where only the
reference has a number that its type can hold (``torch.finfo(x.dtype).min`` is another number in fp64) it
must be that number.
Integers and booleans must equal the reference or the fp64 run exactly, but for few that are rounded from
floats (:mod:`~egg.evaluator.compare.integers`), and so must numbers that are not computed at all
(:mod:`~egg.evaluator.compare.copies`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from egg.core.policy import Precision
from egg.evaluator.compare import amplified, bands, integers, populations, scales, slices, sums
from egg.evaluator.compare.bands import NOWHERE, Band
from egg.evaluator.compare.integers import NONE, Crossed
from egg.evaluator.compare.part import Part
from egg.evaluator.tensors.reals import EIGHT_BITS, EXPONENTS, as_reals

ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float8_e4m3fn: 2.0**-4,
    torch.float8_e4m3fnuz: 2.0**-4,
    torch.float8_e5m2: 2.0**-3,
    torch.float8_e5m2fnuz: 2.0**-3,
    EXPONENTS: 2.0**-1,
}
TF32_ROUNDOFF = 2.0**-11
Key = TypeVar("Key")
OF_NOISE = 2.0
"""How many times as much is allowed where the reference has no digit of the answer right."""
FEW_FACTOR, FEW_SPREADS, FEW_MOST = 1.5, 3.7, 4.0
"""Of the reference's rms error, what an honest one of few elements may be: many spreads of chance beyond."""
CONDITIONING = 2.0
"""How many times as far as the exact result moves under the inputs' own rounding."""
BY_ITSELF = 8.0
"""How many times as much elements of one magnitude may be off where nothing says how far the reference is."""
LOST = 1e-2
"""Of its own size: an element that is off by more has lost its value, in fp32."""
LOST_ROUNDINGS = 16.0
"""The same in unit roundoffs, for types that have few bits."""
ONE_STEP = 2.5
"""Unit roundoffs: from one number of a type to the next it is two at most."""
FEW_LOST, SHARE_LOST = 2, 1e-3
"""So many elements, and this part of all, may lose theirs where results happen to cancel."""


@dataclass(frozen=True)
class Floor:
    """The error another order of summation may cause, relative to the output's rms."""

    roundoff: float
    max_factor: float
    rms_factor: float
    own_factor: float = 8.0
    """Roundoffs of its own size that every element may be off by."""
    lost_factor: float = LOST_ROUNDINGS
    """Roundoffs of its own size by which an element has lost its value."""
    step: float = 0.0
    """What every element may be off by, however small it is: the distance of the type's smallest numbers."""


@dataclass(frozen=True)
class Moved:
    """How far one output's exact result moves when inputs and weights are off by their own rounding."""

    max: float
    rms: float
    lost: float = 0.0
    """The part of the elements that move by more than a tenth of what counts as lost."""
    bands: Mapping[int, float] = field(default_factory=dict)
    """The rms in each band of magnitude."""
    scales: Mapping[scales.Pool, float] = field(default_factory=dict)
    """The rms in each pool of slices."""
    each: tuple[float, ...] = ()
    """Of an output of few elements: how far each moves."""
    functions: Mapping[int, float] = field(default_factory=dict)
    """The rms in each band when functions are off by roundings of what is added inside them."""

    def times(self, factor: float) -> Moved:
        wider = {band: factor * value for band, value in self.bands.items()}
        pools = {pool: factor * value for pool, value in self.scales.items()}
        each = tuple(factor * value for value in self.each)
        functions = {band: factor * value for band, value in self.functions.items()}
        return Moved(factor * self.max, factor * self.rms, self.lost, wider, pools, each, functions)

    def __or__(self, other: Moved) -> Moved:
        """The larger of two, everywhere."""
        each = self.each or other.each
        if self.each and other.each:
            each = tuple(map(max, self.each, other.each))
        return Moved(
            max(self.max, other.max),
            max(self.rms, other.rms),
            max(self.lost, other.lost),
            _larger(self.bands, other.bands),
            _larger(self.scales, other.scales),
            each,
            _larger(self.functions, other.functions),
        )


def _larger(one: Mapping[Key, float], other: Mapping[Key, float]) -> dict[Key, float]:
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in {*one, *other}}


STILL = Moved(0.0, 0.0)


@dataclass(frozen=True)
class Usual:
    """The reference's own error of one output at the task's own call, relative to the output's rms."""

    max: float = 0.0
    rms: float = 0.0
    lost: float = 0.0
    """The part of the elements of which it was off by a tenth of what counts as lost."""


NOT_KNOWN = Usual()


@dataclass(frozen=True)
class LeafError:
    """One output's errors as multiples of what is allowed, and what else is wrong with it."""

    max_ratio: float
    rms_ratio: float
    relative: float
    reference_relative: float
    kernelbench: bool
    problem: str = ""
    reference_max: float = 0.0
    """The reference's largest distance from the exact result."""
    reference_kernelbench: bool = True
    """Whether the reference is as close to the exact result as KernelBench asks a candidate to be to it."""
    reference_peak: float = 0.0
    """:attr:`reference_max` relative to the output's rms."""
    lost: float = 0.0
    """The part of the elements that have lost their own value, however small they are."""
    lost_ratio: float = 0.0
    """:attr:`lost` as a multiple of what is allowed."""
    reference_lost: float = 0.0
    """The part of the elements of which the reference is off by a tenth of what counts as lost."""
    crossed: Crossed = NONE
    """Of integers: how many are the next one."""
    band: Band = NOWHERE
    """Of all magnitudes the one where elements are furthest from what is allowed."""
    suspected: bool = False
    """Whether in some magnitude only the reference's error allows the candidate's."""
    of_noise: bool = False
    """Whether the reference has no digit of the answer right."""

    @property
    def of_all(self) -> tuple[float, float, float]:
        """Over all elements, whatever their magnitude: as multiples of what is allowed."""
        return self.max_ratio, self.rms_ratio, self.lost_ratio

    @property
    def passed(self) -> bool:
        return not self.problem and max(*self.of_all, self.band.ratio) <= 1.0


@dataclass
class Worst:
    """The worst errors seen so far, over all cases and outputs."""

    checks: int = 0
    max_ratio: float = 0.0
    rms_ratio: float = 0.0
    relative: float = 0.0
    reference_relative: float = 0.0
    kernelbench: bool = True
    reference_kernelbench: bool = True
    reference_max: float = 0.0

    def take(self, error: LeafError, *, own: bool = True) -> None:
        """``own``: the inputs are the task's own, which are the only ones that KernelBench looks at."""
        self.max_ratio = max(self.max_ratio, error.max_ratio)
        self.rms_ratio = max(self.rms_ratio, error.rms_ratio)
        if error.relative > self.relative:
            self.relative, self.reference_relative = error.relative, error.reference_relative
        if own:
            self.kernelbench &= error.kernelbench
            self.reference_kernelbench &= error.reference_kernelbench
            self.reference_max = max(self.reference_max, error.reference_max)


def floor_for(dtype: torch.dtype, precision: Precision) -> Floor:
    roundoff = ROUNDOFF.get(dtype.to_real() if dtype.is_complex else dtype, 2.0**-24)
    if precision is Precision.TF32 and dtype is torch.float32:
        return Floor(TF32_ROUNDOFF, 8.0, 1.0)
    if roundoff <= ROUNDOFF[torch.float32]:
        return Floor(roundoff, 256.0, 32.0)
    if dtype in EIGHT_BITS:
        step = 2.0 * roundoff * torch.finfo(dtype).smallest_normal
        return Floor(roundoff, 0.5, 0.5, ONE_STEP, ONE_STEP, step)
    return Floor(roundoff, 8.0, 1.0)


def lost_at(dtype: torch.dtype, precision: Precision) -> float:
    """Off by more than this part of itself, an element has lost its value."""
    floor = floor_for(dtype, precision)
    return max(LOST, floor.lost_factor * floor.roundoff)


def _rms_factor(count: int) -> float:
    """Times the reference's rms error that so many elements may have."""
    by_chance = FEW_FACTOR * math.exp(min(FEW_SPREADS / math.sqrt(count), 2.0))
    return min(max(2.0, by_chance), FEW_MOST)


def compare(
    candidate: torch.Tensor,
    reference: torch.Tensor,
    golden: torch.Tensor,
    precision: Precision,
    moved: Moved = STILL,
    usual: Usual = NOT_KNOWN,
    *,
    banded: bool = False,
    by_itself: bool = False,
    crossed: Sequence[torch.Tensor] = (),
    computed_in: torch.dtype | None = None,
    part: Part | None = None,
) -> LeafError:
    """Judge one output; all three have the same shape, and live where the oracle lives.

    ``banded``: by magnitudes and scales as well. ``by_itself``: so too, where the exact run is the
    reference's own, whose error there is not known. ``crossed``: of integers, exact runs that are some
    roundings off. ``computed_in``: the type of the tensor that a plain number was read from, whose digits it
    has. ``part``: where the elements stand, if they are some of an output.
    """
    if integers.are_integers(reference):
        problem, equal, beside = integers.compare(candidate, reference, golden, crossed)
        wrong = float(bool(problem))
        return LeafError(wrong, wrong, 0.0, 0.0, equal, problem, crossed=beside)
    kind = computed_in or reference.dtype
    floor = floor_for(kind, precision)
    three = [as_reals(t) for t in (candidate, reference, golden)]
    if part is not None and reference.is_complex():
        part = part.in_pairs()
    sizes = sums.sampled_sizes(three[2])
    quartile = sums.upper_quartile(sizes)
    norms = sums.norms(three, quartile)
    rms = math.sqrt(norms.golden_sq / norms.count) if norms.count else 0.0
    count = max(norms.count, 1)
    ref = math.sqrt(norms.ref_sq / count)
    wider = OF_NOISE if ref > rms else 1.0
    known = max(4.0 * wider * norms.ref_max, 4.0 * usual.max * rms)
    base = max(known, floor.max_factor * floor.roundoff * rms, CONDITIONING * moved.max, floor.step, 1e-300)
    exact = reference.dtype not in EIGHT_BITS and three[1].dtype in (torch.float32, torch.float64)
    tolerance = 1e-4 if exact else 1e-2
    least = max(floor.max_factor * floor.roundoff * quartile, 4.0 * usual.max * rms, floor.step)
    own = lost_at(kind, precision)
    errors = sums.errors(three, sums.Allowed(base, floor.own_factor * floor.roundoff, tolerance, own, least))

    cand = math.sqrt(errors.cand_sq / count)
    known = max(_rms_factor(count) * wider * ref, 2.0 * usual.rms * rms)
    allowed = max(known, floor.rms_factor * floor.roundoff * rms, CONDITIONING * moved.rms, 1e-300)
    off = errors.off
    if slices.spread(sizes, quartile) and not norms.nonfinite:
        off = max(off, slices.lost(three, quartile, own, moved.times(CONDITIONING).functions))
    band, suspected = NOWHERE, False
    if (banded or by_itself) and not norms.nonfinite:
        band, suspected = _by_size(three, floor, moved, 4.0 * usual.max * rms, part)
    if by_itself:
        band, suspected = replace(band, ratio=band.ratio / BY_ITSELF), False
    lost = norms.nonfinite
    problem = f"{lost} elements are NaN or Inf where they must not be" if lost else ""
    scale = rms or 1.0
    loss = max(FEW_LOST, SHARE_LOST * count) + 2.0 * (
        errors.reference_off + (moved.lost + usual.lost) * count
    )
    return LeafError(
        errors.max_ratio,
        cand / allowed,
        cand / scale,
        ref / scale,
        errors.close and not problem,
        problem,
        norms.ref_max,
        errors.reference_close,
        norms.ref_max / scale,
        off / count,
        off / loss,
        errors.reference_off / count,
        band=band,
        suspected=suspected,
        of_noise=ref > rms,
    )


def by_conditioning(
    three: sums.Three, moves: torch.Tensor, precision: Precision, functions: Mapping[int, float]
) -> Band:
    """The worst of elements that move alike; ``moves``: how far each element of the exact result does.

    ``functions``: for each band of magnitude, how far composed functions are off.
    """
    floor = floor_for(three[1].dtype, precision)
    drawn = bands.sample([*(as_reals(t) for t in three), moves])
    composed = CONDITIONING * max(functions.values(), default=0.0)
    limits = (bands.FINE, bands.COARSE, bands.EIGHT)[_kind(floor)]
    return amplified.worst(drawn, floor.roundoff, limits, max(floor.step, composed))


def _kind(floor: Floor) -> int:
    """Fine, coarse, or of 8 bits."""
    return 0 if floor.roundoff <= ROUNDOFF[torch.float32] else 2 if floor.step else 1


def _by_size(
    three: sums.Three, floor: Floor, moved: Moved, absolute: float, part: Part | None
) -> tuple[Band, bool]:
    """The worst of elements of one magnitude and slices of one scale; of few elements, of each alone. And
    whether conditioning is to be asked of."""
    if 1 < (three[2].numel() if part is None else part.shape.numel()) <= bands.FEW:
        each = (bands.FINE_EACH, bands.COARSE_EACH, bands.EIGHT_EACH)[_kind(floor)]
        return bands.of_few(three, floor.roundoff, moved.each, each, floor.step), False
    return _of_many(three, floor, moved, absolute, part)


def of_buffer(three: sums.Three, floor: Floor) -> Band:
    """The same where it is not known how numbers are conditioned: of few, none is looked at alone."""
    return _of_many(three, floor, STILL, 0.0, None)[0]


def _of_many(
    three: sums.Three, floor: Floor, moved: Moved, absolute: float, part: Part | None
) -> tuple[Band, bool]:
    size, widened, drawn = _kind(floor), moved.times(CONDITIONING), bands.sample(three)
    limits = (bands.FINE, bands.COARSE, bands.EIGHT)[size]
    each = (bands.FINE_EACH, bands.COARSE_EACH, bands.EIGHT_EACH)[size]
    found = bands.worst(drawn, floor.roundoff, widened.bands, max(absolute, floor.step), limits)
    moves = _larger(widened.bands, widened.functions)
    apart = populations.worst(drawn, floor.roundoff, moves, each, max(absolute, floor.step))
    pools = (scales.FINE, scales.COARSE, scales.EIGHT)[size]
    other = scales.worst(three, floor.roundoff, widened.scales, absolute, pools, floor.step, part)
    suspected = amplified.suspected(drawn, floor.roundoff, limits, max(absolute, floor.step))
    return max(found, apart, other, key=lambda band: band.ratio), suspected
