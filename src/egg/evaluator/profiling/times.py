"""Reading the timeline that PyTorch's profiler exports: which kernel ran when, for how long, on what grid.

The profiled program was called several times, with a buffer larger than L2 overwritten before each
call. That flush is the first thing on the timeline, so it is known by what comes first, and the
timeline is cut wherever it comes again. Things are put in the order of their launches, not of their
starts: on a second stream a kernel may start while the flush still runs.

The trace was written by the process of the candidate: everything in it may be forged, and whatever
is not a timeline is :class:`Garbled`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

KINDS = ("kernel", "gpu_memcpy", "gpu_memset")
"""The profiler's categories of things that occupy the GPU."""
MOST_ACTIVITIES = 2_000_000
LONGEST_NAME = 2_000


class Garbled(ValueError):
    """What should have been a profiler's output is something else."""


@dataclass(frozen=True)
class Activity:
    """One kernel, copy or fill on the GPU; times in microseconds."""

    name: str
    kernel: bool
    start: float
    microseconds: float
    order: tuple[float, float]
    """Of its launch."""
    stream: int = 0
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    registers: int = 0
    shared_bytes: int = 0

    @property
    def end(self) -> float:
        return self.start + self.microseconds

    @property
    def form(self) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
        """What tells it from other kernels: two launches of one form do the same kind of work."""
        return self.name, self.grid, self.block


@dataclass(frozen=True)
class Call:
    """One call of the program: what it put on the GPU in the order of the launches, and its whole span."""

    activities: tuple[Activity, ...]
    microseconds: float
    """From the first start to the last end, over all streams."""


def activities(trace: Any) -> list[Activity]:
    """Everything that occupied the GPU, in the order of the launches."""
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list) or len(events) > MOST_ACTIVITIES:
        raise Garbled("no list of trace events")
    found = [_activity(e) for e in events if isinstance(e, dict) and e.get("cat") in KINDS]
    return sorted(found, key=lambda activity: activity.order)


def typical_call(timeline: Sequence[Activity], calls: int) -> Call:
    """One call out of ``calls``, each of which began with the flush.

    Where all calls launched the same things, every duration is the median over the calls;
    where they did not, the call of median length stands for them all.
    """
    if not timeline:
        raise Garbled("nothing ran on the GPU, not even what came before the call")
    flush = timeline[0].form
    cut: list[list[Activity]] = []
    for activity in timeline:
        if activity.form == flush:
            cut.append([])
        else:
            cut[-1].append(activity)
    if len(cut) != calls:
        raise Garbled(f"{calls} calls were made, and the timeline shows {len(cut)}")
    spans = [_span(call) for call in cut]
    if len({tuple(a.form for a in call) for call in cut}) == 1:
        together = zip(*cut, strict=True)
        steady = [replace(same[0], microseconds=median(a.microseconds for a in same)) for same in together]
        return Call(tuple(steady), median(spans))
    middle = sorted(range(calls), key=lambda call: spans[call])[(calls - 1) // 2]
    return Call(tuple(cut[middle]), spans[middle])


def _span(call: Iterable[Activity]) -> float:
    call = list(call)
    return max(a.end for a in call) - min(a.start for a in call) if call else 0.0


def _activity(event: dict[str, Any]) -> Activity:
    name, arguments = event.get("name"), event.get("args")
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        raise Garbled("a kernel without a name, or without particulars")
    start = _number(event, "ts")
    return Activity(
        name=name[:LONGEST_NAME],
        kernel=event["cat"] == "kernel",
        start=start,
        microseconds=_number(event, "dur"),
        order=(_number(arguments, "correlation", start), start),
        stream=int(_number(arguments, "stream", 0)),
        grid=_dimensions(arguments, "grid"),
        block=_dimensions(arguments, "block"),
        registers=int(_number(arguments, "registers per thread", 0)),
        shared_bytes=int(_number(arguments, "shared memory", 0)),
    )


def _number(values: dict[str, Any], key: str, default: float | None = None) -> float:
    value = values.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise Garbled(f"{key!r} is {value!r:.60}, not a count or a time")
    return value


def _dimensions(values: dict[str, Any], key: str) -> tuple[int, ...]:
    given = values.get(key, [])
    if not isinstance(given, list) or len(given) > 3:
        raise Garbled(f"{key!r} is {given!r:.60}, not up to three sizes")
    return tuple(int(_number({key: size}, key)) for size in given)
