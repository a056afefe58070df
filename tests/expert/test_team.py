"""The built-in team in the loop: it seeds, mends, tries structures, opens constants; cut off and replayed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from egg.api.clients import OutsideClient
from egg.api.hybrid import HybridTeam
from egg.api.inheriting import weighed
from egg.api.offline import waiting_words, ways_on
from egg.api.runs import Progress, advance, look, replay, start
from egg.api.teams import llm_team
from egg.core.codec import from_json, to_json
from egg.core.evaluation import Accepted, Evaluation, Gate, Refusal
from egg.core.events import Answered, Proposed
from egg.core.plan import Draft, Unusable, Weighed
from egg.core.policy import LibraryCalls
from egg.core.resources import KernelResources
from egg.core.roles import Brief
from egg.core.settings import Settings
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.core.step import Decision
from egg.engine.budgets import BUDGETS
from egg.engine.log import LOG, read_log
from egg.engine.scripted import Act, ScriptedJudge
from egg.evaluator.judge.pool import Job
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Grade, Open, Recipe, Without, moves_in
from egg.expert.team import ExpertTeam
from egg.hardware.gpus import resolve
from tests.analysis.kernels import GEMM, SOFTMAX
from tests.engine.scripts import FACTS

TASK = Task(
    "conv_relu",
    """
import torch
from torch import nn

channels = 64
size = 128

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 2 * channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x)) * 2.0

def get_inputs():
    return [torch.randn(64, channels, size, size)]

def get_init_inputs():
    return [channels]
""",
)
INEXACT = Refusal(Gate.CORRECTNESS, "correctness.error", "relative rms error 2.6e-04", "too inaccurate")
SPILLING = replace(GEMM, spill_bytes=400, registers=255)
CRASH = Refusal(Gate.BUILD, "build.compile", "it does not compile", "look at it")


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    """What the recipes of this test make of the task, by name."""
    graph, gpu = graph_of(TASK), resolve("H200")
    recipes = {
        "seed": Recipe(),
        "exact": Recipe().after(Grade("convolution", "fp32")),
        "library": Recipe().after(Without("convolution")),
        "exact library": Recipe().after(Grade("convolution", "fp32"), Without("convolution")),
    }
    return {name: kernel_file(TASK, graph, recipe, gpu).source for name, recipe in recipes.items()}


def settings(team: str = "expert") -> Settings:
    return Settings(team, BUDGETS["quick"], device="cuda:0", target="H200")


def run(folder: Path, judge: ScriptedJudge, team: object = None, task: Task = TASK) -> Progress:
    if not (folder / LOG).exists():
        start(folder, task, settings(), FACTS, name="conv-1")
    players = team or ExpertTeam()
    return advance(folder, lambda started, journal: players, judge)  # type: ignore[arg-type,return-value]


class Seeing(ScriptedJudge):
    """Reads the compiler's resources on its way, as the judge does: the convolution is what takes long."""

    def __init__(self, act: Callable[[Candidate], Act], slow: KernelResources) -> None:
        super().__init__(act, floor=0.03)
        self._slow = slow

    def _evaluation(self, job: Job) -> Evaluation:
        found = super()._evaluation(job)
        names = re.findall(r"@triton.jit\ndef (conv\w*)\(", job.question.candidate.source)
        if not isinstance(found.verdict, Accepted) or not names:
            return found
        kernels = tuple(
            replace(self._slow if name.endswith("_kernel") else SOFTMAX, name=name) for name in names
        )
        performance = replace(found.verdict.performance, kernels=kernels)
        ran = replace(found.verdict.provenance, kernels=dict.fromkeys(names, 1))
        return replace(found, verdict=replace(found.verdict, performance=performance, provenance=ran))


def timed(
    written: dict[str, str], times: dict[str, float | Refusal], slow: KernelResources | None = None
) -> ScriptedJudge:
    """Files by name have a time or a refusal; any other file (a point of a sweep) takes long."""
    known = {Candidate(source).hash: times[name] for name, source in written.items() if name in times}

    def act(candidate: Candidate) -> Act:
        milliseconds = known.get(candidate.hash, 9.0)
        return Act(refusal=milliseconds) if isinstance(milliseconds, Refusal) else Act(milliseconds)

    return ScriptedJudge(act) if slow is None else Seeing(act, slow)


