"""The judge end to end, on small tasks of our own: what must be accepted, what refused, and what is said."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from egg.core.evaluation import Accepted, Compiled, Evaluation, Gate, Measured, Refusal, Rejected
from egg.core.policy import Level, LibraryCalls, Policy, Precision
from tests.conftest import BRIEF, JudgeFunction

HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

ADD = (
    HEAD
    + """
@triton.jit
def add(x, y, out, n, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, SCALE * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


def plus(x, y, scale=1.0):
    x, y = torch.broadcast_tensors(x, y)
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    add[(triton.cdiv(n, 512),)](x, y, out, n, SCALE=scale, BLOCK=512)
    return out
"""
)

ONE_KERNEL = replace(BRIEF, seeds=1, distributions=("normal",), reweighed=1)


def task(forward: str, inputs: str = "torch.randn(8, 64), torch.randn(8, 64)", init: str = "") -> str:
    """A task whose ``Model`` has this forward, these inputs, and this constructor body."""
    arguments = ", ".join("xyzw"[: inputs.count("torch.")]) if "=" not in forward.split("\n")[0] else ""
    body = "\n".join(f"        {line}" for line in forward.splitlines())
    made = "\n".join(f"        {line}" for line in (init or "pass").splitlines())
    return f"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, {arguments or "x, y"}):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def kernel(forward: str, arguments: str = "x, y", init: str = "", head: str = ADD) -> str:
    body = "\n".join(f"        {line}" for line in forward.splitlines())
    made = "\n".join(f"        {line}" for line in (init or "pass").splitlines())
    return f"""{head}

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, {arguments}):
{body}
"""


SUM = task("return 2.0 * x + y")


def accepted(evaluation: Evaluation) -> Accepted:
    assert isinstance(evaluation.verdict, Accepted), evaluation.verdict
    return evaluation.verdict


def refusal(evaluation: Evaluation) -> Refusal:
    assert isinstance(evaluation.verdict, Rejected), evaluation.verdict
    assert evaluation.gates[-1].passed is False
    return evaluation.verdict.refusal


# what an evaluation says


def test_an_accepted_kernel_and_everything_said_of_it(judged: JudgeFunction):
    evaluation = judged(SUM, kernel("return plus(x, y, 2.0)"))
    verdict = accepted(evaluation)
    assert [record.gate for record in evaluation.gates] == [
        Gate.STATIC, Gate.BUILD, Gate.BUILD, Gate.BUILD, Gate.PROVENANCE, Gate.PROVENANCE,
        Gate.CORRECTNESS, Gate.CORRECTNESS, Gate.CORRECTNESS, Gate.STATE, Gate.DOMAIN,
    ]  # fmt: skip
    assert all(record.passed for record in evaluation.gates)
    assert verdict.provenance.kernels == {"add": 1}
    assert verdict.provenance.library_ops == {}
    assert 0 <= verdict.correctness.worst_max_error <= 1
    assert verdict.correctness.checks >= 4
    assert verdict.correctness.kernelbench
    performance = verdict.performance
    assert isinstance(performance, Compiled)
    assert not isinstance(performance, Measured)
    assert performance.target == "H200"
    [resources] = performance.kernels
    assert (resources.name, resources.grid[0]) == ("add", 1)
    assert resources.registers > 0
    assert evaluation.machine.device == "cpu"
    assert "rlimits" in evaluation.machine.sandbox
    assert Evaluation.from_json(evaluation.to_json()) == evaluation


def test_no_time_can_be_measured_without_a_gpu(judged: JudgeFunction):
    data = judged(SUM, kernel("return plus(x, y, 2.0)"), settings=ONE_KERNEL).to_json()
    assert data["verdict"]["performance"]["kind"] == "compiled"
    assert not [
        key
        for key in data["verdict"]["performance"]
        if key.endswith("milliseconds") and "predicted" not in key
    ]
    data["verdict"]["performance"] = {
        "kind": "measured", "gpu": "NVIDIA H200", "milliseconds": {"median": 1.0, "low": 1.0, "high": 1.0},
        "baselines": [], "noise_floor": 0.0, "wall_milliseconds": 1.0, "wall_speedup": 1.0,
        "floor_milliseconds": None, "faster": True,
    }  # fmt: skip
    with pytest.raises(ValueError, match="without a GPU"):
        Evaluation.from_json(data)


def test_the_target_is_the_one_asked_for(judged: JudgeFunction):
    verdict = accepted(judged(SUM, kernel("return plus(x, y, 2.0)"), settings=ONE_KERNEL, target="A100"))
    assert isinstance(verdict.performance, Compiled)
    assert "A100" in verdict.performance.target


def test_gates_left_out_are_said_so(judged: JudgeFunction):
    evaluation = judged(
        SUM, kernel("return plus(x, y, 2.0)"), skip=(Gate.STATIC, Gate.STATE), settings=ONE_KERNEL
    )
    accepted(evaluation)
    assert {record.gate for record in evaluation.gates}.isdisjoint({Gate.STATIC, Gate.STATE})
    for gate in ("static", "state"):
        assert any(gate in warning and "skipped" in warning for warning in evaluation.warnings)


def test_regrading_uses_new_processes(judged: JudgeFunction):
    settings = replace(ONE_KERNEL, regrades=2)
    evaluation = judged(SUM, kernel("return plus(x, y, 2.0)"), settings=settings)
    accepted(evaluation)
    assert evaluation.gates[-1].gate is Gate.REGRADE
    assert evaluation.gates[-1].notes["processes"] == 2


# outputs of every form


def test_wrong_values_are_refused_with_evidence_and_a_hint(judged: JudgeFunction):
    found = refusal(judged(SUM, kernel("return plus(x, y, 2.001)")))
    assert (found.gate, found.reason) == (Gate.CORRECTNESS, "correctness.error")
    assert "relative rms error" in found.evidence
    assert found.hint


TWO = task("return x + y, 2.0 * x + y")


def test_several_outputs_all_count(judged: JudgeFunction):
    accepted(judged(TWO, kernel("return plus(x, y), plus(x, y, 2.0)"), settings=ONE_KERNEL))
    found = refusal(judged(TWO, kernel("return plus(x, y), plus(x, y, 3.0)"), settings=ONE_KERNEL))
    assert found.gate is Gate.CORRECTNESS
    assert "output 1" in found.evidence
    missing = refusal(judged(TWO, kernel("return plus(x, y)"), settings=ONE_KERNEL))
    assert missing.reason == "correctness.outputs"
    swapped = refusal(judged(TWO, kernel("return plus(x, y, 2.0), plus(x, y)"), settings=ONE_KERNEL))
    assert swapped.gate is Gate.CORRECTNESS


def test_dicts_are_compared_by_key(judged: JudgeFunction):
    both = task('return {"sum": x + y, "more": {"twice": 2.0 * x + y}}')
    right = 'return {"sum": plus(x, y), "more": {"twice": plus(x, y, 2.0)}}'
    accepted(judged(both, kernel(right), settings=ONE_KERNEL))
    renamed = refusal(judged(both, kernel(right.replace("twice", "double")), settings=ONE_KERNEL))
    assert renamed.reason == "correctness.outputs"
    wrong = refusal(judged(both, kernel(right.replace("2.0", "1.0")), settings=ONE_KERNEL))
    assert "more.twice" in wrong.evidence


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("return plus(x, y, 2.0).double()", "correctness.dtype"),
        ("return plus(x, y, 2.0)[None]", "correctness.shape"),
        ("return plus(x, y, 2.0)[:1]", "correctness.shape"),
        ("return [plus(x, y, 2.0), plus(x, y)]", "correctness.outputs"),
        ("plus(x, y, 2.0)", ""),
        ("return str(plus(x, y, 2.0))", ""),
    ],
)
def test_the_form_of_an_output_is_part_of_it(judged: JudgeFunction, forward, reason):
    found = refusal(judged(SUM, kernel(forward), settings=ONE_KERNEL))
    assert found.reason.startswith(reason)
    assert found.gate in (Gate.CORRECTNESS, Gate.PROVENANCE, Gate.BUILD)


NUMBER = task("return 2.0 * x + y, x.shape[1] / 3, 7")


def test_plain_numbers_are_outputs_too(judged: JudgeFunction):
    accepted(judged(NUMBER, kernel("return plus(x, y, 2.0), x.shape[1] / 3, 7"), settings=ONE_KERNEL))
    wrong = ("x.shape[1] / 2, 7", "x.shape[1] / 3, 8", "torch.zeros(()), 7", "plus(x, y), 7")
    for numbers in wrong:
        found = refusal(judged(NUMBER, kernel(f"return plus(x, y, 2.0), {numbers}"), settings=ONE_KERNEL))
        assert found.gate is Gate.CORRECTNESS, numbers


def test_a_task_that_returns_nothing_but_a_number(judged: JudgeFunction):
    """It looks at its data, so it is judged at its own size."""
    total = task("return float((x + y).abs().sum())")
    accepted(judged(total, kernel("return float(plus(x, y).abs().sum())"), settings=ONE_KERNEL))
    found = refusal(judged(total, kernel("plus(x, y)\nreturn 0.0"), settings=ONE_KERNEL))
    assert found.gate in (Gate.PROVENANCE, Gate.CORRECTNESS)


# inputs of every form


def test_integer_inputs_and_outputs(judged: JudgeFunction):
    integers = task("return 2 * x + y", "torch.randint(-99, 99, (8, 64)), torch.randint(-99, 99, (8, 64))")
    accepted(judged(integers, kernel("return plus(x, y, 2)"), settings=ONE_KERNEL))
    found = refusal(judged(integers, kernel("return plus(x, y, 3)"), settings=ONE_KERNEL))
    assert "integer elements differ" in found.evidence


def test_inputs_that_are_no_tensors(judged: JudgeFunction):
    mixed = task("return 2.0 * x['a'] + y", "{'a': torch.randn(8, 64), 'k': 3}, torch.randn(8, 64)")
    accepted(judged(mixed, kernel("return plus(x['a'], y, 2.0)"), settings=ONE_KERNEL))
    scaled = task("return y * x + x", "3, torch.randn(8, 64)").replace(
        "forward(self, x)", "forward(self, x, y)"
    )
    accepted(judged(scaled, kernel("return plus(y, torch.full_like(y, x), float(x))"), settings=ONE_KERNEL))


def test_strided_inputs_arrive_strided(judged: JudgeFunction):
    turned = task("return 2.0 * x + y", "torch.randn(64, 8).t(), torch.randn(8, 64)")
    found = refusal(
        judged(turned, kernel("return plus(x.view(-1).view(8, 64), y, 2.0)"), settings=ONE_KERNEL)
    )
    assert found.gate in (Gate.BUILD, Gate.PROVENANCE, Gate.CORRECTNESS)
    accepted(judged(turned, kernel("return plus(x.contiguous(), y, 2.0)"), settings=ONE_KERNEL))


def test_an_input_that_was_changed_is_refused(judged: JudgeFunction):
    found = refusal(judged(SUM, kernel("out = plus(x, y, 2.0)\nx.zero_()\nreturn out"), settings=ONE_KERNEL))
    assert found.gate in (Gate.PROVENANCE, Gate.CORRECTNESS)
    assert found.reason in ("correctness.inputs", "correctness.error", "state.stale", "provenance.decoy")


# parameters

LINEAR = task(
    "return x * self.scale + self.shift",
    "torch.randn(8, 64)",
    "self.scale = nn.Parameter(torch.randn(64))\nself.shift = nn.Parameter(torch.randn(64))",
)
SCALED = (
    HEAD
    + """
