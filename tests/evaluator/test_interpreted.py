"""The interpreter beside a GPU: what it adds to an acceptance, and what it leaves to the GPU.

The verdict of the GPU is made up here, from an honest kernel's; the interpreter's is the real judge's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from egg.core.errors import MachineError
from egg.core.evaluation import Accepted, Evaluation, Gate, Refusal, Rejected
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.judge import interpreted
from egg.evaluator.judge.beside import Beside
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question

CORPUS = Path(__file__).parents[1] / "corpus"
FULL = Policy(level=Level.FULL)


def question(kernel: str, task: str, policy: Policy = FULL) -> Question:
    return Question(
        Task.from_file(CORPUS / "tasks" / f"{task}.py"), Candidate.from_file(CORPUS / f"{kernel}.py"), policy
    )


@pytest.fixture(scope="module")
def accepted(oracle: Oracle) -> Evaluation:
    found = oracle.judge(question("honest/softmax", "row_softmax", Policy()))
    assert found.accepted
    return replace(found, policy=FULL)


class ShownNothing(Oracle):
    """An oracle on a GPU that accepts whatever it is given."""

    def __init__(self, accepted: Evaluation, interpreting: Oracle | Stuck) -> None:
        super().__init__("cuda:0")
        self._accepted, self._beside = accepted, Beside(interpreting)

    def _asked(self, question: Question, on_gate: Callable[[Gate], None], timeout: float) -> Evaluation:
        return self._accepted


@pytest.fixture
def on_gpu(accepted: Evaluation, oracle: Oracle) -> Oracle:
    return ShownNothing(accepted, oracle)


@pytest.mark.parametrize(
    ("kernel", "task", "reason"),
    [
        ("lanes_store_twice", "scale_shift", "kernel.race"),
        ("remembers_beside_its_key", "tides", "state.remembers"),
        ("masked_lanes_are_used", "row_moments", "correctness.values"),
        ("clip_drops_nan", "clip", "correctness.not_a_number"),
        ("reshape_may_reorder", "scale_shift", "correctness.error"),
        ("wrong_second_configuration", "scale_shift", "correctness.configuration"),
    ],
)
def test_a_fault_that_a_gpu_does_not_show_is_refused(
    on_gpu: Oracle, kernel: str, task: str, reason: str
) -> None:
    met: list[Gate] = []
    found = on_gpu.judge(question(f"exploits/{kernel}", task), met.append)
    assert isinstance(found.verdict, Rejected)
    assert (found.verdict.refusal.gate, found.verdict.refusal.reason) == (Gate.INTERPRETER, reason)
    assert found.verdict.refusal.evidence.startswith("without a GPU, in the interpreter: ")
    assert found.verdict.refusal.hint
    assert met == [Gate.INTERPRETER]
    assert found.gates[-1].gate is Gate.INTERPRETER
    assert not found.gates[-1].passed


def test_an_honest_kernel_keeps_the_verdict_of_the_gpu(on_gpu: Oracle, accepted: Evaluation) -> None:
    found = on_gpu.judge(question("honest/softmax", "row_softmax"))
    assert found.verdict == accepted.verdict
    assert found.policy == FULL
    assert found.gates[-1].notes == {"verdict": "accepted"}
    assert found.seconds > accepted.seconds


def test_accuracy_is_the_gpus_to_say(accepted: Evaluation) -> None:
    refusal = Refusal(Gate.CORRECTNESS, "correctness.error", "off by 3e-4", "accumulate in fp32")
    found = interpreted.joined(accepted, replace(accepted, verdict=Rejected(refusal)), 1.0)
    assert isinstance(found.verdict, Accepted)
    assert found.gates[-1].notes["verdict"] == "correctness.error"


def test_what_cannot_be_interpreted_is_said(on_gpu: Oracle, accepted: Evaluation) -> None:
    found = interpreted.not_interpreted(accepted, "the task's inputs are on the GPU", 1.0)
    assert found.verdict == accepted.verdict
    assert found.warnings[-1] == "the interpreter gave no verdict: the task's inputs are on the GPU"


class Stuck:
    """Answers when it is interrupted."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def judge(self, question: Question, *, timeout: float) -> Evaluation:
        assert self.ended.wait(timeout)
        raise MachineError("it was ended", "")

    def interrupt(self) -> None:
        self.ended.set()

    def close(self) -> None:
        self.ended.set()


def test_an_interrupt_is_no_verdict(accepted: Evaluation) -> None:
    beside = Beside(Stuck())
    beside.begin(question("honest/softmax", "row_softmax"))
    threading.Timer(0.1, beside.interrupt).start()
    with pytest.raises(MachineError):
        beside.confirmed(accepted)
    beside.close()


def test_a_refusal_on_the_gpu_does_not_wait(accepted: Evaluation) -> None:
    refused = replace(accepted, verdict=Rejected(Refusal(Gate.BUILD, "build.raised", "x", "y")))
    stuck = Stuck()
    judge = ShownNothing(refused, stuck)
    assert judge.judge(question("honest/softmax", "row_softmax")) == refused
    assert stuck.ended.is_set()
    judge.close()


@pytest.mark.parametrize("level", [Level.QUICK, Level.FULL])
def test_it_is_for_full_and_for_single_files(level: Level) -> None:
    asked = question("honest/softmax", "row_softmax", Policy(level=level))
    assert interpreted.is_wanted(asked) is (level is Level.FULL)
    assert not interpreted.is_wanted(replace(asked, skip=(Gate.INTERPRETER,)))
    assert not interpreted.is_wanted(replace(asked, contenders=(asked.candidate,)))
