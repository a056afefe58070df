"""Times of own kernels and of library operators one by one, by events around each."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.runtime.jit import JITFunction

from egg.evaluator.worker.launches import JitLaunches
from egg.evaluator.worker.spans import ROUNDS, spans


class Clock:
    """A device whose time goes on only when something runs on it."""

    def __init__(self) -> None:
        self.now = 0.0

    def event(self) -> Event:
        return Event(self)


class Event:
    def __init__(self, clock: Clock) -> None:
        self._clock, self.at = clock, -1.0

    def record(self) -> None:
        self.at = self._clock.now

    def elapsed_time(self, end: Event) -> float:
        return end.at - self.at


class Graph:
    """What ``torch.cuda.CUDAGraph`` has, and does nothing."""

    def capture_begin(self) -> None: ...
    def capture_end(self) -> None: ...
    def replay(self) -> None: ...


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def launch(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], Any]:
    """Launch a kernel by its name that takes so many milliseconds."""

    def run(kernel: Any, *args: Any, **kwargs: Any) -> None:
        clock.now += kernel.milliseconds

    monkeypatch.setattr(JITFunction, "run", run)

    def launched(name: str, milliseconds: float) -> None:
        fn = SimpleNamespace(__name__=name)
        JITFunction.run(SimpleNamespace(fn=fn, milliseconds=milliseconds))  # type: ignore[arg-type]

    return launched


def test_own_kernels_and_operators_are_timed_apart_and_nothing_in_a_capture(clock, launch):
    launches, x, graph = JitLaunches(Graph), torch.rand(8, 8), Graph()
    occupied: list[float] = []

    def call() -> None:
        launch("scale", 2.0)
        x.view(64)
        torch.empty(3)
        torch.topk(x, 2)
        launch("scale", 1.0)
        graph.capture_begin()
        launch("recorded", 9.0)
        torch.mm(x, x)
        graph.capture_end()

    found = spans(call, launches, lambda: None, clock.event, lambda: occupied.append(clock.now))
    assert found == {"scale": 3000.0, "aten.topk": 0.0}
    assert len(occupied) == ROUNDS
    launch("scale", 1.0)
    assert clock.now == (ROUNDS + 1) * 12.0 + 1.0, "and launches are no longer marked"