@triton.jit
def affine(x, a, b, out, n, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, mask=inside) * tl.load(a + i % C) + tl.load(b + i % C)
    tl.store(out + i, v, mask=inside)


def apply(x, a, b):
    x = x.contiguous()
    out = torch.empty_like(x)
    affine[(triton.cdiv(x.numel(), 512),)](x, a, b, out, x.numel(), C=64, BLOCK=512)
    return out
"""
)


def affine_kernel(forward: str, init: str) -> str:
    return kernel(forward, "x", init, SCALED)


BOTH = "self.scale = nn.Parameter(torch.randn(64))\nself.shift = nn.Parameter(torch.randn(64))"


def test_parameters_are_matched_by_name(judged: JudgeFunction):
    evaluation = judged(
        LINEAR, affine_kernel("return apply(x, self.scale, self.shift)", BOTH), settings=ONE_KERNEL
    )
    accepted(evaluation)
    assert evaluation.gates[2].notes["parameters"] == "by name"
    assert not [w for w in evaluation.warnings if "initial values" in w]


def test_parameters_are_matched_by_order_where_names_differ(judged: JudgeFunction):
    init = BOTH.replace("self.scale", "self.a").replace("self.shift", "self.b")
    evaluation = judged(LINEAR, affine_kernel("return apply(x, self.a, self.b)", init), settings=ONE_KERNEL)
    accepted(evaluation)
    assert evaluation.gates[2].notes["parameters"] == "by order"


def test_other_initial_values_are_a_warning(judged: JudgeFunction):
    swapped = "\n".join(reversed(BOTH.splitlines()))
    evaluation = judged(
        LINEAR, affine_kernel("return apply(x, self.scale, self.shift)", swapped), settings=ONE_KERNEL
    )
    accepted(evaluation)
    assert any("initial values differ" in warning for warning in evaluation.warnings)


def test_a_parameter_of_another_shape_is_refused(judged: JudgeFunction):
    init = BOTH.replace(
        "self.scale = nn.Parameter(torch.randn(64))", "self.scale = nn.Parameter(torch.randn(32))"
    )
    found = refusal(judged(LINEAR, affine_kernel("return apply(x, self.scale, self.shift)", init)))
    assert (found.gate, found.reason) == (Gate.BUILD, "build.parameters")
    assert "scale" in found.evidence


def test_weights_that_are_no_parameters_are_seen_through(judged: JudgeFunction):
    """Built from the known seed they are right at first, and wrong as soon as the weights are others."""
    hidden = re.sub(r"nn\.Parameter\((torch\.\w+)\((\d+)\)\)", r"\1(\2, device='cuda')", BOTH)
    assert "Parameter" not in hidden
    found = refusal(judged(LINEAR, affine_kernel("return apply(x, self.scale, self.shift)", hidden)))
    assert found.gate in (Gate.BUILD, Gate.CORRECTNESS)


DIVIDED = (
    HEAD
    + """
