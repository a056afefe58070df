"""The built-in team where its own kernel is behind PyTorch: it proposes what torch.compile generated, and the
faster of the two is what it goes on from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.runs import advance, replay, start
from egg.core.policy import LibraryCalls
from egg.core.recording import CANDIDATE
from egg.core.settings import Settings
from egg.core.source import Candidate
from egg.core.stage import Stage
from egg.core.step import Decision, Origin
from egg.engine.budgets import BUDGETS
from egg.engine.scripted import Act
from egg.engine.state import RunState
from egg.expert import team as expert
from egg.expert.compiled.translate import CompiledFile, Refusal
from egg.expert.team import ExpertTeam
from tests.analysis.kernels import GEMM
from tests.engine import scripts
from tests.engine.scripts import FACTS
from tests.expert.test_team import TASK, Seeing, proposed, written
from tests.recordings import RECORDING

__all__ = ["written"]
TRANSLATED = scripts.kernel("0.5 ms", name="generated", extra="NUM_WARPS = 4")


class Judge(Seeing):
    """Reads the compiler's resources as the judge does, and records torch.compile."""

    def __init__(self, times: dict[str, float], compiled: float) -> None:
        known = {Candidate(source).hash: time for source, time in times.items()}
        super().__init__(lambda file: Act(known.get(file.hash, 9.0)), replace(GEMM, launches=10))
        self._compiled, self._recording = compiled, RECORDING


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The translator is tested by itself: here it writes one file."""
    found = CompiledFile(TRANSLATED, ("generated",), (), True)
    monkeypatch.setattr(expert, "compiled_file", lambda task, graph, gpu: found)


def ran(folder: Path, judge: Judge, budget: str = "quick", **terms: object) -> RunState:
    given = Settings("expert", BUDGETS[budget], device="cuda:0", target="H200", compiled=CANDIDATE)
    start(folder, TASK, replace(given, **terms), FACTS, name="conv-1")  # type: ignore[arg-type]
    state = advance(folder, lambda started, journal: ExpertTeam(), judge).state
    assert state.closed is not None
    assert replay(folder).state == state
    return state


@pytest.mark.usefixtures("translated")
@pytest.mark.parametrize("budget", ["sketch", "quick"])
def test_the_translation_is_the_next_candidate_and_the_faster_one_wins(
    written: dict[str, str], tmp_path: Path, budget: str
) -> None:
    judge = Judge({written["seed"]: 0.9, TRANSLATED: 0.5, written["library"]: 0.8}, compiled=0.6)
    state = ran(tmp_path / "run", judge, budget)
    assert proposed(tmp_path / "run")[:2] == [written["seed"], TRANSLATED]
    assert state.steps[1].attempts[0].origin is Origin.TRANSLATION
    assert state.closed is not None
    assert state.closed.candidate == Candidate(TRANSLATED).hash


@pytest.mark.usefixtures("translated")
def test_other_structures_of_its_own_must_promise_more_than_the_translation_has(
    written: dict[str, str], tmp_path: Path
) -> None:
    """The library's convolution should be faster than the seed: worth a try against a translation that is a
    little ahead of the seed, not against one that is far ahead."""
    near = Judge({written["seed"]: 0.9, TRANSLATED: 0.8, written["library"]: 0.5}, compiled=0.6)
    state = ran(tmp_path / "near", near)
    (step, *_) = state.steps_in(Stage.STRUCTURE)
    assert step.base == Candidate(TRANSLATED).hash
    assert step.plan is not None
    assert step.plan.change.endswith("[without convolution]")
    assert (step.decision, step.candidate) == (Decision.PROMOTED, Candidate(written["library"]).hash)
    far = Judge({written["seed"]: 0.9, TRANSLATED: 0.1, written["library"]: 0.5}, compiled=0.6)
    state = ran(tmp_path / "far", far)
    (step, *_) = state.steps_in(Stage.STRUCTURE)
    assert step.decision is Decision.PASSED
    assert "promises" in step.reason


@pytest.mark.usefixtures("translated")
def test_the_constants_of_a_translation_are_turned_by_their_names(
    written: dict[str, str], tmp_path: Path
) -> None:
    judge = Judge({written["seed"]: 0.9, TRANSLATED: 0.2}, compiled=0.6)
    state = ran(tmp_path / "run", judge)
    (step,) = state.steps_in(Stage.MAPPING)
    assert step.plan is not None
    assert "[open file NUM_WARPS" in step.plan.change
    assert all("def generated" in state.sources[attempt.candidate] for attempt in step.attempts)


@pytest.mark.usefixtures("translated")
def test_library_calls_that_are_forbidden_are_not_translated(written: dict[str, str], tmp_path: Path) -> None:
    judge = Judge({written["seed"]: 0.9, TRANSLATED: 0.2}, compiled=0.6)
    state = ran(tmp_path / "run", judge, "sketch", library_calls=LibraryCalls.FORBID)
    assert state.steps[1].decision is Decision.UNUSABLE
    assert "extern_kernels.mm" in state.steps[1].reason
    assert proposed(tmp_path / "run") == [written["seed"]]


def test_what_the_translator_refuses_is_the_reason_of_the_step(
    written: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expert, "compiled_file", lambda task, graph, gpu: Refusal("it draws random numbers"))
    state = ran(tmp_path / "run", Judge({written["seed"]: 0.9}, compiled=0.6), "sketch")
    assert "it draws random numbers" in state.steps[1].reason
    assert state.base == Candidate(written["seed"]).hash
