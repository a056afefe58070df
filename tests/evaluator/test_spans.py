"""Times of own kernels and of library operators one by one, by events around each."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.runtime.jit import JITFunction

from egg.core.evaluation import Accepted, Measured
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from egg.evaluator.worker.launches import JitLaunches
from egg.evaluator.worker.spans import ROUNDS, spans
from tests.corpus.corpus import HERE, read_case


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


def test_a_file_that_replays_its_launches_is_asked_to_make_them(clock, launch):
    def call() -> None:
        if torch.cuda.is_current_stream_capturing():
            launch("scale", 2.0)

    asked = torch.cuda.is_current_stream_capturing
    found = spans(call, JitLaunches(Graph), lambda: None, clock.event, lambda: None)
    assert found == {"scale": 2000.0}
    assert torch.cuda.is_current_stream_capturing is asked


@pytest.mark.gpu
def test_a_judged_file_has_a_time_for_its_kernel_and_for_the_library_on_a_gpu() -> None:
    case = read_case(HERE / "honest" / "library_gemm.py")
    oracle = Oracle("cuda:0")
    try:
        question = Question(Task.from_file(case.task_path), Candidate.from_file(case.path), case.policy)
        verdict = oracle.judge(question).verdict
    finally:
        oracle.close()
    assert isinstance(verdict, Accepted)
    assert isinstance(verdict.performance, Measured)
    times = verdict.provenance.milliseconds
    assert times.keys() == {"aten.mm", "bias_gelu"}
    assert all(spent > 0 for spent in times.values())
    whole = verdict.performance.milliseconds.median
    assert 0.2 * whole < sum(times.values()) < 5 * whole