@triton.jit
def double(source, result, place, n, BLOCK: tl.constexpr):
    i = place * BLOCK + tl.arange(0, BLOCK)
    tl.store(result + i, 2.0 * tl.load(source + i, mask=i < n), mask=i < n)


@triton.jit
def double_both(x, y, a, b, n, m, BLOCK: tl.constexpr):
    place, first = tl.program_id(0), tl.cdiv(n, BLOCK)
    if place < first:
        double(x, a, place, n, BLOCK)
    else:
        double(y, b, place - first, m, BLOCK)
"""
)


def test_a_grid_that_is_divided_among_tensors(judged: JudgeFunction):
    """Of the programs that are followed at the task's own size, few store to either tensor."""
    both = task("return 2.0 * x, 2.0 * y", "torch.randn(8, 4096), torch.randn(64, 4096)")
    body = """x, y = x.contiguous(), y.contiguous()
a, b = torch.empty_like(x), torch.empty_like(y)
grid = (triton.cdiv(x.numel(), 1024) + triton.cdiv(y.numel(), 1024),)
double_both[grid](x, y, a, b, x.numel(), y.numel(), BLOCK=1024)
return a, b"""
    accepted(judged(both, kernel(body, head=DIVIDED)))
    short = body.replace("cdiv(y.numel(), 1024),", "cdiv(y.numel(), 1024) // 2,")
    assert refusal(judged(both, kernel(short, head=DIVIDED))).gate is Gate.CORRECTNESS


