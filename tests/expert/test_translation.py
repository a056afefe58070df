"""The built-in team where its own kernel is behind PyTorch: it proposes what torch.compile generated, and the
faster of the two is what it goes on from."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from egg.api.runs import advance, replay, start
from egg.core.evaluation import Accepted, Measured
from egg.core.plan import Draft, Unusable
from egg.core.policy import Level, LibraryCalls, Policy
from egg.core.recording import CANDIDATE, Recording
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.core.step import Decision, Origin, Trajectory
from egg.engine.budgets import BUDGETS
from egg.engine.judges import LocalJudge
from egg.engine.scripted import Act
from egg.engine.stages import SEARCH
from egg.engine.state import RunState
from egg.evaluator import static
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import Question, RecordRequest
from egg.expert import team as expert
from egg.expert.compiled.translate import CompiledFile, Refusal
from egg.expert.team import ExpertTeam
from tests.analysis.kernels import GEMM
from tests.engine import scripts
from tests.engine.scripts import FACTS
from tests.expert.test_team import TASK, Seeing, proposed, written
from tests.recordings import NOTHING, RECORDING

__all__ = ["written"]
LINEAR = "quant_int8_linear_relu"
NORMS = Task(
    "norms",
    """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(2048), nn.Linear(2048, 2048)

    def forward(self, x, y):
        z = torch.nn.functional.gelu(self.second(self.first(x)) + y)
        return z, z.sum(-1)

def get_inputs():
    return [torch.randn(4096, 2048), torch.randn(4096, 2048)]

def get_init_inputs():
    return []
""",
)
TRANSLATED = scripts.kernel("0.5 ms", name="generated", extra="NUM_WARPS = 4")


class Judge(Seeing):
    """Reads the compiler's resources as the judge does, and records torch.compile."""

    def __init__(self, times: dict[str, float], compiled: float) -> None:
        known = {Candidate(source).hash: time for source, time in times.items()}
        super().__init__(lambda file: Act(known.get(file.hash, 9.0)), replace(GEMM, launches=10))
        self._compiled, self._recording = compiled, RECORDING


def brief(task: Task, recording: Recording | None) -> Brief:
    row = next(row for row in SEARCH if row.stage is Stage.SEED)
    policy = Policy(level=Level.QUICK)
    return Brief(task, policy, FACTS, row.assignment, Trajectory(Stage.SEED), compiled=recording)


def test_a_recorded_program_becomes_a_kernel_file() -> None:
    """With the kernels that Inductor wrote, its choices for them, and its library call between them."""
    task = Task(LINEAR, resources.files("egg.bench").joinpath("real", f"{LINEAR}.py").read_text())
    draft = ExpertTeam().translate(brief(task, RECORDING))
    assert isinstance(draft, Draft)
    assert static.check(Candidate(draft.source), LibraryCalls.ALLOW) is None
    assert "class ModelNew" in draft.source
    assert draft.source.count("@triton.jit") >= 2
    assert "torch.mm(" in draft.source


@pytest.mark.parametrize("recording", [None, NOTHING])
def test_without_a_recorded_graph_there_is_nothing_to_translate(recording: Recording | None) -> None:
    assert isinstance(ExpertTeam().translate(brief(TASK, recording)), Unusable)


@pytest.mark.gpu
def test_on_a_gpu_a_recorded_program_is_translated_judged_and_as_fast_as_torch_compile() -> None:
    judge = LocalJudge("cuda:0")
    try:
        recording = judge.record(RecordRequest(NORMS))
        draft = ExpertTeam().translate(brief(NORMS, recording))
        assert isinstance(draft, Draft), draft
        question = Question(NORMS, Candidate(draft.source), Policy(level=Level.QUICK))
        ((_, found),) = judge.judge([Job("translated", question)])
    finally:
        judge.close()
    assert isinstance(found.verdict, Accepted), found.verdict
    assert isinstance(found.verdict.performance, Measured)
    compiled = next(b for b in found.verdict.performance.baselines if b.name == "compile")
    assert compiled.speedup.median > 0.9


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