def proposed(folder: Path) -> list[str]:
    return [e.event.source for e in read_log(folder) if isinstance(e.event, Proposed)]


def test_an_inexact_seed_is_mended_by_a_finer_grade(written: dict[str, str], tmp_path: Path) -> None:
    judge = timed(written, {"seed": INEXACT, "exact": 1.0, "exact library": 2.0})
    state = run(tmp_path / "run", judge).state
    assert proposed(tmp_path / "run")[:2] == [written["seed"], written["exact"]]
    assert state.steps[0].decision is Decision.PROMOTED
    assert state.closed is not None


def test_another_structure_is_tried_and_kept_if_it_is_faster(written: dict[str, str], tmp_path: Path) -> None:
    judge = timed(written, {"seed": 2.0, "library": 1.0}, replace(GEMM, launches=10))
    state = run(tmp_path / "run", judge).state
    step = state.steps_in(Stage.STRUCTURE)[0]
    assert step.plan is not None
    assert step.plan.change.endswith("[without convolution]")
    assert step.plan.prediction.speedup > 1.5
    assert step.decision is Decision.PROMOTED
    assert proposed(tmp_path / "run")[1] == written["library"]


def test_a_team_that_goes_on_hears_which_structures_were_weighed(
    written: dict[str, str], tmp_path: Path
) -> None:
    """Also those that were tried and lost; priced by the end, over the kernel that is left."""
    judge = timed(written, {"seed": 2.0, "library": 3.0}, replace(GEMM, launches=10))
    state = run(tmp_path / "run", judge).state
    found = weighed(state, ExpertTeam())
    library = next(one for one in found if "library" in one.change or "cuDNN" in one.change)
    assert library.tried
    assert library.predicted > 1.0
    assert [one.predicted for one in found] == sorted((one.predicted for one in found), reverse=True)
    assert all("[" not in one.change for one in found)
    assert weighed(state, object()) == ()
    assert from_json(tuple[Weighed, ...], to_json(found)) == found


def test_a_structure_that_promises_nothing_is_not_tried(tmp_path: Path) -> None:
    """The kernels take long, so that a CUDA graph would save nothing."""
    task = replace(TASK, source=TASK.source.replace("torch.randn(64,", "torch.randn(256,"))
    state = run(tmp_path / "run", ScriptedJudge(lambda _: Act(2.0)), task=task).state
    assert len(proposed(tmp_path / "run")) == 1
    (step,) = state.steps_in(Stage.STRUCTURE)
    assert step.decision is Decision.PASSED
    assert "promises" in step.reason


def test_constants_are_tuned_by_the_limiter_and_kept_at_what_was_measured(
    written: dict[str, str], tmp_path: Path
) -> None:
    """At a few values, which run a heat beside the base; later files begin with what was better."""
    seed = Candidate(written["seed"]).hash

    def act(candidate: Candidate) -> Act:
        fused = "CONV_RELU_MUL_" in candidate.source
        return Act(2.0 if candidate.hash == seed else 1.0 if fused else 3.0)

    judge = Seeing(act, SPILLING)
    state = run(tmp_path / "run", judge).state
    step = next(s for s in state.steps if s.plan is not None and "[open" in s.plan.change)
    assert step.plan is not None
    assert step.decision is Decision.PROMOTED
    assert step.sweep is not None
    best = next(point.values for point in step.sweep.points if point.candidate == step.candidate)
    opened = [move.name for move in moves_in(step.plan.change) if isinstance(move, Open)]
    assert sorted(opened) == sorted(name.removeprefix("CONV_RELU_MUL_") for name in best)
    assert len([job for job in judge.judged if job.endswith(".quick")]) <= 6
    for after in state.steps[step.number :]:
        for attempt in after.attempts:
            source = state.sources[attempt.candidate]
            kept = {name for name, value in best.items() if re.search(rf"\b{name} = {value}\b", source)}
            assert kept >= best.keys() - set(re.findall(r'"(\w+)": \(', source))
    assert replay(tmp_path / "run").state == state


