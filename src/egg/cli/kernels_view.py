"""The kernels of a profile as tables: their times and limiters, resources, utilization."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from egg.analysis.occupancy import residency, waves
from egg.cli.render import clean
from egg.cli.tables import size, table
from egg.core.bottleneck import Bottleneck, Diagnosed
from egg.core.profile import Counter, KernelProfile, Profile
from egg.hardware.gpus import Gpu
from egg.report.quantities import factor, milliseconds, percent
from egg.report.roofline import letters
from egg.report.roofline_text import short

MOST_KERNELS = 16
USES = {
    "DRAM": Counter.DRAM_SHARE,
    "L2": Counter.L2_SHARE,
    "L2 hits": Counter.L2_HIT_RATE,
    "tensor": Counter.TENSOR_SHARE,
    "FMA": Counter.FMA_SHARE,
    "special": Counter.SPECIAL_SHARE,
    "issue": Counter.ISSUE_SHARE,
    "warps": Counter.OCCUPANCY,
}
"""Counters that are shares of what the hardware can sustain, as the table's columns."""


def kernels_view(profile: Profile, diagnosis: Diagnosed, gpu: Gpu) -> Iterator[RenderableType]:
    """Longest first, with the letters of the roofline."""
    shown = profile.kernels[:MOST_KERNELS]
    yield _times(profile, diagnosis.kernels)
    if any(kernel.resources is not None or kernel.counters for kernel in shown):
        yield ""
        yield _resources(shown, gpu)
    if any(kernel.counters for kernel in shown):
        yield ""
        yield _uses(shown)


def _times(profile: Profile, found: Sequence[Bottleneck]) -> RenderableType:
    measured = any(kernel.milliseconds is not None for kernel in profile.kernels)
    time = "time" if measured else "time,\npredicted"
    columns = ("", "kernel", time, "share", "launches", "limiter", "without\nit", "over its\nfloor")
    rows = table(*columns, numbers=(2, 3, 4, 6, 7))
    kernels = list(zip(profile.kernels, found, strict=True))
    for letter, (kernel, limits) in zip(letters(MOST_KERNELS), kernels, strict=False):
        known = limits.known
        rows.add_row(
            letter,
            clean(short(kernel.name)) + ("" if kernel.own else " (library)"),
            _time(kernel, measured),
            percent(limits.share) if kernel.best_milliseconds else "-",
            str(kernel.launches),
            limits.limiter.value if known else "-",
            factor(limits.gain) if known else "-",
            factor(limits.headroom) if limits.headroom is not None else "-",
        )
    rest = kernels[MOST_KERNELS:]
    if rest:
        share = percent(sum(limits.share for _, limits in rest))
        launches = str(sum(kernel.launches for kernel, _ in rest))
        rows.add_row("", f"... and {len(rest)} more", "", share, launches, "", "", "")
    return rows


def _time(kernel: KernelProfile, measured: bool) -> str:
    """A prediction among measurements is labelled in its place, else the column says it."""
    if kernel.milliseconds is not None:
        return milliseconds(kernel.milliseconds)
    if kernel.predicted_milliseconds is None:
        return "not known"
    return milliseconds(kernel.predicted_milliseconds) + (" predicted" if measured else "")


def _resources(kernels: Sequence[KernelProfile], gpu: Gpu) -> RenderableType:
    """What each kernel takes of an SM, and how its grid fills the GPU."""
    columns = ("", "grid", "warps", "registers", "spills", "shared", "occupancy", "limited by", "waves")
    rows = table(*columns, numbers=(2, 3, 4, 5, 6, 8))
    for letter, kernel in zip(letters(len(kernels)), kernels, strict=True):
        if kernel.resources is not None or kernel.counters:
            rows.add_row(letter, *_resource_cells(kernel, gpu))
    return rows


def _resource_cells(kernel: KernelProfile, gpu: Gpu) -> tuple[str, ...]:
    """From the compiler, or where it was not ours, from the counters."""
    resources, counters = kernel.resources, kernel.counters
    filled = counters.get(Counter.WAVES)
    if resources is None:
        threads = counters.get(Counter.THREADS)
        most = counters.get(Counter.OCCUPANCY_LIMIT)
        shared = counters.get(Counter.SHARED_BYTES)
        return (
            _number(counters.get(Counter.GRID)),
            _number(threads / gpu.warp_size if threads else None),
            _number(counters.get(Counter.REGISTERS)),
            "-",
            size(shared) if shared is not None else "-",
            f"max {percent(most)}" if most is not None else "-",
            "-",
            f"{filled:.3g}" if filled is not None else "-",
        )
    held = residency(resources, gpu)
    return (
        _grid(resources.grid),
        str(resources.num_warps),
        str(resources.registers),
        f"{resources.spill_bytes} B" if resources.spill_bytes else "none",
        size(resources.shared_bytes),
        f"max {percent(held.occupancy)}",
        held.limit if held.occupancy < 1.0 else "-",
        f"{filled if filled is not None else waves(resources, gpu):.3g}",
    )


def _uses(kernels: Sequence[KernelProfile]) -> RenderableType:
    """Shares of what the hardware sustains, as counted in the longest launch of each."""
    rows = table("in use", *USES, numbers=range(1, len(USES) + 1))
    for letter, kernel in zip(letters(len(kernels)), kernels, strict=True):
        if kernel.counters:
            values = [kernel.counters.get(counter) for counter in USES.values()]
            rows.add_row(letter, *(percent(value) if value is not None else "-" for value in values))
    return rows


def _grid(grid: Sequence[int]) -> str:
    """Without the dimensions that are not used."""
    used = [size for index, size in enumerate(grid) if any(later != 1 for later in grid[index:])]
    return "x".join(map(str, used)) or "1"


def _number(value: float | None) -> str:
    return f"{value:.0f}" if value is not None and math.isfinite(value) else "-"
