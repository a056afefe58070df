"""What a judge does about others on its GPU: when it is alone, and what it makes of a want of memory."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from egg.core.errors import EggError, MachineError
from egg.core.evaluation import Compiled, Evaluation, Gate, Rejected, Waited
from egg.core.policy import Level, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.compare.compare import Worst
from egg.evaluator.judge import backends, judge
from egg.evaluator.judge.backends import GateStep, GpuBackend
from egg.evaluator.judge.batch import described
from egg.evaluator.judge.judge import EVERYTHING, Judge
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.pool import Answer
from egg.evaluator.judge.question import Question
from egg.evaluator.process.handle import Fault
from egg.evaluator.process.sharing import SLOTS, SharedGpu, Unshared, Wait
from egg.evaluator.reference.yardstick import Yardstick
from egg.evaluator.tensors import memory
from egg.evaluator.timing.contenders import SideBySide
from egg.evaluator.timing.opponents import Opponents
from egg.evaluator.transport.protocol import Health
from egg.evaluator.transport.wire import Channel
from egg.evaluator.trial.levels import LEVELS
from egg.evaluator.trial.trial import Trial
from tests import samples

pytestmark = pytest.mark.timeout(60)


def test_only_what_measures_is_done_alone_and_in_one_go() -> None:
    task = Task("t", samples.WIDE.format(width=8, forward="x"))
    question = Question(task, Candidate(""), Policy(level=Level.AUDIT))
    pipeline = GpuBackend.pipeline(object.__new__(GpuBackend), question, object.__new__(Trial))
    alone = [index for index, step in enumerate(pipeline) if step.alone]
    assert [pipeline[index].gate for index in alone] == [Gate.TIMING, Gate.CLOCK]
    assert alone[1] == alone[0] + 1
    assert [s.run.__name__ for s in pipeline if s.gate is Gate.TIMING] == ["prepare", "run", "settle"]


class Watched(Unshared):
    """Notes what a judge asks for."""

    def __init__(self, crowded: bool) -> None:
        self._crowded = crowded
        self.notes: list[Any] = []

    def together(self) -> None:
        self.notes.append("together")

    def alone(self) -> None:
        self.notes.append("alone")

    def leave(self) -> None:
        self.notes.append("leave")

    @contextlib.contextmanager
    def admitted(self, nbytes: int | None) -> Iterator[None]:
        self.notes.append(nbytes)
        yield

    def crowded(self) -> bool:
        return self._crowded


class Stub:
    """A backend without a device: its only gate does as it is told."""

    device, gpu_name = torch.device("cpu"), ""

    def __init__(self, run: Callable[[Any], Any], trial: Callable[[], Any] = lambda: None) -> None:
        self._run, self._trial = run, trial
        healthy = SimpleNamespace(ask=lambda *_: Health(True), end=lambda: None)
        self.forkserver = SimpleNamespace(worker=lambda: healthy)

    def pipeline(self, question: Question, trial: Any) -> list[GateStep]:
        return [GateStep(Gate.BUILD, self._run), GateStep(Gate.TIMING, self._run, alone=True)]

    def again(self, question: Question, trial: Any, reason: str) -> None:
        """There is no other size to be judged at."""

    def need(self, task: Task, sets: int) -> int:
        return 7

    def trial(self, question: Question) -> Any:
        self._trial()
        return SimpleNamespace(
            candidate=question.candidate,
            connection=SimpleNamespace(worker=None, check_integrity=lambda: None),
            checks=SimpleNamespace(worst=Worst()),
            warnings=[],
            close=lambda: None,
            sizes=lambda: "8 x 8",
            provenance=None,
            side_by_side=SideBySide(),
            reference=SimpleNamespace(yardstick=Yardstick.FP64),
            verified=None,
            parts=lambda: (),
        )

    def performance(self, trial: Any) -> Any:
        return Compiled("", (), None, "full")

    def rest(self) -> None:
        pass


def judged(
    monkeypatch: pytest.MonkeyPatch, backend: Stub, crowded: bool, level: Level = Level.QUICK
) -> tuple[list[Any], Any]:
    watched = Watched(crowded)
    monkeypatch.setattr(judge, "place_on", lambda *_: watched)
    monkeypatch.setattr(judge, "backend_on", lambda *_: backend)
    task, candidate = Task("t", samples.WIDE.format(width=8, forward="x")), Candidate("class ModelNew: pass")
    question = Question(
        task, candidate, skip=(Gate.STATIC,), settings=replace(LEVELS[level], audit_task=False)
    )
    try:
        return watched.notes, Judge(torch.device("cpu")).judge(question)
    except EggError as error:
        return watched.notes, error


def without_memory(trial: Any) -> Any:
    raise Fault("limits.memory", "CUDA out of memory")


def wrong(trial: Any) -> Any:
    raise Fault("candidate.error", "wrong")


def test_a_candidate_without_memory_is_judged_once_more_with_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = [7, "together", "together", "together", "leave"]
    notes, evaluation = judged(monkeypatch, Stub(without_memory), crowded=True)
    assert notes == [*once, EVERYTHING, *once[1:]]
    assert isinstance(evaluation.verdict, Rejected)
    assert evaluation.verdict.refusal.reason == "limits.memory"
    assert len(evaluation.gates) == 1
    assert evaluation.warnings[-1] == judge.NOT_ALL, "those who are idle hold some of it still"
    assert judged(monkeypatch, Stub(without_memory), crowded=False)[0] == once
    assert judged(monkeypatch, Stub(wrong), crowded=True)[0] == once


def test_a_task_without_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[Exception] = [MachineError("out of memory in Model.forward")]

    def trial() -> None:
        if faults:
            raise faults.pop()

    notes, evaluation = judged(monkeypatch, Stub(wrong, trial), crowded=True)
    assert notes[0] == 7
    assert EVERYTHING in notes
    assert evaluation.verdict.refusal.reason == "candidate.error"
    faults.append(MachineError("no such thing"))
    notes, error = judged(monkeypatch, Stub(wrong, trial), crowded=True)
    assert str(error).startswith("no such thing")
    assert notes == [7, "together", "leave"], "it leaves, whatever happens"


def test_one_who_left_since_may_have_had_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "crowded", lambda watched: not watched.notes)
    notes, evaluation = judged(monkeypatch, Stub(without_memory), crowded=True)
    assert EVERYTHING in notes
    assert judge.NOT_ALL not in evaluation.warnings


@pytest.mark.parametrize("level", Level)
def test_times_are_measured_alone_at_every_level(monkeypatch: pytest.MonkeyPatch, level: Level) -> None:
    notes, _ = judged(monkeypatch, Stub(lambda _: {}), crowded=True, level=level)
    assert "alone" in notes


def test_an_evaluation_holds_what_was_waited_for_and_how_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watched, "waits", {Wait.MEMORY: 1.0, Wait.QUIET: 5.0, Wait.TURN: 0.0})

    def waiting(trial: Any) -> dict[str, Any]:
        Watched.waits[Wait.QUIET] += 2.0
        return {}

    _, evaluation = judged(monkeypatch, Stub(waiting), crowded=True)
    assert evaluation.waited == Waited(quiet=4.0), "two gates waited, what was before does not count"
    assert Evaluation.from_json(evaluation.to_json()) == evaluation
    assert "4.0 s of waiting" in described(Answer("a", evaluation))


def test_what_an_error_held_is_gone_when_others_may_have_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    left: list[bool] = []

    def trial() -> None:
        tensor = torch.zeros(3)
        held.append(weakref.ref(tensor))
        try:
            raise ValueError(len(tensor))
        except ValueError as error:
            raise MachineError("it does not work") from error

    monkeypatch.setattr(Stub, "rest", lambda _: left.append(held[0]() is not None))
    _, error = judged(monkeypatch, Stub(wrong, trial), crowded=True)
    assert isinstance(error, MachineError)
    assert left == [False]


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", True),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("FIND was unable to find an engine to execute this computation", True),
        ("AssertionError: shapes differ", False),
    ],
)
def test_the_words_for_want_of_memory(text: str, lacking: bool) -> None:
    assert memory.was_lacking(text) is lacking


def test_an_opponent_that_found_no_memory_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    backend = object.__new__(GpuBackend)
    backend.device, backend._sharing = torch.device("cpu"), Unshared()
    program: Any = SimpleNamespace(unload=lambda: None)
    for reason, kept in (("OutOfMemoryError: CUDA out of memory", False), ("Unsupported: no such op", True)):
        failed = {"compile": reason}
        backend._opponents = Opponents(program, Precision.MATCH, backend.device, failed=failed)
        backend.rest()
        assert (backend._opponents is not None) is kept


def test_an_audit_that_found_no_memory_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = ["no such file", "out of memory in Model.forward"]
    made: list[str] = []

    def audit(*_: Any, **__: Any) -> Any:
        made.append(reasons.pop())
        raise MachineError(made[-1])

    monkeypatch.setattr(judge, "audit", audit)
    monkeypatch.setattr(judge, "backend_on", lambda *_: Stub(wrong))
    task = Task("t", samples.WIDE.format(width=8, forward="x"))
    question = Question(task, Candidate(""), settings=LEVELS[Level.FULL])
    one = Judge(torch.device("cpu"))
    warnings = [one._task_warnings(question) for _ in range(3)]
    assert ["memory" in warning for (warning,) in warnings] == [True, False, False]
    assert len(made) == 2


def test_the_need_of_a_task_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=1 << 30))
    monkeypatch.setattr(backends, "bytes_needed", lambda task, *_: asked.append(task.name))
    backend = object.__new__(GpuBackend)
    backend.device, backend._need = torch.device("cpu"), None
    for name in ("a", "a", "b"):
        task = Task(name, f"{samples.WIDE.format(width=8, forward='x')}# {name}")
        assert backend.need(task, 1) is None
    assert asked == ["a", "b"]


def test_a_judge_that_cannot_be_set_up_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    place = SharedGpu(tmp_path, SLOTS)
    monkeypatch.setattr(judge, "place_on", lambda *_: SharedGpu(tmp_path, SLOTS))
    monkeypatch.setattr(judge, "backend_on", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Judge(torch.device("cpu"))
    assert not place.crowded()


def test_waiting_for_others_is_not_taken_for_an_oracle_that_hangs() -> None:
    oracle = Oracle("cpu")
    oracle._channel, theirs = Channel.pair()

    def answer() -> None:
        for _ in range(4):
            time.sleep(0.2)
            theirs.send({"waited": 0.2})
        theirs.send({"evaluation": samples.rejected().to_json()})

    speaker = threading.Thread(target=answer)
    speaker.start()
    answered = oracle._answer(lambda _: None, time.monotonic() + 0.4)
    assert Evaluation.from_json(answered["evaluation"]) == samples.rejected()
    speaker.join()