def test_where_libraries_are_forbidden_nothing_is_left_to_them(tmp_path: Path) -> None:
    task = replace(
        TASK,
        source=TASK.source.replace("torch.relu(self.conv(x)) * 2.0", "torch.fft.fft(self.conv(x)).abs()"),
    )
    forbidding = replace(settings(), library_calls=LibraryCalls.FORBID)
    start(tmp_path / "run", task, forbidding, FACTS, name="fft-1")
    state = run(tmp_path / "run", ScriptedJudge(lambda candidate: Act(1.0))).state
    assert not proposed(tmp_path / "run")
    assert "library calls are forbidden" in state.steps[0].reason


def test_what_does_not_build_is_left_to_the_library_in_the_end(tmp_path: Path) -> None:
    def act(candidate: Candidate) -> Act:
        return Act(1.0) if "conv2d(" in candidate.source else Act(refusal=CRASH)

    state = run(tmp_path / "run", ScriptedJudge(act)).state
    assert state.base_kernel is not None
    assert "conv2d(" in state.base_kernel.candidate.source
    assert len(proposed(tmp_path / "run")) <= 4


def test_replayed_and_cut_off_anywhere_it_comes_to_the_same(written: dict[str, str], tmp_path: Path) -> None:
    judge = timed(written, {"seed": INEXACT, "exact": 2.0, "exact library": 1.0})
    whole = run(tmp_path / "whole", judge).state
    assert replay(tmp_path / "whole").state == whole
    lines = (tmp_path / "whole" / LOG).read_text().splitlines(keepends=True)
    for count in range(1, len(lines), 5):
        place = tmp_path / f"cut-{count}"
        place.mkdir()
        (place / LOG).write_text("".join(lines[:count]))
        again = run(place, judge).state
        assert [s.decision for s in again.steps] == [s.decision for s in whole.steps], count
        assert again.best == whole.best, count


def test_a_run_that_is_only_looked_at_asks_nobody(tmp_path: Path) -> None:
    start(tmp_path / "run", TASK, settings(), FACTS, name="conv-1")
    seen = look(tmp_path / "run")
    assert waiting_words(seen) == "it was stopped before the built-in team answered"
    assert ways_on(seen, Path("run")) == ("egg resume run",)


def test_the_model_goes_on_from_the_experts_kernel(written: dict[str, str], tmp_path: Path) -> None:
    nothing = json.dumps({"bottleneck": "none", "worth_optimizing": False, "reason": "good as it is"})
    model = llm_team(settings("hybrid"), OutsideClient([nothing] * 4))
    judge = timed(written, {"seed": INEXACT, "exact": 1.0})
    state = run(tmp_path / "run", judge, HybridTeam(ExpertTeam(), model)).state
    assert state.closed is not None
    assert proposed(tmp_path / "run") == [written["seed"], written["exact"]]
    answers = [e.event.role for e in read_log(tmp_path / "run") if isinstance(e.event, Answered)]
    assert answers[:3] == ["coder.seed", "debugger", "coder.repair"]


def test_where_the_expert_has_no_pattern_the_model_seeds(written: dict[str, str], tmp_path: Path) -> None:
    class AtALoss(ExpertTeam):
        def seed(self, brief: Brief) -> Draft | Unusable:
            return Unusable("no pattern covers it")

    nothing = json.dumps({"bottleneck": "none", "worth_optimizing": False, "reason": "good as it is"})
    model = llm_team(
        settings("hybrid"), OutsideClient([f"```python\n{written['library']}```", *[nothing] * 4])
    )
    team = HybridTeam(AtALoss(), model)
    assert run(tmp_path / "run", timed(written, {"library": 1.0}), team).state.closed is not None
    assert [source.strip() for source in proposed(tmp_path / "run")] == [written["library"].strip()]
