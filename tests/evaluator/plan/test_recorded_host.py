"""Plans through the public doors: what is recorded, judged and refused under ``--host recorded``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer.testing

from egg.cli.app import app
from egg.core.evaluation import Accepted, Gate, PlanAnswer, Rejected
from egg.core.policy import Host, Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import PlanRequest, Question
from tests.corpus.corpus import HERE, Case, read_case
from tests.warm import NARROW


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle("cpu")


def case(name: str) -> Case:
    return read_case(HERE / f"{name}.py")


def recorded(oracle: Oracle, name: str) -> PlanAnswer:
    found = case(name)
    return oracle.plan(PlanRequest(Task.from_file(found.task_path), Candidate.from_file(found.path)))


def plan_of(oracle: Oracle, name: str) -> str:
    answer = recorded(oracle, name)
    assert answer.plan is not None, answer.refusal
    return answer.plan.source


def test_egg_eval_judges_the_plan_and_names_both_files(tmp_path: Path) -> None:
    """The file counts its calls and answers wrongly from some call on; the plan has only the call."""
    found, plan = case("exploits/cache_first_call"), tmp_path / "plan.py"
    asked = [
        "eval",
        str(found.task_path),
        str(found.path),
        "--host",
        "recorded",
        "--plan",
        str(plan),
        "--json",
    ]
    done = typer.testing.CliRunner().invoke(app, [*asked, "--level", "quick", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["policy"]["host"] == "recorded"
    assert result["candidate_sha256"] == Candidate.from_file(found.path).sha256
    assert result["recorded"]["sha256"] == Candidate.from_file(plan).sha256
    assert result["recorded"]["file"] == str(plan)
    assert result["gates"][0]["gate"] == "plan"
    assert "cache" not in plan.read_text(encoding="utf-8").partition("class ModelNew")[2]


def test_egg_record_says_what_it_wrote_and_what_it_cannot(tmp_path: Path) -> None:
    good, bad = case("honest/cuda_graph"), case("honest/reads_a_value")
    run, plan = typer.testing.CliRunner(), tmp_path / "plan.py"
    done = run.invoke(
        app, ["record", str(good.task_path), str(good.path), "--out", str(plan), "--device", "cpu"]
    )
    assert done.exit_code == 0, done.output
    assert "RECORDED" in done.stdout
    assert "CUDAGraph" not in plan.read_text(encoding="utf-8")
    refused = run.invoke(
        app, ["record", str(bad.task_path), str(bad.path), "--out", str(plan), "--device", "cpu", "--json"]
    )
    assert refused.exit_code == 1, refused.output
    result = json.loads(refused.stdout)
    assert result["refusal"]["gate"] == "plan"
    assert result["refusal"]["reason"] == "plan.unsupported"
    assert result["refusal"]["hint"]


def test_a_plan_option_without_a_plan_is_a_mistake() -> None:
    found = case("honest/softmax")
    asked = ["eval", str(found.task_path), str(found.path), "--plan", "p.py"]
    assert typer.testing.CliRunner().invoke(app, asked).exit_code == 2


def test_weights_that_are_packed_once_are_packed_in_every_call(oracle: Oracle) -> None:
    plan = plan_of(oracle, "honest/packed_by_version")
    assert "_version" not in plan.partition("class ModelNew")[2]
    assert "transpose[(2, 2, 1)](self.linear.weight" in plan.replace("1,)", "1)")


def test_a_configuration_of_an_autotuner_is_in_the_launch(oracle: Oracle) -> None:
    plan = plan_of(oracle, "honest/autotuned")
    assert "triton.autotune" not in plan
    assert "num_warps=" in plan


def test_statistics_that_the_task_moves_are_moved(oracle: Oracle) -> None:
    assert "self.norm.running_mean" in plan_of(oracle, "honest/batch_norm_training")


@pytest.mark.parametrize(
    "name",
    ["exploits/library_from_the_fourth_call", "exploits/returns_constant"],
)
def test_host_code_that_cheats_is_refused_or_gone(oracle: Oracle, name: str) -> None:
    """What is accepted is the plan, and the plan is judged as any file: here at the fewest calls."""
    found = case(name)
    policy = Policy(found.policy.precision, found.policy.library_calls, Level.QUICK, Host.RECORDED)
    question = Question(
        Task.from_file(found.task_path), Candidate.from_file(found.path), policy, settings=NARROW
    )
    verdict = oracle.judge(question)
    assert verdict.candidate_sha256 == question.candidate.sha256
    if name.endswith("returns_constant"):
        assert isinstance(verdict.verdict, Rejected)
    else:
        assert isinstance(verdict.verdict, Accepted)
        assert verdict.recorded is not None
        assert verdict.recorded.source.count("def forward") == 1


def test_copies_that_one_size_alone_needs_are_no_other_program(oracle: Oracle) -> None:
    """The call at the task's own size hands its kernel a copy of the weight, and returns a copy."""
    answer = recorded(oracle, "honest/kept_for_many_rows")
    assert answer.plan is not None, answer.refusal
    assert len(answer.plan.signatures) == 2
    assert answer.plan.alike
    assert "torch.clone(self.weight)" in answer.plan.source


