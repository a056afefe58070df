"""Which backwards the domain gate asks, and what it notes where time ends."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from egg.evaluator.gates import grad_mode
from egg.evaluator.gates.grad_mode import GradMode
from egg.evaluator.gates.gradients import Gradient
from egg.evaluator.reference.probes import Change
from egg.evaluator.task.gradient_ways import FEW_WAYS, PLAIN
from egg.evaluator.trial.refused import Refused


def asked(monkeypatch: pytest.MonkeyPatch, answer: Gradient, seconds: float) -> tuple[GradMode, list[Any]]:
    """A candidate whose every backward has one answer, with so many seconds left; and the ways asked."""
    ways: list[Any] = []

    def gradients(_: Any, change: Change, way: Any) -> tuple[Gradient, str]:
        ways.append(way)
        return answer, "off"

    monkeypatch.setattr(grad_mode, "gradients", gradients)
    claims: Any = SimpleNamespace(describe=lambda change: "")
    trial: Any = SimpleNamespace(warnings=[])
    until = time.perf_counter() + seconds
    return GradMode(trial, None, claims, False, until, lambda change: None, (), ()), ways


def test_with_time_every_way_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, ways = asked(monkeypatch, Gradient.RIGHT, 60.0)
    assert mode.found(Change(), Change()) is Gradient.RIGHT
    assert (ways, mode.unasked) == ([PLAIN, *FEW_WAYS], 0)


def test_without_time_the_first_is_asked_and_the_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, ways = asked(monkeypatch, Gradient.RIGHT, -1.0)
    assert mode.found(Change(), Change()) is Gradient.RIGHT
    assert (ways, mode.unasked) == ([PLAIN], len(FEW_WAYS))


def test_a_wrong_first_backward_is_refused_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    mode, _ = asked(monkeypatch, Gradient.WRONG, -1.0)
    with pytest.raises(Refused) as caught:
        mode.found(Change(), Change())
    assert caught.value.reason == "domain.gradients"
