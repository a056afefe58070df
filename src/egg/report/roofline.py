"""The roofline of a program on a GPU: roofs, one point a kernel, and where the whole task could stand.

Across: operations per byte of memory traffic. Up: operations per second. The memory roof
rises with the bytes' worth; the flat ones are what the arithmetic units give at most. How far
a point lies below its roof is how much faster the same kernel could be; how far it lies left
of the task's own mark is what fusion would bring.

A kernel's operations are those counted in its IR. Its bytes are the memory counters' where they
were read, else the least that its accesses can cost. Its time is measured, or predicted and
then marked so. Kernels whose operations were not counted (a library's) have no place here and are
named apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_uppercase

from egg.core.facts import GpuFacts, Workload
from egg.core.profile import Counter, KernelProfile, Profile
from egg.core.resources import KernelWork
from egg.hardware.gpus import Gpu

VECTOR = "fp32 FMA"
"""The roof of ordinary arithmetic."""
SPLIT = "fp32-grade"
"""The roof of fp32 results by several products of narrower operands."""
AIR = 0.4
"""Decades around what is drawn..."""
ROOM = 0.8
"""...and on the right, where the names of the roofs stand."""


@dataclass(frozen=True)
class Roof:
    """What the units that take one precision give at most, in operations a second."""

    name: str
    rate: float


@dataclass(frozen=True)
class Point:
    """One kernel. ``intensity`` is operations per byte: 0 for a copy, infinite where nothing is moved."""

    letter: str
    """Its place in the profile, ``A`` for the longest; empty beyond ``Z``."""
    name: str
    share: float
    """Of the program's time, 0 to 1."""
    milliseconds: float
    """Of all its launches."""
    measured: bool
    intensity: float
    rate: float
    """Operations a second."""
    bandwidth: float
    """Bytes a second."""
    of_roof: float
    """How much of what the roofs above it allow it reaches."""


@dataclass(frozen=True)
class Roofline:
    """What there is to draw."""

    gpu: str
    program: str
    bandwidth: float
    roofs: tuple[Roof, ...]
    """Lowest first."""
    points: tuple[Point, ...]
    """Longest first."""
    undrawn: tuple[str, ...] = ()
    """Kernels whose work or time is not known, by letter and name."""
    ideal: float | None = None
    """Operations per byte of the whole task, everything moved once."""
    ideal_rate: float | None = None
    """What the GPU allows there at the precision asked for."""
    whole: bool = False
    """Whether the one point is all kernels together."""

    @property
    def measured(self) -> bool:
        return any(point.measured for point in self.points)

    @property
    def left_of_ideal(self) -> bool:
        """Whether a kernel with counted operations moves more bytes for them than the task needs."""
        ideal = self.ideal if self.ideal_rate is not None else None
        return ideal is not None and any(0 < point.intensity < 0.98 * ideal for point in self.points)

    @property
    def uncounted(self) -> bool:
        """Whether a point has bytes and no operations: it stands on the left edge."""
        return any(not point.intensity for point in self.points)


@dataclass(frozen=True)
class Axes:
    """What is shown, as powers of ten."""

    left: float
    right: float
    bottom: float
    top: float

    def across(self, intensity: float) -> float:
        """0 at the left edge to 1 at the right one; what lies beyond stands on the edge."""
        return _between(intensity, self.left, self.right)

    def up(self, rate: float) -> float:
        return _between(rate, self.bottom, self.top)


def roofline(profile: Profile | None, gpu: Gpu, facts: GpuFacts, workload: Workload | None) -> Roofline:
    """The picture of ``profile`` (of the task alone where there is none) on ``gpu``."""
    kernels = profile.kernels if profile is not None else ()
    works = {id(k): k.resources.work for k in kernels if k.resources is not None}
    roofs = _roofs(gpu, facts, tuple(w for w in works.values() if w is not None), workload)
    total = sum(k.best_milliseconds for k in kernels)
    points, undrawn = [], []
    for letter, kernel in zip(letters(len(kernels)), kernels, strict=True):
        work = works.get(id(kernel))
        if work is None or kernel.best_milliseconds <= 0 or not (work.total_flops or _bytes(kernel, work)):
            undrawn.append(f"{letter} {kernel.name}".strip())
        else:
            points.append(_point(letter, kernel, work, kernel.best_milliseconds / total, gpu, roofs))
    ideal = _ideal(workload)
    return Roofline(
        gpu=gpu.name,
        program=profile.program if profile is not None else "",
        bandwidth=gpu.bandwidth,
        roofs=roofs,
        points=tuple(sorted(points, key=lambda point: -point.share)),
        undrawn=tuple(undrawn),
        ideal=ideal,
        ideal_rate=min(ideal * gpu.bandwidth, facts.peak_flops) if ideal is not None else None,
    )