def test_a_flag_that_a_kernel_is_handed_at_one_size_alone_is_told(oracle: Oracle) -> None:
    found = case("honest/kept_for_many_rows")
    source = found.path.read_text(encoding="utf-8").replace(
        "ROWS: tl.constexpr", "ROWS: tl.constexpr, MANY: tl.constexpr"
    )
    source = source.replace("ROWS=64)", "ROWS=64, MANY=rows > 2048)")
    answer = oracle.plan(PlanRequest(Task.from_file(found.task_path), Candidate(source)))
    assert answer.plan is not None, answer.refusal
    assert not answer.plan.alike
    assert answer.plan.branches == ("kernel gained_sigmoid is handed True, at the smaller size False",)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("exploits/library_where_rows_are_many", "plan.steps"),
        ("exploits/larger_share_where_rows_are_many", "plan.sizes"),
    ],
)
def test_another_program_at_the_own_size_is_refused_with_the_steps(
    oracle: Oracle, name: str, reason: str
) -> None:
    refusal = recorded(oracle, name).refusal
    assert refusal is not None
    assert refusal.reason == reason
    assert "torch.sigmoid" in refusal.evidence
    assert "size" in refusal.hint


@pytest.mark.parametrize(
    ("name", "reason"),
    [("honest/lengths_on_the_host", "plan.unsupported"), ("exploits/eval_builtins", "restricted.builtin")],
)
def test_what_cannot_be_recorded_is_refused_with_a_hint(oracle: Oracle, name: str, reason: str) -> None:
    refusal = recorded(oracle, name).refusal
    assert refusal is not None
    assert refusal.gate is Gate.PLAN
    assert refusal.reason == reason
    assert refusal.hint


def test_a_running_value_that_is_not_saved_has_no_plan(oracle: Oracle) -> None:
    """Nothing would compare what a plan leaves there."""
    found = case("honest/reads_a_table_that_is_not_saved")
    moved = "self.wave.add_(0.01 * x.mean(0))\n        return torch.exp(0.1 * x) * self.wave"
    text = found.task_path.read_text(encoding="utf-8")
    source = text.replace("return torch.exp(0.1 * x) * self.wave", moved)
    assert source != text
    answer = oracle.plan(PlanRequest(Task("moved", source), Candidate.from_file(found.path)))
    assert answer.refusal is not None
    assert answer.refusal.reason == "plan.unsupported"
    assert "forward moves wave" in answer.refusal.evidence
    assert "persistent=True" in answer.refusal.hint


def test_what_forward_leaves_in_attributes_has_no_plan(oracle: Oracle) -> None:
    """No plan writes it."""
    found = case("honest/reads_a_table_that_is_not_saved")
    left = "self.calls = getattr(self, 'calls', 0) + 1\n        return torch.exp(0.1 * x) * self.wave"
    text = found.task_path.read_text(encoding="utf-8")
    source = text.replace("return torch.exp(0.1 * x) * self.wave", left)
    assert source != text
    answer = oracle.plan(PlanRequest(Task("counted", source), Candidate.from_file(found.path)))
    assert answer.refusal is not None
    assert answer.refusal.reason == "plan.unsupported"
    assert "forward leaves calls" in answer.refusal.evidence


def test_a_plan_reads_a_table_that_is_not_saved_where_the_module_has_it(oracle: Oracle) -> None:
    source = plan_of(oracle, "honest/reads_a_table_that_is_not_saved")
    assert "](x, self.wave, t1," in " ".join(source.split()).replace("( x", "(x")
    assert "torch.sin" not in source.partition("class ModelNew")[2]
