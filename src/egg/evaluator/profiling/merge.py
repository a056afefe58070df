"""From what the profiled process and Nsight Compute say to a profile.

A timeline knows kernels by their full names, Nsight Compute by names of its own making, the
compiler by the name of the function. What they share is the bare name of the function and the
order of the launches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from egg.analysis.predict import FITTED, Constants, predict
from egg.analysis.program import predicted_milliseconds
from egg.core import evaluation
from egg.core.profile import Counter, KernelProfile, Profile, Rung
from egg.core.resources import KernelResources
from egg.evaluator.profiling import reply
from egg.evaluator.profiling.counters import Counted, Unreached, Wanted, function_of
from egg.evaluator.profiling.metrics import counters_from
from egg.hardware.gpus import Gpu

HOT_SHARE = 0.9
"""Of the kernels' time that the counted ones make up."""
MOST_KERNELS = 8
MOST_LAUNCHES = 48
"""Each is replayed some twenty times."""
NEARLY = 0.9
"""A launch this close to the longest of its kernel stands for it."""


def by_times(
    program: str, name: str, gpu: Gpu | None, seen: reply.Times, constants: Constants = FITTED
) -> Profile:
    """A profile by kernel times, the compiler's word added to the program's own kernels."""
    kernels = tuple(_timed(kernel, seen.resources, gpu, constants) for kernel in seen.kernels)
    # A watched call pays for being watched at each launch; the unwatched one for its clock's own events.
    span = min(seen.span_microseconds, seen.call_microseconds or seen.span_microseconds)
    warnings = list(seen.warnings)
    if seen.streams > 1:
        warnings.append(f"kernels ran on {seen.streams} streams: their times may overlap")
    return Profile(
        program=program,
        rung=Rung.TIMES,
        gpu=name,
        kernels=kernels,
        milliseconds=span / 1e3,
        predicted_milliseconds=_total(k.predicted_milliseconds for k in kernels),
        launches=sum(k.launches for k in kernels),
        warnings=tuple(warnings),
    )


def by_resources(
    program: str,
    name: str,
    gpu: Gpu | None,
    compiled: reply.Compiled,
    floor: float | None,
    constants: Constants = FITTED,
) -> Profile:
    """A profile by the compiler's word alone; what libraries are called for is named and no more."""
    groups: dict[str, list[KernelResources]] = {}
    for row in compiled.resources:
        groups.setdefault(row.name, []).append(row)
    own = [
        KernelProfile(
            kernel,
            True,
            sum(r.launches for r in rows),
            None,
            _predicted(rows, gpu, constants),
            _largest(rows),
        )
        for kernel, rows in groups.items()
    ]
    library = [KernelProfile(op, False, count, None, None) for op, count in compiled.outside.items()]
    own.sort(key=lambda k: -k.best_milliseconds)
    return Profile(
        program=program,
        rung=Rung.RESOURCES,
        gpu=name,
        kernels=(*own, *library),
        milliseconds=None,
        predicted_milliseconds=whole(name, gpu, compiled, floor, constants),
        launches=sum(k.launches for k in (*own, *library)),
    )


def whole(
    name: str,
    gpu: Gpu | None,
    compiled: reply.Compiled,
    floor: float | None,
    constants: Constants = FITTED,
) -> float | None:
    """The whole program, predicted; what libraries do is only known by the floor of the task's own work."""
    if gpu is None:
        return None
    known = all(row.work is not None for row in compiled.resources)
    if floor is None and (compiled.outside or not compiled.resources or not known):
        return None
    seen = evaluation.Compiled(name, compiled.resources, floor, "full")
    return predicted_milliseconds(seen, gpu, sum(compiled.outside.values()), constants)


def hottest(seen: reply.Times) -> Wanted:
    """The kernels that take most of the time, and how many launches must be watched to meet each of them.

    Of every kernel the longest launch is wanted, or one that is nearly as long and comes earlier.
    """
    chosen = _hot(seen)
    functions = tuple(dict.fromkeys(function_of(seen.kernels[k].name) for k in chosen))
    missing = {
        k: NEARLY * max((s.microseconds for s in seen.sequence if s.kernel == k), default=0) for k in chosen
    }
    needed = 0
    for position, launch in enumerate(_watched(seen, functions), start=1):
        if launch.kernel in missing and launch.microseconds >= missing[launch.kernel]:
            del missing[launch.kernel]
            needed = position
    return Wanted(functions, min(max(needed, 1), MOST_LAUNCHES))