def letters(count: int) -> list[str]:
    """For so many kernels, longest first."""
    return [*ascii_uppercase[:count], *[""] * (count - len(ascii_uppercase))]


def axes_of(chart: Roofline) -> Axes:
    """All that holds every point, the task's mark and the corners of all roofs, with some air around."""
    corners = [roof.rate / chart.bandwidth for roof in chart.roofs]
    across = _logs([*corners, *(point.intensity for point in chart.points), chart.ideal or 0.0])
    left, right = min(across) - AIR, max(across) + ROOM
    left = min(left, right - 3)
    heights = [roof.rate for roof in chart.roofs]
    heights += [point.rate or point.bandwidth * 10**left for point in chart.points]
    up = _logs([*heights, chart.ideal_rate or 0.0])
    return Axes(left, right, min(min(up) - AIR, max(up) + AIR - 2), max(up) + AIR)


def ticks(low: float, high: float, most: int) -> list[int]:
    """Powers of ten within, at even steps, no more of them than there is room for."""
    first, last = math.ceil(low), math.floor(high)
    step = max(1, -(-(last - first + 1) // max(1, most)))
    return list(range(first, last + 1, step))


def height_of(point: Point, axes: Axes) -> float:
    """Where a point stands, 0 to 1.

    One without arithmetic stands on the left edge, as high as its bandwidth there: as far below
    the memory roof as it is in truth.
    """
    return axes.up(point.rate if point.rate else point.bandwidth * 10**axes.left)


def _point(
    letter: str, kernel: KernelProfile, work: KernelWork, share: float, gpu: Gpu, roofs: tuple[Roof, ...]
) -> Point:
    seconds = _seconds(kernel)
    flops, moved = work.total_flops, _bytes(kernel, work)
    roof = max(r.rate for r in roofs if r.name in {VECTOR, *work.tensor_flops})
    floor = max(moved / gpu.bandwidth, flops / roof)
    return Point(
        letter=letter,
        name=kernel.name,
        share=share,
        milliseconds=kernel.best_milliseconds,
        measured=kernel.milliseconds is not None,
        intensity=flops / moved if moved else math.inf,
        rate=flops / seconds,
        bandwidth=moved / seconds,
        of_roof=floor / seconds,
    )


def _seconds(kernel: KernelProfile) -> float:
    """Of the launch whose work is known: the counted one, or the mean of all."""
    counted = kernel.counters.get(Counter.NANOSECONDS, 0.0)
    if kernel.launches > 1 and counted > 0:
        return counted * 1e-9
    return kernel.best_milliseconds * 1e-3 / max(1, kernel.launches)


def _bytes(kernel: KernelProfile, work: KernelWork) -> float:
    read = kernel.counters.get(Counter.DRAM_READ_BYTES)
    written = kernel.counters.get(Counter.DRAM_WRITTEN_BYTES)
    return work.distinct_bytes if read is None or written is None else read + written


def _roofs(
    gpu: Gpu, facts: GpuFacts, works: tuple[KernelWork, ...], workload: Workload | None
) -> tuple[Roof, ...]:
    """Ordinary arithmetic, every precision that a kernel gives its tensor cores, and, where the task
    multiplies matrices, the fastest way to the precision asked for."""
    used = {name for work in works for name in work.tensor_flops if name in gpu.tensor}
    rates = {VECTOR: _vector(gpu), **{name: gpu.tensor[name] for name in used}}
    if workload is not None and workload.flops and not _holds(rates.values(), facts.peak_flops):
        own = [name for name, rate in gpu.tensor.items() if _holds([rate], facts.peak_flops)]
        rates[own[0] if own else SPLIT] = facts.peak_flops
    return tuple(sorted((Roof(name, rate) for name, rate in rates.items()), key=lambda roof: roof.rate))


def _holds(rates: Iterable[float], wanted: float) -> bool:
    return any(math.isclose(rate, wanted, rel_tol=0.01) for rate in rates)


def _vector(gpu: Gpu) -> float:
    return gpu.vector.get("fp32", gpu.peaks["fp32"])


def _ideal(workload: Workload | None) -> float | None:
    if workload is None or not workload.least_bytes:
        return None
    return sum(op.flops for op in workload.operations) / workload.least_bytes or None


def _logs(values: Iterable[float]) -> list[float]:
    return [math.log10(value) for value in values if 0 < value < math.inf]


def _between(value: float, low: float, high: float) -> float:
    if value <= 0:
        return 0.0
    return 1.0 if math.isinf(value) else min(1.0, max(0.0, (math.log10(value) - low) / (high - low)))
