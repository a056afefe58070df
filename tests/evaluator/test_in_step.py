"""Answers that follow from earlier calls: the reference makes those calls as well."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.gates import clock, many, timing
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.stateful import is_stateful
from egg.evaluator.task.program import Program
from egg.evaluator.trial.refused import Refused
from tests.evaluator.test_timing_gates import trial_for

__all__ = ["trial_for"]

TASK = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        KEPT

    def forward(self, x):
        MOVED
        return x * self.weight + LEFT


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [64]
"""

AVERAGE = (
    'self.register_buffer("mean", torch.zeros(width))',
    "self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)",
    "self.mean",
)
COUNT = (
    'self.register_buffer("steps", torch.zeros((), dtype=torch.int64))',
    "self.steps.add_(1)",
    "0.999**self.steps",
)
NUMBER = ("self.steps = 0", "self.steps += 1", "0.999**self.steps")
AMPLITUDE = (
    'self.register_buffer("mean", torch.zeros(width, dtype=torch.complex64))',
    "self.mean.mul_(0.9).add_(torch.complex(x.mean(0), x[0]), alpha=0.1)",
    "self.mean.real - self.mean.imag",
)
KEPT = {"an average": AVERAGE, "a count": COUNT, "a plain number": NUMBER, "amplitudes": AMPLITUDE}
NOT_READ = (AVERAGE[0], AVERAGE[1], "0.0")

TrialFor = Callable[..., Any]


def written(how: tuple[str, str, str]) -> str:
    kept, moved, left = how
    return TASK.replace("KEPT", kept).replace("MOVED", moved).replace("LEFT", left)


@pytest.fixture
def moving(trial_for: TrialFor, monkeypatch: pytest.MonkeyPatch) -> TrialFor:
    """A trial on a task that keeps something, and a candidate that does the same in ``moved``'s stead."""

    def make(how: tuple[str, str, str], moved: str = "") -> Any:
        monkeypatch.setattr("tests.evaluator.test_timing_gates.TASK", written(how))
        source = written((how[0], moved or how[1], how[2])).replace("class Model(", "class ModelNew(")
        return trial_for(source)

    return make


def called(trial: Any, calls: int) -> None:
    trial.settings = replace(trial.settings, calls=calls, calls_seconds=2.0)
    many.run(trial, 1e-3)


@pytest.mark.parametrize("how", KEPT.values(), ids=KEPT)
def test_many_calls_in_a_row_may_follow_from_one_another(moving: TrialFor, how: tuple[str, str, str]) -> None:
    called(moving(how), 96)


def test_an_average_that_stands_still_is_stale(moving: TrialFor) -> None:
    stops = "self.n = getattr(self, 'n', 0) + 1; self.n < 30 and self.mean.mul_(0.9).add_(x.mean(0) * 0.1)"
    with pytest.raises(Refused) as refused:
        called(moving(AVERAGE, stops), 96)
    assert refused.value.reason in ("state.stale", "state.callers", "state.aliased")


@pytest.mark.parametrize("how", [AVERAGE, NUMBER], ids=["an average", "a plain number"])
def test_timed_calls_may_follow_from_one_another(
    moving: TrialFor, monkeypatch: pytest.MonkeyPatch, how: tuple[str, str, str]
) -> None:
    monkeypatch.setattr(clock, "HOST_MILLISECONDS", 5.0)
    trial = moving(how)
    timing.prepare(trial)
    timing.run(trial)
    clock.run(trial)
    timing.settle(trial)
    assert trial.checks.worst.checks > 2 * clock.ATTEMPTS


def test_a_timed_call_that_does_not_follow_is_found(moving: TrialFor) -> None:
    trial = moving(AVERAGE, "self.n = getattr(self, 'n', 0) + 1; self.n < 9 and self.mean.add_(x.mean(0))")

    def timed() -> None:
        timing.prepare(trial)
        timing.run(trial)
        timing.settle(trial)

    with pytest.raises(Refused):
        timed()


@pytest.mark.parametrize(
    ("how", "follows"), [(AVERAGE, True), (COUNT, True), (NUMBER, True), (NOT_READ, False)]
)
def test_whether_answers_follow_is_found_out(how: tuple[str, str, str], follows: bool) -> None:
    with Program.load(Task("kept", written(how))) as program:
        reference = Reference(program, Precision.MATCH, torch.device("cpu"))
        before = reference.state()
        assert is_stateful(reference) is follows
        assert all(torch.equal(value, before[name]) for name, value in reference.state().items())
