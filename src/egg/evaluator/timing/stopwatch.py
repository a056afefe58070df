"""Timing and profiling on the device, the same for a candidate and for its reference.

The names used here are bound when the module is imported, which is before any candidate
code is: rebinding ``torch.cuda.Event`` later changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_Event = torch.cuda.Event
_synchronize = torch.cuda.synchronize

FLUSH_BYTES = 256 << 20


def time_calls(
    call: Callable[[int], Any],
    repeats: int,
    device: torch.device,
    *,
    before: Callable[[int], None] = lambda _: None,
    keep: int = -1,
    copied: Callable[[Any], Any] = lambda result: result,
) -> tuple[list[float], Any]:
    """Milliseconds of each of ``repeats`` calls with a cold L2, and a copy of the result of call ``keep``.

    Before each call ``before`` runs and a buffer larger than any L2 is overwritten; the calls
    are queued without waiting, so that the host runs ahead and launch overhead shows only
    where it would show to a user. The copy is made right behind its call, on the same stream:
    what is not there by then came too late.
    """
    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
    starts = [_Event(enable_timing=True) for _ in range(repeats)]
    ends = [_Event(enable_timing=True) for _ in range(repeats)]
    kept = None
    _synchronize(device)
    for index in range(repeats):
        before(index)
        flush.zero_()
        starts[index].record()
        result = call(index)
        ends[index].record()
        if index == keep:
            kept = copied(result)
        del result
    _synchronize(device)
    return [start.elapsed_time(end) for start, end in zip(starts, ends, strict=True)], kept


def profile_call(call: Callable[[], Any], device: torch.device) -> tuple[dict[str, float], list[int]]:
    """Device microseconds by kernel name, and the streams that were used, over one warm call.

    ``torch.profiler`` imports Inductor to write its settings into a trace: seconds, for nothing here.
    """
    from torch.autograd.profiler import profile

    call()
    _synchronize(device)
    profiler = profile(use_cpu=False, use_device="cuda", use_kineto=True, acc_events=True)
    with profiler:
        call()
        _synchronize(device)
    microseconds: dict[str, float] = {}
    streams: set[int] = set()
    for event in profiler.function_events or ():
        if event.device_type.name == "CUDA" and not event.name.startswith("ProfilerStep"):
            microseconds[event.name] = microseconds.get(event.name, 0.0) + event.device_time_total
            streams.add(event.device_resource_id)
    return microseconds, sorted(streams)
