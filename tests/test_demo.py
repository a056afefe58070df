"""The demo: the built-in team carries a run to its end, and nothing that goes wrong passes in silence."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from egg.api import optimizing
from egg.api.runs import state_of
from egg.cli.app import app
from egg.core.evaluation import Gate, Refusal
from egg.core.source import Candidate
from egg.core.stage import Stage
from egg.engine.scripted import Act, ScriptedJudge
from tests.engine.scripts import FACTS
from tests.samples import compiled, rejected

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, its commands run in this process."""
    spec = importlib.util.spec_from_file_location("egg_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "egg_demo", module)
    spec.loader.exec_module(module)

    def egg(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        module.check_exit(arguments, result.exit_code, (0, 1), result.output)
        return result.stdout

    for name in ("follow", "show", "output"):
        monkeypatch.setattr(module, name, egg)
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: FACTS)
    return module


@pytest.fixture
def judged_by(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def patch(act: Callable[[Candidate], Act], floor: float | None = None) -> None:
        monkeypatch.setattr(optimizing, "LocalJudge", lambda *_: ScriptedJudge(act, floor))

    return patch


def timed(candidate: Candidate) -> Act:
    """As a GPU might: every file of ours takes half of what eager PyTorch does."""
    kernels = re.findall(r"^def (\w+)\(", candidate.source, re.MULTILINE)
    return Act(0.5, kernels={kernels[0]: 1})


def test_the_run_ends_with_a_kernel_and_replays(demo, judged_by, tmp_path: Path, capsys) -> None:
    judged_by(timed)
    demo.play_a_run(tmp_path / "run")
    state = state_of(tmp_path / "run")
    assert state.closed is not None
    assert state.closed.verdict == "faster"
    assert state.started.settings.team == "expert"
    assert state.ledger.calls == 0, "no model was asked"
    assert [step.stage for step in state.steps][:2] == [Stage.SEED, Stage.STRUCTURE]
    assert "rewritten as Triton kernels" in capsys.readouterr().out


def test_a_gpu_that_finds_the_reference_as_fast_is_no_surprise(demo, judged_by, tmp_path: Path) -> None:
    judged_by(lambda candidate: replace(timed(candidate), milliseconds=2.0))
    demo.play_a_run(tmp_path / "run")
    closed = state_of(tmp_path / "run").closed
    assert closed is not None
    assert closed.verdict == "reference"


def test_a_run_in_which_nothing_is_accepted_is_told(demo, judged_by, tmp_path: Path) -> None:
    refusal = Refusal(Gate.CORRECTNESS, "correctness.error", "wrong", "look at it")
    judged_by(lambda candidate: Act(refusal=refusal))
    with pytest.raises(demo.Surprise, match="without a kernel"):
        demo.play_a_run(tmp_path / "run")


@pytest.mark.parametrize("best", [None, {"score": {"faster": None}}, {"score": {"faster": True}}])
def test_a_run_without_a_kernel_is_told(demo, best: dict | None) -> None:
    with pytest.raises(demo.Surprise, match="without a kernel: no accepted kernel"):
        demo.check_end({"kernel": None, "best": best, "reason": "no accepted kernel"})


def test_a_log_that_is_not_reproduced_is_told(
    demo, monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path
) -> None:
    """The exit code of the whole demo follows: nothing of it passes in silence."""
    monkeypatch.setattr(demo, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(demo, "play_a_run", lambda run: None)
    monkeypatch.setattr(demo, "REFUSED", ())
    assert demo.main() == 0
    monkeypatch.setattr(demo, "KEPT_RUN", DEMO.parent / "no such run")
    assert demo.main() == 1
    assert "not as it should be: egg replay" in capsys.readouterr().err


def test_the_run_whose_path_is_printed_is_still_there(
    demo, monkeypatch: pytest.MonkeyPatch, capsys, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(demo, "play_a_run", lambda run: run.mkdir())
    monkeypatch.setattr(demo, "REFUSED", ())
    assert demo.main() == 0
    kept = capsys.readouterr().out.rstrip().rpartition("kept: ")[2]
    assert Path(kept).is_dir()


def test_a_kernel_that_is_not_refused_ends_the_demo(demo, monkeypatch, capsys, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(demo, "play_a_run", lambda run: None)
    for evaluation in (rejected(), compiled()):  # refused, but for its accuracy; accepted
        printed = json.dumps(evaluation.to_json())
        monkeypatch.setattr(demo, "output", lambda *arguments, printed=printed: printed)
        assert demo.main() == 1
        assert "row_softmax/cheat_stale_cache was not refused" in capsys.readouterr().err
