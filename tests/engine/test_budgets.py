"""Budgets: what their names stand for is what the command line and the documentation say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from egg.core.errors import UsageError
from egg.core.stage import Stage
from egg.engine.budgets import BUDGETS, find_budget
from tests.engine.scripts import begin, draft, go_on, settings

ROOT = Path(__file__).resolve().parents[2]


def test_the_documentation_has_every_budget_as_it_is() -> None:
    text = (ROOT / "docs" / "runs.md").read_text(encoding="utf-8")
    rows = {}
    for line in re.findall(r"^\| `\w+` \|.*% \|$", text, re.MULTILINE):
        name, *numbers = (cell.strip(" `%") for cell in line.strip("|").split("|"))
        rows[name] = [int(n.removesuffix(" each") or 0) for n in numbers]
    expected = {}
    for name, b in BUDGETS.items():
        seeds, structure, *tuning = (b.steps.get(stage, 0) for stage in Stage if stage is not Stage.REGRADE)
        assert len(set(tuning)) == 1
        points = b.sweep_points if tuning[0] else 0
        within = round(100 * (b.headroom - 1))
        expected[name] = [seeds, structure, tuning[0], b.patience, b.repairs, points, within]
    assert rows == expected


def test_the_command_line_names_every_budget() -> None:
    from egg.cli.options import BudgetOption

    assert get_args(BudgetOption)[1].metavar == "|".join(BUDGETS)
    with pytest.raises(UsageError, match="unknown budget: 'huge'") as raised:
        find_budget("huge")
    assert all(name in raised.value.hint for name in BUDGETS)


def test_a_sketch_ends_with_the_first_kernel_that_is_accepted(tmp_path: Path) -> None:
    begin(tmp_path, settings(BUDGETS["sketch"]))
    state = go_on(tmp_path, {"coder.seed seed 1": draft("0.5 ms")}).state
    assert [step.stage for step in state.steps] == [Stage.SEED]
    assert state.closed is not None
    assert state.closed.verdict == "faster"
