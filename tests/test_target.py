"""Which GPU a run or a profile is about: named, present, or present and unknown to the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from egg.api import optimizing
from egg.api.optimizing import target_for
from egg.api.profiling import ProfileOptions, ProfileReport, report_on
from egg.cli.profile_view import report_view
from egg.cli.render import console
from egg.core.errors import MachineError, UsageError
from egg.core.settings import Settings
from egg.core.source import Candidate, Task
from egg.engine.budgets import BUDGETS
from egg.evaluator.profiling import ladder
from egg.hardware.calibration import save
from egg.hardware.detect import DERIVED, PresentGpu
from egg.hardware.gpus import Gpu, find, resolve
from tests.analysis.calibrations import measured

ROOT = Path(__file__).parents[1] / "examples" / "row_softmax"
TASK = Task.from_file(ROOT / "row_softmax.py")
H200 = resolve("H200")
UNKNOWN = replace(H200, name="NVIDIA H20", sms=78, source=DERIVED, aliases=())


def present(index: int, name: str, spec: Gpu | None, derived: Gpu | None) -> PresentGpu:
    return PresentGpu(index, name, "sm_90", 78, 96 << 30, 60 << 20, spec, derived)


KNOWN_HERE = present(0, "NVIDIA H200", H200, None)
DERIVED_HERE = present(1, "NVIDIA H20", None, UNKNOWN)
NOTHING_KNOWN = present(2, "Strange", None, None)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = (KNOWN_HERE, DERIVED_HERE, NOTHING_KNOWN)
    monkeypatch.setattr(optimizing, "present_gpus", lambda: gpus)


def settings(device: str = "auto", target: str | None = None) -> Settings:
    return Settings("step", BUDGETS["quick"], device=device, target=target)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (settings(), H200),
        (settings("cuda"), H200),
        (settings("cuda:1"), UNKNOWN),
        (settings("cuda:1", "a100"), resolve("a100")),
        (settings("cuda:2", "a100"), resolve("a100")),
        (settings("cpu"), resolve(optimizing.DEFAULT_TARGET)),
        (settings("offline"), resolve(optimizing.DEFAULT_TARGET)),
    ],
)
def test_the_gpu_that_is_written_for(asked, found):
    assert target_for(asked) == found


@pytest.mark.usefixtures("three")
def test_what_nobody_knows_is_not_guessed():
    with pytest.raises(UsageError, match="'Strange' is not in the table, nor is its architecture") as caught:
        target_for(settings("cuda:2"))
    assert "--target" in caught.value.hint
    with pytest.raises(MachineError, match="no GPU 3 here: 3 visible"):
        target_for(settings("cuda:3"))


def test_the_judge_knows_only_the_table():
    assert find(UNKNOWN.name) is None


def facts(monkeypatch: pytest.MonkeyPatch, here: PresentGpu) -> ProfileReport:
    monkeypatch.setattr(ladder, "choose_device", lambda name: torch.device("cuda", 0))
    monkeypatch.setattr(ladder, "present_gpus", lambda: (here,))
    return report_on(TASK, None, ProfileOptions())


def shown(report: ProfileReport) -> str:
    screen = console()
    with screen.capture() as captured:
        screen.print(report_view(report, 100, plain=False))
    return captured.get()


def test_facts_for_a_gpu_outside_the_table(monkeypatch):
    report = facts(monkeypatch, DERIVED_HERE)
    assert report.row == UNKNOWN
    assert report.gpu.sms == 78
    assert ProfileReport.from_json(report.to_json()) == report
    assert "not in the table: its figures are derived" in shown(report)
    assert "derived" not in shown(facts(monkeypatch, KNOWN_HERE))


def test_no_facts_for_a_gpu_of_which_nothing_is_known(monkeypatch):
    with pytest.raises(UsageError, match="nor is its architecture"):
        facts(monkeypatch, NOTHING_KNOWN)


def test_a_calibration_is_used_and_told_and_leaves_the_floor(tmp_path):
    plain = report_on(TASK, None, ProfileOptions("cpu", "h200"))
    save(measured(H200, memory=0.5), tmp_path)
    report = report_on(TASK, None, ProfileOptions("cpu", "h200", calibrations=tmp_path))
    assert (plain.calibrated, report.calibrated) == ("", "2026-01-01T00:00:00+00:00")
    assert report.gpu.floor_milliseconds == plain.gpu.floor_milliseconds
    assert "own rates, measured 2026-01-01" in shown(report)
    assert report_on(TASK, None, ProfileOptions("cpu", "a100", calibrations=tmp_path)).calibrated == ""


@pytest.fixture
def compiled_once(monkeypatch) -> None:
    """A process compiles the kernel for the first profile; the next one predicts from the same reply."""
    asked, replies = ladder.Bench._ask, {}

    def once(bench: ladder.Bench, mode: str, seconds: float):
        if mode not in replies:
            replies[mode] = asked(bench, mode, seconds)
        return replies[mode]

    monkeypatch.setattr(ladder.Bench, "_ask", once)


@pytest.mark.usefixtures("compiled_once")
def test_a_kernel_is_predicted_with_the_calibrated_rates(tmp_path):
    fused = Candidate.from_file(ROOT / "fused.py")
    plain = report_on(TASK, fused, ProfileOptions("cpu", "h200")).profile
    save(measured(H200, memory=0.44), tmp_path)
    slow = report_on(TASK, fused, ProfileOptions("cpu", "h200", calibrations=tmp_path)).profile
    assert plain is not None
    assert slow is not None
    assert plain.predicted_milliseconds
    assert slow.predicted_milliseconds
    assert 1.5 < slow.predicted_milliseconds / plain.predicted_milliseconds < 2.1
    assert slow.kernels[0].predicted_milliseconds == pytest.approx(slow.predicted_milliseconds)


def test_a_damaged_calibration_is_the_users_to_hear_about(tmp_path):
    save(measured(H200), tmp_path).write_text("{}")
    with pytest.raises(UsageError, match="unusable calibration"):
        report_on(TASK, None, ProfileOptions("cpu", "h200", calibrations=tmp_path))
