"""Questions of the judge's own making at which the reference raises: they are skipped, all others are put."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from egg.core.errors import TaskError
from egg.core.evaluation import Accepted, Gate, Rejected
from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Yardstick
from egg.evaluator.task.program import Program
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.trial.levels import Probes
from tests.conftest import BRIEF, JudgeFunction

CORPUS = Path(__file__).parent.parent / "corpus"
NEIGHBOURS = CORPUS / "tasks" / "neighbours.py"
SETTINGS = replace(BRIEF, distributions=("normal", *["large"] * 6), domain=Probes.NONE)
"""Of points so large hardly a draw has each within the radius of itself."""


def made(task: str) -> Reference:
    source = (CORPUS / "tasks" / f"{task}.py").read_text()
    return Reference(Program.load(Task(task, source)), Precision.MATCH, torch.device("cpu"))


def test_a_reference_that_raises_at_other_inputs_is_asked_the_rest(judged: JudgeFunction) -> None:
    honest = Candidate.from_file(CORPUS / "honest" / "largest_of_neighbours.py")
    found = judged(Task.from_file(NEIGHBOURS), honest, settings=SETTINGS)
    assert isinstance(found.verdict, Accepted), found.verdict
    [notes] = [record.notes for record in found.gates if "without_answer" in record.notes]
    assert "large" in notes["without_answer"]
    assert "normal" not in notes["without_answer"]


def test_the_tasks_own_inputs_are_judged_all_the_same(judged: JudgeFunction) -> None:
    wrong = Candidate.from_file(CORPUS / "exploits" / "last_neighbour_left_out.py")
    verdict = judged(Task.from_file(NEIGHBOURS), wrong, settings=SETTINGS).verdict
    assert isinstance(verdict, Rejected)
    assert verdict.refusal.gate is Gate.CORRECTNESS
    assert verdict.refusal.reason == "correctness.error"


def test_a_reference_that_raises_at_its_own_inputs_is_a_fault_of_the_task(judged: JudgeFunction) -> None:
    source = NEIGHBOURS.read_text().replace("features[places]", "features[places + n]")
    honest = Candidate.from_file(CORPUS / "honest" / "largest_of_neighbours.py")
    with pytest.raises(TaskError, match="out of bounds"):
        judged(source, honest, settings=SETTINGS)


def test_inputs_that_the_program_does_not_take_leave_the_yardstick_alone() -> None:
    reference = made("looked_up")
    with pytest.raises(TaskError):
        reference.answer("far", [torch.full((256, 2), 1e3)], own=False)
    assert reference.yardstick is Yardstick.FP64


def test_columns_of_which_one_is_an_index_are_not_mixed() -> None:
    assert all(made("looked_up").kinds == [Kind.DRAWN] for _ in range(20))
    assert made("point_energy").kinds == [Kind.LOOSE]
