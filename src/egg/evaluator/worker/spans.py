"""What each own kernel and each operator of PyTorch takes on the GPU in one warm call, by events around it.

PyTorch's profiler sees every kernel, but takes seconds to start and leaves its hooks in a process that is
to be timed later. Events leave nothing. A kernel that only waits occupies the GPU meanwhile: the host
queues the whole call behind it, so that the time between two events is the GPU's and not the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

from egg.evaluator.operators.ops import OWN_OPERATORS, SILENT, base_name
from egg.evaluator.static.likeness import answering
from egg.evaluator.tensors.modes import LightMode
from egg.evaluator.timing.launch_times import WAIT_CYCLES, Marks
from egg.evaluator.worker.launches import JitLaunches

ROUNDS = 3
LIBRARY = "aten."
"""Before the name of an operator; a kernel of the file has its own name."""


class MarkedOperators(LightMode):
    """Puts marks around every operator that launches something."""

    def __init__(self, marks: Marks, launches: JitLaunches) -> None:
        super().__init__()
        self._marks, self._launches = marks, launches

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = base_name(func)
        if name in SILENT or func._schema.name in OWN_OPERATORS or self._launches.capturing:
            return func(*args, **(kwargs or {}))
        return self._marks.around(LIBRARY + name, func)(*args, **(kwargs or {}))


def _cuda_event() -> Any:
    return torch.cuda.Event(enable_timing=True)


def _occupy() -> None:
    torch.cuda._sleep(WAIT_CYCLES)


@contextmanager
def unreplayed() -> Iterator[None]:
    """A file that replays its launches makes them one by one where its caller records: pretend that."""
    asked = torch.cuda.is_current_stream_capturing
    torch.cuda.is_current_stream_capturing = answering(asked, lambda: True)
    try:
        yield
    finally:
        torch.cuda.is_current_stream_capturing = asked


def spans(
    call: Callable[[], Any],
    launches: JitLaunches,
    synchronize: Callable[[], None],
    event: Callable[[], Any] = _cuda_event,
    occupy: Callable[[], None] = _occupy,
) -> Mapping[str, float]:
    """Microseconds by name over one call, the median of a few; empty where a call replays a CUDA graph
    although it is asked not to.

    Events cost a microsecond or two, so very short kernels appear that much longer.
    """
    with unreplayed():
        call()
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        marks = Marks(event)
        synchronize()
        occupy()
        with launches.marked(marks), MarkedOperators(marks, launches), unreplayed():
            call()
        synchronize()
        spent: dict[str, float] = {}
        for launch in marks.times():
            spent[launch.name] = spent.get(launch.name, 0.0) + launch.milliseconds * 1e3
        rounds.append(spent)
    names = dict.fromkeys(name for spent in rounds for name in spent)
    return {name: median(spent.get(name, 0.0) for spent in rounds) for name in names}
