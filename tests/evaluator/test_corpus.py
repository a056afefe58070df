"""Every kernel of the adversarial corpus, through the judge's door: cheats refused, honest ones accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from egg.core.evaluation import Compiled, Evaluation, Gate, Rejected
from egg.core.source import Candidate, Task
from egg.evaluator import static
from egg.evaluator.care import Care
from egg.evaluator.oracle import Oracle
from egg.evaluator.question import Question
from tests.conftest import BRIEF
from tests.corpus.corpus import Case, load_corpus

CASES = load_corpus()
SHORT = replace(BRIEF, call_seconds=5.0, build_seconds=5.0)
"""For what may hang or crash as early as it is built: the sooner the better."""
HANGING = replace(BRIEF, call_seconds=2.0, build_seconds=2.0)
"""For what hangs in any case: longer limits only make it hang longer."""
NEVER_ENDING = ("infinite_loop", "stop_itself", "ignore_signals")
FILLING = replace(BRIEF, call_seconds=8.0, build_seconds=8.0)
"""For what takes all memory: that ends it, where there is time for it."""
ON_CPU = [case for case in CASES if case.needs == "cpu"]


def question(case: Case) -> Question:
    skip = () if case.static else (Gate.STATIC,)
    return Question(
        Task.from_file(case.task_path),
        Candidate.from_file(case.path),
        case.policy,
        skip=skip,
        care=limits(case),
    )


def limits(case: Case) -> Care:
    if any(name in case.name for name in NEVER_ENDING):
        return HANGING
    if Gate.MEMORY in case.gates:
        return replace(BRIEF, fence=True)
    if Gate.BUILD not in case.gates:
        return BRIEF
    return FILLING if "out_of_memory" in case.name else SHORT


def check(case: Case, evaluation: Evaluation) -> None:
    """The verdict the file asks for, by one of the gates it names, for the reason it gives."""
    if case.expected == "accepted":
        assert evaluation.accepted, evaluation.verdict
        return
    assert isinstance(evaluation.verdict, Rejected), f"{case.name} was accepted: {evaluation.verdict}"
    refusal = evaluation.verdict.refusal
    assert refusal.gate in case.gates, refusal
    if refusal.gate is case.gates[0]:
        assert refusal.reason.startswith(case.reason), refusal
    assert refusal.evidence
    assert refusal.hint
    assert evaluation.gates[-1].passed is False


def identify(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", ON_CPU, ids=identify)
def test_the_judge_gets_it_right(case: Case, oracle: Oracle):
    check(case, oracle.judge(question(case)))


@pytest.mark.parametrize(
    "case", [c for c in ON_CPU if c.expected == "rejected" and c.gates[0] is Gate.STATIC], ids=identify
)
def test_what_is_plain_to_see_is_refused_without_running_it(case: Case):
    refusal = static.check(Candidate.from_file(case.path), case.policy.library_calls)
    assert refusal is not None
    assert refusal.reason.startswith(case.reason)


@pytest.fixture(scope="module")
def gpu_oracle() -> Iterator[Oracle]:
    judge = Oracle("cuda")
    yield judge
    judge.close()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=identify)
def test_the_judge_gets_it_right_on_a_gpu(case: Case, gpu_oracle: Oracle):
    check(case, gpu_oracle.judge(question(case)))


def test_accepted_without_a_gpu_means_compiled_and_never_timed(oracle: Oracle):
    [case] = [c for c in ON_CPU if c.name == "honest/softmax"]
    evaluation = oracle.judge(question(case))
    check(case, evaluation)
    performance = evaluation.to_json()["verdict"]["performance"]
    assert performance["kind"] == Compiled.kind
    assert "milliseconds" not in performance


def test_the_corpus_is_as_large_as_the_claims_made_of_it():
    exploits = [case for case in CASES if case.expected == "rejected"]
    honest = [case for case in CASES if case.expected == "accepted"]
    assert len(exploits) >= 45
    assert len(honest) >= 12
    assert len({case.name for case in CASES}) == len(CASES)


def test_the_gates_behind_the_static_one_have_their_share():
    unseen = [c for c in CASES if c.expected == "rejected" and Gate.STATIC not in c.gates]
    assert len(unseen) >= 30
    assert {gate for case in unseen for gate in case.gates} >= {
        Gate.BUILD,
        Gate.PROVENANCE,
        Gate.CORRECTNESS,
        Gate.STATE,
    }
