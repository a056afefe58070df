"""Every kernel of the adversarial corpus, through the judge's door: cheats refused, honest ones accepted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from egg.core.evaluation import Compiled, Gate
from egg.core.source import Candidate, Task
from egg.evaluator import static
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.pool import devices
from egg.evaluator.judge.question import Question
from tests.corpus.corpus import Case, load_corpus
from tests.evaluator.verdicts import check, limits
from tests.ledgers import JUDGED

CASES = load_corpus()
ON_CPU = [case for case in CASES if case.needs == "cpu"]
IN_A_ROW = [case for case in ON_CPU if case.path.parent.name == "hostile"]
"""Judged one after the other, in ``test_survival``."""


def question(case: Case) -> Question:
    skip = () if case.static else (Gate.STATIC,)
    return Question(
        Task.from_file(case.task_path),
        Candidate.from_file(case.path),
        case.policy,
        skip=skip,
        settings=limits(case),
    )


def identify(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", [case for case in ON_CPU if case not in IN_A_ROW], ids=identify)
def test_the_judge_gets_it_right(case: Case, request: pytest.FixtureRequest):
    def judge() -> None:
        check(case, request.getfixturevalue("oracle").judge(question(case)))

    JUDGED.once(judge, case.name, case.path.read_bytes(), case.task_path.read_text())


@pytest.mark.parametrize(
    "case", [c for c in ON_CPU if c.expected == "rejected" and c.gates[0] is Gate.STATIC], ids=identify
)
def test_what_is_plain_to_see_is_refused_without_running_it(case: Case):
    refusal = static.check(Candidate.from_file(case.path), case.policy.library_calls)
    assert refusal is not None
    assert refusal.reason.startswith(case.reasons)


@pytest.fixture(scope="module")
def gpu_oracle() -> Iterator[Oracle]:
    judge = Oracle(devices("cuda")[0])
    yield judge
    judge.close()


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=identify)
def test_the_judge_gets_it_right_on_a_gpu(case: Case, gpu_oracle: Oracle):
    asked = question(case)
    check(case, gpu_oracle.judge(replace(asked, settings=replace(asked.level_settings, interpreted=True))))


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
