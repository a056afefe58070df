"""After any number of attacks on its processes the judge still judges, and nothing is left of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from egg.core.evaluation import Gate, Rejected
from egg.core.source import Candidate, Task
from egg.evaluator.oracle import Oracle
from egg.evaluator.question import Question
from tests.conftest import BRIEF
from tests.corpus.corpus import Case, load_corpus
from tests.leftovers import Sandbox

HASTY = replace(BRIEF, seeds=1, distributions=("normal",), call_seconds=3.0, build_seconds=6.0)
CASES = load_corpus()
HOSTILE = [case for case in CASES if case.path.parent.name == "hostile"]
[HONEST] = [case for case in CASES if case.name == "honest/scale_shift"]


def ask(oracle: Oracle, case: Case, care=HASTY):
    skip = (Gate.STATIC,) if not case.static else ()
    task, candidate = Task.from_file(case.task_path), Candidate.from_file(case.path)
    return oracle.judge(Question(task, candidate, case.policy, skip=skip, care=care))


def attack(oracle: Oracle, cases: Sequence[Case]) -> None:
    for case in cases:
        verdict = ask(oracle, case).verdict
        assert isinstance(verdict, Rejected), f"{case.name} was accepted"
        assert verdict.refusal.gate in case.gates, (case.name, verdict.refusal)


def survive(device: str, cases: Sequence[Case], sandbox: Sandbox) -> None:
    oracle = Oracle(device)
    try:
        assert ask(oracle, HONEST, BRIEF).accepted
        processes = len(sandbox.processes())
        attack(oracle, cases)
        assert ask(oracle, HONEST, BRIEF).accepted
        assert sandbox.settles(lambda: len(sandbox.processes()) <= processes), sandbox.processes()
        assert sum(len(list(sandbox.folder.glob(f"{root}/**/child-*"))) for root in sandbox.folders()) <= 2
    finally:
        oracle.close()
    assert sandbox.settles(lambda: not sandbox.processes()), sandbox.processes()
    assert sandbox.folders() == []


def test_the_judge_survives_every_kind_of_attack_in_a_row(sandbox: Sandbox):
    cases = [case for case in HOSTILE if case.needs == "cpu"]
    assert len(cases) >= 20
    survive("cpu", [*cases, cases[0]], sandbox)


@pytest.mark.gpu
@pytest.mark.timeout(3600)
def test_the_judge_survives_two_hundred_attacks(sandbox: Sandbox):
    rounds = -(-200 // len(HOSTILE))
    survive("cuda", (HOSTILE * rounds)[:200], sandbox)
