"""What holds the base back, on its way from the judge to whoever plans; and runs that know nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from egg.api.runs import replay, state_of
from egg.core.bottleneck import Diagnosed, Limiter
from egg.core.evaluation import Evaluation
from egg.core.plan import Pass, Plan, Unusable
from egg.core.resources import KernelResources
from egg.core.roles import Brief
from egg.engine.effects import diagnosed
from egg.engine.scripted import ScriptedJudge, ScriptedTeam
from tests.analysis.kernels import SOFTMAX
from tests.engine.scripts import PASSING, act, begin, draft, go_on

SCRIPT = {**PASSING, "coder.seed seed 1": draft("0.5 ms")}


class Attentive(ScriptedTeam):
    """Remembers what the tuner was told."""

    def __init__(self) -> None:
        super().__init__(SCRIPT)
        self.diagnoses: list[Diagnosed | None] = []

    def tune(self, brief: Brief) -> Plan | Pass | Unusable:
        self.diagnoses.append(brief.diagnosis)
        return super().tune(brief)


class Seeing(ScriptedJudge):
    """Reads the compiler's resources on its way, as the judge does."""

    def __init__(self, *kernels: KernelResources) -> None:
        super().__init__(act, floor=0.03)
        self._kernels = kernels

    def _evaluation(self, job) -> Evaluation:
        found = super()._evaluation(job)
        performance = replace(found.verdict.performance, kernels=self._kernels)
        return replace(found, verdict=replace(found.verdict, performance=performance))


def diagnoses(folder: Path, *kernels: KernelResources) -> list[Diagnosed | None]:
    begin(folder)
    team = Attentive()
    go_on(folder, SCRIPT, Seeing(*kernels), team)
    assert len(team.diagnoses) == 3, "mapping, tiling, memory"
    return team.diagnoses


def test_a_kernel_with_resources_comes_with_a_diagnosis(tmp_path: Path) -> None:
    few = replace(SOFTMAX, name="double", grid=(8, 1, 1))
    for found in diagnoses(tmp_path, few):
        assert found is not None
        assert found.kernels[0].limiter is Limiter.SMALL_GRID
        assert found.whole.headroom is not None
    assert replay(tmp_path).state == state_of(tmp_path)


def test_a_kernel_without_resources_comes_with_none(tmp_path: Path) -> None:
    assert diagnoses(tmp_path) == [None, None, None]


def test_a_kernel_of_which_hardly_anything_is_known_comes_with_none(tmp_path: Path) -> None:
    bare = replace(SOFTMAX, work=None, instructions=None)
    assert diagnoses(tmp_path, bare) == [None, None, None]


def test_a_target_outside_the_table_is_no_obstacle(tmp_path: Path) -> None:
    diagnoses(tmp_path, SOFTMAX)
    state = state_of(tmp_path)
    assert diagnosed(state) is not None
    elsewhere = replace(state.started.facts.gpu, name="NVIDIA H20")
    started = replace(state.started, facts=replace(state.started.facts, gpu=elsewhere))
    assert diagnosed(replace(state, started=started)) is None
