"""After any number of attacks on its processes the judge still judges, and nothing is left of them.

The hostile files of the corpus are judged here, one after the other by the same judge, and not once more with
the other files.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from egg.core.evaluation import Gate
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question
from egg.evaluator.trial.levels import LevelSettings
from tests.conftest import BRIEF
from tests.corpus.corpus import Case, load_corpus
from tests.evaluator.verdicts import check, limits
from tests.leftovers import Sandbox

CASES = load_corpus()
HOSTILE = [case for case in CASES if case.path.parent.name == "hostile"]
[HONEST] = [case for case in CASES if case.name == "honest/scale_shift"]


def ask(oracle: Oracle, case: Case, settings: LevelSettings):
    skip = (Gate.STATIC,) if not case.static else ()
    task, candidate = Task.from_file(case.task_path), Candidate.from_file(case.path)
    return oracle.judge(Question(task, candidate, case.policy, skip=skip, settings=settings))


def attack(oracle: Oracle, cases: Sequence[Case]) -> None:
    for case in cases:
        check(case, ask(oracle, case, limits(case)))


def survive(device: str, cases: Sequence[Case], sandbox: Sandbox) -> None:
    oracle = Oracle(device)
    try:
        assert ask(oracle, HONEST, BRIEF).accepted
        processes = len(sandbox.processes())
        attack(oracle, cases)
        assert ask(oracle, HONEST, BRIEF).accepted
        assert sandbox.settles(lambda: len(sandbox.processes()) <= processes), sandbox.processes()
        assert sum(len(list(sandbox.folder.glob(f"{root}/**/worker-*"))) for root in sandbox.folders()) <= 2
    finally:
        oracle.close()
    assert sandbox.settles(lambda: not sandbox.processes()), sandbox.processes()
    assert sandbox.folders() == []


@pytest.mark.timeout(600)  # all of them, some of which hang until their time is over
def test_the_judge_survives_every_kind_of_attack_in_a_row(sandbox: Sandbox):
    cases = [case for case in HOSTILE if case.needs == "cpu"]
    assert len(cases) >= 10
    survive("cpu", [*cases, cases[0]], sandbox)


@pytest.mark.gpu
@pytest.mark.timeout(3600)
def test_the_judge_survives_two_hundred_attacks(sandbox: Sandbox):
    rounds = -(-200 // len(HOSTILE))
    survive("cuda", (HOSTILE * rounds)[:200], sandbox)