# policies


def test_library_calls_are_named_where_they_are_allowed_and_refused_where_not(judged: JudgeFunction):
    product = task("return x @ y + y", "torch.randn(32, 32), torch.randn(32, 32)")
    mixed = kernel("return plus(torch.mm(x, y), y)")
    verdict = accepted(judged(product, mixed, settings=ONE_KERNEL))
    assert verdict.provenance.library_ops == {"mm": 1}
    forbid = Policy(library_calls=LibraryCalls.FORBID, level=Level.QUICK)
    assert refusal(judged(product, mixed, forbid, settings=ONE_KERNEL)).gate in (Gate.STATIC, Gate.PROVENANCE)


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_half_precision_is_accepted_where_it_is_declared(judged: JudgeFunction, precision):
    half = {"bf16": "bfloat16", "fp16": "float16"}[precision.value]
    lower = kernel(f"return plus(x.to(torch.{half}), y.to(torch.{half}), 2.0).to(x.dtype)")
    accepted(judged(SUM, lower, Policy(precision=precision, level=Level.QUICK), settings=ONE_KERNEL))
    found = refusal(judged(SUM, lower, settings=ONE_KERNEL))
    assert (found.gate, found.reason) == (Gate.CORRECTNESS, "correctness.error")
    facts = found.facts
    assert facts is not None
    assert facts.relative_error is not None
    assert f"{facts.relative_error:.2e}" in found.evidence
    assert facts.excess is not None
    assert facts.excess > 1.0
    assert not facts.own_size