def with_counters(
    profile: Profile, seen: reply.Times, rows: Sequence[Counted], wanted: Wanted, unknown: Sequence[str]
) -> Profile:
    """``profile`` with each counted kernel's longest counted launch."""
    longest: dict[int, Counted] = {}
    order = _watched(seen, wanted.functions)
    for position, row in enumerate(rows):
        kernel = _whose(row, order[position].kernel if position < len(order) else None, seen)
        if kernel is not None and (kernel not in longest or _duration(row) > _duration(longest[kernel])):
            longest[kernel] = row
    counted = {seen.kernels[k].name: counters_from(row.metrics) for k, row in longest.items()}
    if not any(counted.values()):
        raise Unreached("Nsight Compute counted nothing of the kernels that were timed")
    warnings = list(profile.warnings)
    if unknown:
        warnings.append(f"not known to this Nsight Compute on this GPU: {', '.join(unknown)}")
    for kernel in _hot(seen):
        if seen.kernels[kernel].name not in counted:
            warnings.append(
                f"no counters for {function_of(seen.kernels[kernel].name)}: it was not met in time"
            )
    kernels = tuple(replace(k, counters=counted.get(k.name, {})) for k in profile.kernels)
    return replace(profile, rung=Rung.COUNTERS, kernels=kernels, warnings=tuple(warnings))


def _timed(
    kernel: reply.TimedKernel, resources: Sequence[KernelResources], gpu: Gpu | None, constants: Constants
) -> KernelProfile:
    """One row of the timeline, with the resources of its longest launch where it is the program's own."""
    rows = [r for r in resources if r.name == kernel.name] if kernel.own else []
    same_grid = [r for r in rows if _dimensions(r.grid) == _dimensions(kernel.grid)]
    predicted = _predicted(rows, gpu, constants)
    recorded = sum(r.launches for r in rows)
    if predicted is not None and recorded:
        predicted *= kernel.launches / recorded
    return KernelProfile(
        name=kernel.name,
        own=kernel.own,
        launches=kernel.launches,
        milliseconds=kernel.microseconds / 1e3,
        predicted_milliseconds=predicted,
        resources=_largest(same_grid or rows),
    )


def _largest(rows: Sequence[KernelResources]) -> KernelResources | None:
    return max(rows, key=lambda row: prod(row.grid), default=None)


def _predicted(rows: Iterable[KernelResources], gpu: Gpu | None, constants: Constants) -> float | None:
    """All launches of a kernel; ``None`` where the work of one of them is not known."""
    if gpu is None:
        return None
    each = [(row.launches, predict(row, gpu, constants)) for row in rows]
    if not each:
        return None
    return _total(p.milliseconds * launches if p is not None else None for launches, p in each)


def _total(parts: Iterable[float | None]) -> float | None:
    known = list(parts)
    return None if not known or None in known else sum(part for part in known if part is not None)


def _hot(seen: reply.Times) -> list[int]:
    """Kernels by number, hottest first, until they make up most of the time; no copies and fills."""
    kernels = [k for k, row in enumerate(seen.kernels) if row.block]
    enough = HOT_SHARE * sum(seen.kernels[k].microseconds for k in kernels)
    chosen: list[int] = []
    for kernel in sorted(kernels, key=lambda k: -seen.kernels[k].microseconds)[:MOST_KERNELS]:
        if chosen and sum(seen.kernels[k].microseconds for k in chosen) >= enough:
            break
        chosen.append(kernel)
    return chosen


def _watched(seen: reply.Times, functions: Sequence[str]) -> list[reply.Launched]:
    """The launches that a filter by function lets through, in their order."""
    passes = {k for k, row in enumerate(seen.kernels) if row.block and function_of(row.name) in functions}
    return [launch for launch in seen.sequence if launch.kernel in passes]


def _whose(row: Counted, expected: int | None, seen: reply.Times) -> int | None:
    """Which timed kernel a counted launch belongs to: the one whose turn it was, if the function agrees."""
    function = function_of(row.kernel)
    fitting = [
        k for k, timed in enumerate(seen.kernels) if timed.block and function_of(timed.name) == function
    ]
    if expected in fitting:
        return expected
    same_grid = [k for k in fitting if _dimensions(seen.kernels[k].grid) == _dimensions(row.grid)]
    return (same_grid or fitting or [None])[0]


def _dimensions(grid: Sequence[int]) -> tuple[int, ...]:
    """Three sizes, those left out being 1."""
    return (*grid, 1, 1, 1)[:3]


def _duration(row: Counted) -> float:
    return counters_from(row.metrics).get(Counter.NANOSECONDS.value, 0.0)
