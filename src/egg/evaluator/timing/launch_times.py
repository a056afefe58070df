"""What every launch of Inductor's code takes on the GPU, by events around each of them.

The names that the generated host code calls (its kernels, ``extern_kernels``, ``aten``, ``torch.ops``) are
replaced in its module for the calls that are timed. A kernel that only waits occupies the GPU meanwhile:
everything is queued behind it, so that the time between two events is the GPU's and not the host's.
PyTorch's profiler would do the same, but leaves its hooks in the process, which times the baselines later.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from egg.core.recording import LaunchTime
from egg.evaluator.timing.recorded import AUTOTUNER

CALLS = 5
WAIT_CYCLES = 40_000_000
"""Some twenty milliseconds: longer than the host takes for the launches of one call."""
NAMESPACES = ("extern_kernels", "aten", "inductor_ops", "_quantized")
"""Names of the generated module that hold library calls."""


class Marks:
    """Pairs of events, in the order of the calls that they enclose."""

    def __init__(self, event: Callable[[], Any]) -> None:
        self._event = event
        self._inside = False
        self.pairs: list[tuple[str, Any, Any]] = []

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def marked(*arguments: Any, **options: Any) -> Any:
            if self._inside:
                return call(*arguments, **options)
            begin, end = self._event(), self._event()
            self._inside = True
            begin.record()
            try:
                return call(*arguments, **options)
            finally:
                end.record()
                self._inside = False
                self.pairs.append((name, begin, end))

        return marked

    def times(self) -> list[LaunchTime]:
        return [LaunchTime(name, begin.elapsed_time(end)) for name, begin, end in self.pairs]


class Namespace:
    """A namespace of operators whose calls are marked by how they are spelled."""

    def __init__(self, spelled: str, holds: Any, marks: Marks) -> None:
        self._spelled, self._holds, self._marks = spelled, holds, marks

    def __getattr__(self, name: str) -> Namespace:
        return Namespace(f"{self._spelled}.{name}", getattr(self._holds, name), self._marks)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._marks.around(self._spelled, self._holds)(*arguments, **options)


class Torch:
    """The package as it is, but for its operators."""

    def __init__(self, marks: Marks) -> None:
        self.ops = Namespace("torch.ops", torch.ops, marks)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def replacements(module: ModuleType, marks: Marks) -> dict[str, Any]:
    """What stands for the names of a generated module while its calls are marked."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if type(value).__name__.endswith(AUTOTUNER):
            found[name] = SimpleNamespace(run=marks.around(name, value.run))
        elif name in NAMESPACES:
            found[name] = Namespace(name, value, marks)
        elif value is torch:
            found[name] = Torch(marks)
    return found


def launch_times(module: ModuleType, call: Callable[[], Any], device: torch.device) -> tuple[LaunchTime, ...]:
    """The launches of one call in order, each with the median of its times over a few calls.

    Nothing where the calls do not launch the same things.
    """
    rounds: list[list[LaunchTime]] = []
    for _ in range(CALLS):
        marks = Marks(lambda: torch.cuda.Event(enable_timing=True))
        kept = dict(vars(module))
        try:
            vars(module).update(replacements(module, marks))
            torch.cuda._sleep(WAIT_CYCLES)
            call()
            torch.cuda.synchronize(device)
        finally:
            vars(module).update(kept)
        rounds.append(marks.times())
    return typical(rounds)


def typical(rounds: list[list[LaunchTime]]) -> tuple[LaunchTime, ...]:
    """The median of every launch; nothing where the rounds differ in what was launched."""
    if len({tuple(launch.name for launch in one) for one in rounds}) != 1:
        return ()
    together = zip(*rounds, strict=True)
    return tuple(LaunchTime(same[0].name, median(one.milliseconds for one in same)) for same in together)