# modules with a mind of their own


NORM = "self.norm = nn.BatchNorm1d(8)"
NORMALISE = (
    HEAD
    + """
@triton.jit
def normalise(x, w, b, means, variances, out, ROWS: tl.constexpr, C: tl.constexpr):
    column = tl.program_id(0)
    i = tl.arange(0, ROWS) * C + column
    v = tl.load(x + i)
    mean = tl.sum(v, axis=0) / ROWS
    centred = v - mean
    variance = tl.sum(centred * centred, axis=0) / ROWS
    tl.store(out + i, centred * tl.rsqrt(variance + 1e-5) * tl.load(w + column) + tl.load(b + column))
    tl.store(means + column, 0.9 * tl.load(means + column) + 0.1 * mean)
    tl.store(variances + column, 0.9 * tl.load(variances + column) + 0.1 * variance * ROWS / (ROWS - 1))
"""
)
TRAINED = kernel(
    """assert self.training and x.shape == (16, 8)
x = x.contiguous()
out = torch.empty_like(x)
norm = self.norm
normalise[(8,)](x, norm.weight, norm.bias, norm.running_mean, norm.running_var, out, ROWS=16, C=8)
return out""",
    "x",
    NORM,
    NORMALISE,
)


def test_batch_norm_runs_in_training_mode(judged: JudgeFunction):
    accepted(judged(task("return self.norm(x)", "torch.randn(16, 8) * 3 + 1", NORM), TRAINED))


def test_statistics_may_be_off_by_as_much_as_those_of_the_reference(judged: JudgeFunction):
    """The reference rounds to an eighth before it norms; the kernel does not: it is nearer to an fp64 run."""
    rounding = task("return self.norm((x + 1048576.0) - 1048576.0)", "torch.randn(16, 8) * 3 + 1", NORM)
    accepted(judged(rounding, TRAINED))
    other = TRAINED.replace("0.1 * mean", "0.3 * mean")
    assert refusal(judged(rounding, other)).reason == "state.buffers"


def test_a_task_that_draws_random_numbers_is_judged_after_the_same_seed(judged: JudgeFunction):
    dropped = task("return F.dropout(x, 0.5) + y")
    right = kernel("return plus(nn.functional.dropout(x, 0.5), y)")
    evaluation = judged(dropped, right, settings=ONE_KERNEL)
    accepted(evaluation)
    assert any("random numbers" in warning for warning in evaluation.warnings)
    refusal(judged(dropped, kernel("return plus(x, y)"), settings=ONE_KERNEL))


# candidates that fail


RIGHT = kernel("return plus(x, y, 2.0)")
NEEDS_A_SIZE = "\nclass ModelNew(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n"
FAILING = {
    "import": (f"{RIGHT}\nraise ValueError('at import')\n", "candidate.error"),
    "constructor": (ADD + NEEDS_A_SIZE, "candidate.error"),
    "name": (kernel("return plus(x, y, 2.0) + missing"), "candidate.error"),
    "signature": (kernel("return plus(x, y, 2.0)", "x"), "candidate.error"),
    "compile": (RIGHT.replace("tl.load(y + i", "tl.lode(y + i"), "build.compile"),
    "bounds": (RIGHT.replace("tl.load(y + i", "tl.load(y + i + 1"), "kernel.out_of_bounds"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_candidate_that_fails_is_data(judged: JudgeFunction, name):
    code, reason = FAILING[name]
    found = refusal(judged(SUM, code, settings=ONE_KERNEL))
    assert found.gate in (Gate.BUILD, Gate.PROVENANCE)
    assert found.reason == reason
    assert found.hint
    assert found.facts is not None
    if name == "name":
        assert (found.facts.function, found.facts.functions) == ("forward", ("forward",))
        assert "missing" in code.splitlines()[(found.facts.line or 0) - 1]
    if name == "bounds":
        assert "add" in found.facts.functions


def test_the_judge_goes_on_after_a_crash(judged: JudgeFunction):
    crash = kernel("import os\nos.abort()")
    found = refusal(judged(SUM, crash, skip=(Gate.STATIC,), settings=ONE_KERNEL))
    assert found.reason == "limits.died"
    accepted(judged(SUM, kernel("return plus(x, y, 2.0)"), settings=ONE_KERNEL))
