"""What answers are measured by: fp64, else the best that there is; and what conditioning allows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.compare.compare import STILL, LeafError, by_conditioning, compare
from egg.evaluator.reference import conditioning
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Yardstick
from egg.evaluator.task.program import Program

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


def reference(
    forward: str, inputs: str, init: str = "pass", precision: Precision = Precision.MATCH
) -> Reference:
    source = (
        f"{HEAD}\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        {forward}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )
    return Reference(Program.load(Task("small", source)), precision, torch.device("cpu"))


def judged(made: Reference, case: Case, answer: torch.Tensor, *, conditioned: bool = True) -> LeafError:
    [(_, expected)], [(_, golden)] = case.outputs, case.golden
    moved = conditioning.moved(made, case, 0) if conditioned else STILL
    return compare(answer, expected, golden, made.precision, moved)


# -- conditioning ----------------------------------------------------------------------------------------


def base_two_softmax(x: torch.Tensor) -> torch.Tensor:
    """Log2e multiplied in before the maximum is taken away: an honest rounding of every argument."""
    scaled = x * 1.4426950408889634
    weights = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    return weights * (1.0 / weights.sum(-1, keepdim=True))


def test_what_the_exponential_makes_of_a_rounded_argument_is_allowed():
    made = reference("return torch.softmax(x, -1)", "300.0 + 0.5 * torch.randn(64, 256)")
    case = made.case("large")
    honest = base_two_softmax(case.inputs[0])
    assert not judged(made, case, honest, conditioned=False).passed
    assert judged(made, case, honest).passed


def test_a_row_that_moves_with_its_maximum_in_some_draws_is_seen_in_others():
    made = reference("return torch.softmax(x, -1)", "torch.rand(32, 128)")
    for _ in range(40):
        case = made.case("large", "large")
        [(_, expected)], [(_, golden)] = case.outputs, case.golden
        moved = conditioning.moved(made, case, 0)
        honest = base_two_softmax(case.inputs[0])
        assert compare(honest, expected, golden, made.precision, moved, banded=True).passed


def test_lower_precision_is_refused_however_the_program_amplifies_it():
    made = reference("return torch.softmax(x, -1)", "300.0 + 0.5 * torch.randn(64, 256)")
    case = made.case("large")
    for lower in (torch.float16, torch.bfloat16):
        assert not judged(made, case, base_two_softmax(case.inputs[0].to(lower).float())).passed
    tf32 = (case.inputs[0].view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)
    assert not judged(made, case, base_two_softmax(tf32)).passed


def test_conditioning_leaves_well_conditioned_programs_as_strict_as_they_were():
    made = reference(
        "return x @ self.w", "torch.randn(64, 128)", "self.w = nn.Parameter(torch.randn(128, 96))"
    )
    case = made.case("product")
    weight = made.module.w
    assert isinstance(weight, torch.Tensor)
    halves = (case.inputs[0].half().float() @ weight.half().float()).detach()
    assert not judged(made, case, halves).passed
    sloppy = torch.zeros(64, 96, dtype=torch.bfloat16)
    for k in range(0, 128, 8):
        sloppy += case.inputs[0][:, k : k + 8].bfloat16() @ weight[k : k + 8].detach().bfloat16()
    assert not judged(made, case, sloppy.float()).passed


def test_bf16_accumulation_is_refused_in_a_bf16_program_too():
    made = reference(
        "return x @ self.w",
        "torch.randn(64, 4096)",
        "self.w = nn.Parameter(torch.randn(4096, 64))",
        Precision.BF16,
    )
    case = made.case("product")
    weight = made.module.w
    assert isinstance(weight, torch.Tensor)
    sloppy = torch.zeros(64, 64, dtype=torch.bfloat16)
    for k in range(0, 4096, 8):
        sloppy += case.inputs[0][:, k : k + 8] @ weight[k : k + 8].detach()
    assert not judged(made, case, sloppy).passed


TOWER = "self.tower = nn.Sequential(nn.Linear(48, 96), nn.SiLU(), nn.Linear(96, 24)).bfloat16()"


def test_16_bit_layers_of_a_program_with_fp32_inputs_round_as_they_do():
    """An embedding's table in fp32, a tower in bf16, one number as the result."""
    tower = "y = F.normalize(self.tower(x.bfloat16()), dim=-1).float()"
    forward = f"{tower}; return (y @ y.T / 0.05).logsumexp(1).mean()"
    made = reference(forward, "torch.randn(3, 48)", TOWER)
    case = made.case("normal")
    assert conditioning.moved(made, case, 0).max > 2e-3
    exact = case.golden[0][1]
    assert judged(made, case, (exact * (1 + 1e-3)).float()).passed
    assert not judged(made, case, (exact * 1.5).float()).passed


def test_a_gain_of_16_bits_does_not_make_the_program_one():
    init = "self.w = nn.Parameter(torch.randn(96, 48)); self.gain = nn.Parameter(torch.ones(96).bfloat16())"
    made = reference("return F.linear(x, self.w) * self.gain", "torch.randn(32, 48)", init)
    case = made.case("normal")
    coarse = (case.inputs[0].bfloat16() @ made.module.w.detach().bfloat16().T).float()
    assert not judged(made, case, coarse).passed


def test_looking_at_conditioning_leaves_the_exact_answer_as_it_is():
    """An exact answer with other signs would make the reference look wrong, and allow any candidate that."""
    made = reference("return x @ x.T", "torch.randn(32, 64)")
    case = made.case("signed")
    [(_, exact)] = case.golden
    before = exact.clone()
    rough = case.inputs[0].bfloat16().float()
    assert not judged(made, case, rough @ rough.T).passed
    assert torch.equal(exact, before)


def test_a_threshold_that_a_rounding_crosses_allows_nobody_anything():
    """The floor of whole numbers jumps by one for half of all roundings: that is no conditioning."""
    made = reference("return torch.floor(x)", "torch.arange(4096.0).reshape(64, 64) + 1.0")
    case = made.case("whole numbers")
    moved = conditioning.moved(made, case, 0)
    assert moved.max == 0.0
    wrong = case.outputs[0][1].clone()
    wrong[3, 5] += 0.5
    assert not judged(made, case, wrong).passed


# -- numbers that are none -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", ["float('-inf')", "torch.finfo(x.dtype).min"])
def test_masked_elements_may_be_what_the_reference_makes_of_them(mask: str):
    made = reference(f"return x.masked_fill(x > 0, {mask})", "torch.randn(16, 32)")
    case = made.case("masked")
    right = case.outputs[0][1].clone()
    error = judged(made, case, right, conditioned=False)
    assert error.passed
    assert error.relative == 0.0
    for hidden in (0.0, float("nan")):
        wrong = torch.where(case.inputs[0] > 0, hidden, right)
        assert not judged(made, case, wrong, conditioned=False).passed
    elsewhere = right.clone()
    elsewhere[case.inputs[0] <= 0] = float("nan")
    assert not judged(made, case, elsewhere, conditioned=False).passed


def test_rows_without_an_answer_must_have_none():
    made = reference("return torch.softmax(x.masked_fill(x < 9, float('-inf')), -1)", "torch.randn(4, 8)")
    case = made.case("all masked")
    assert made.finite_share == 0.0
    assert judged(made, case, torch.full((4, 8), float("nan")), conditioned=False).passed
    assert not judged(made, case, torch.zeros(4, 8), conditioned=False).passed


# -- where there is no ordinary fp64 run ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "excused"),
    [
        ("return x * torch.full((64,), 0.7)", False),
        ("return x.float().tanh() * 0.7", False),
        ("return (x * 0.7).float().tanh() * 0.7", True),
        ("return (x.float() * 0.7).to(torch.bfloat16).float() * 0.7", True),
    ],
)
def test_inputs_of_16_bits_excuse_none_where_the_program_rounds_to_32(forward: str, excused: bool) -> None:
    made = reference(forward, "torch.randn(64, 64).to(torch.bfloat16)")
    case = made.case("a question")
    [(_, expected)] = case.outputs
    moved = conditioning.moved(made, case, 0)
    size = float(expected.double().square().mean().sqrt())
    assert (moved.rms > 2.0**-12 * size) is excused


def test_dropout_is_measured_in_fp64_on_the_same_mask():
    made = reference(
        "return F.dropout(x @ self.w, 0.4, True)",
        "torch.randn(64, 256)",
        "self.w = nn.Parameter(torch.randn(256, 64))",
    )
    case = made.case("dropout")
    assert made.yardstick is Yardstick.DRAWS
    [(_, given)], [(_, exact)] = case.outputs, case.golden
    assert exact.dtype == torch.float64
    assert torch.equal(given == 0, exact == 0)
    assert 0 < float((given.double() - exact).abs().max()) < 1e-4
    weight = made.module.w
    assert isinstance(weight, torch.Tensor)
    other_order = (case.inputs[0].flip(1) @ weight.detach().flip(0)) * (given != 0) / 0.6
    assert judged(made, case, other_order, conditioned=False).passed


@pytest.mark.parametrize(
    "draw",
    ["x + torch.randn_like(x)", "x * torch.rand(x.shape)", "x * torch.bernoulli(torch.full_like(x, 0.3))",
     "x + torch.empty_like(x).uniform_(-1, 1)", "nn.functional.alpha_dropout(x, 0.3, True)"],
)  # fmt: skip
def test_other_draws_are_repeated_too(draw: str):
    made = reference(f"return {draw}", "torch.randn(32, 16)")
    case = made.case("drawn")
    assert made.yardstick is Yardstick.DRAWS
    [(_, given)], [(_, exact)] = case.outputs, case.golden
    assert exact.dtype == torch.float64
    torch.testing.assert_close(given.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("forward", "random"),
    [
        ("return x * (1.0 + 1e-5 * torch.rand_like(x))", True),
        ("return x + 0.0 * torch.rand_like(x)", False),
        ("torch.manual_seed(3); return x + torch.rand_like(x)", False),
        ("return x.sum(1)", False),
    ],
)
def test_noise_below_a_thousandth_is_noise(forward: str, random: bool) -> None:
    made = reference(forward, "torch.randn(64, 64)")
    assert made.stochastic is random
    case = made.case("a question")
    [(_, expected)], [(_, golden)] = case.outputs, case.golden
    assert float((expected - golden).abs().max()) < 1e-6 * float(golden.abs().max())
    made.draws(made.draw())
    assert made.stochastic is random


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "forward",
    [
        "return x / (x.square().sum(1, keepdim=True) + torch.finfo(x.dtype).eps)",
        "return F.rms_norm(x, (64,))",
        "return nn.RMSNorm(64, elementwise_affine=False)(x)",
    ],
)
def test_an_exacter_run_has_the_guards_of_the_type_that_the_reference_has(forward: str, kind: str) -> None:
    made = reference(forward, f"1e-4 * torch.randn(64, 64).to(torch.{kind})")
    before = torch.finfo, torch.rms_norm
    case = made.case("a question")
    assert (torch.finfo, torch.rms_norm) == before
    [(_, expected)], [(_, golden)] = case.outputs, case.golden
    step = 1e-5 if kind == "float32" else 3e-2
    torch.testing.assert_close(
        expected.double(), golden.double(), rtol=step, atol=step * float(golden.abs().max())
    )


def test_masks_by_the_least_number_of_a_type_stay_beyond_the_narrow_one() -> None:
    made = reference("return x.masked_fill(x < 0, torch.finfo(x.dtype).min)", "torch.randn(64, 64)")
    [(_, golden)] = made.case("a question").golden
    assert float(golden.min()) < 2.0 * torch.finfo(torch.float32).min


def test_an_honest_16_bit_dropout_is_within_what_its_rounding_allows():
    """Where its error counted as none, another order of rounding was too much."""
    made = reference(
        "return F.dropout(torch.tanh(x @ self.w) * 0.7 - 0.1, 0.25, True)",
        "torch.randn(64, 128)",
        "self.w = nn.Parameter(torch.randn(128, 64) / 11)",
        Precision.BF16,
    )
    case = made.case("dropout")
    weight = made.module.w
    assert isinstance(weight, torch.Tensor)
    mask = case.outputs[0][1] != 0
    fused = torch.tanh(case.inputs[0].float() @ weight.detach().float()) * 0.7 - 0.1
    fused = (fused * mask / 0.75).bfloat16()
    assert judged(made, case, fused, conditioned=False).passed
    assert not compare(fused, case.outputs[0][1], case.outputs[0][1], made.precision).passed


def test_a_dtype_fixed_in_code_is_widened():
    made = reference(
        "return F.linear(x.to(torch.float32).exp().to(torch.float32), self.w)",
        "torch.randn(16, 32)",
        "self.w = nn.Parameter(torch.randn(8, 32))",
    )
    case = made.case("cast")
    assert made.yardstick is Yardstick.WIDENED
    assert case.golden[0][1].dtype == torch.float64
    assert any("widened" in warning for warning in made.warnings)


def test_complex_weights_keep_their_imaginary_part_in_fp64():
    made = reference(
        "return torch.fft.irfft(torch.fft.rfft(x) * self.w, n=32)",
        "torch.randn(16, 32)",
        "self.w = nn.Parameter(torch.randn(17, dtype=torch.complex64))",
    )
    case = made.case("fft")
    assert made.yardstick is Yardstick.FP64
    torch.testing.assert_close(case.outputs[0][1].double(), case.golden[0][1], rtol=1e-4, atol=1e-4)


def test_a_draw_that_cannot_be_repeated_leaves_the_reference_and_its_conditioning():
    made = reference(
        "return F.rrelu(x @ self.w, training=True)",
        "torch.randn(32, 64)",
        "self.w = nn.Parameter(torch.randn(64, 32))",
    )
    case = made.case("rrelu")
    assert made.yardstick is Yardstick.ITSELF
    given: Any = case.outputs[0][1]
    assert case.golden[0][1] is given
    assert judged(made, case, given * (1 + 2e-7)).passed
    assert not judged(made, case, given * (1 + 2e-4)).passed


def test_a_stand_in_that_is_far_at_one_question_stays_for_the_others():
    """A residual in fp32 around a layer in fp16, at numbers that are zero in fp16: with its casts widened the
    program computes something else there. What the layer's own roundings make of it is allowed."""
    made = reference(
        "y = x.half().float(); y = (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-30)).half(); "
        "return x + F.linear(F.silu(F.linear(y, self.w) + self.b), self.w).float()",
        "torch.randn(64, 64)",
        "self.w = nn.Parameter(torch.randn(64, 64).half() / 8); self.b = nn.Parameter(torch.rand(64).half())",
    )
    weight, bias = (made.module.get_parameter(name).detach().float() for name in ("w", "b"))
    assert made.case("own").yardstick is Yardstick.WIDENED
    minute = made.answer("minute", [torch.randn(64, 64) * 1e-12])
    assert minute.yardstick is Yardstick.ITSELF
    fused = torch.nn.functional.silu(bias).expand(64, 64)
    honest = minute.inputs[0] + (fused @ weight.T).half().float()
    assert not judged(made, minute, honest, conditioned=False).passed
    assert judged(made, minute, honest).passed
    assert not judged(made, minute, honest * 1.02).passed
    assert made.case("own").yardstick is Yardstick.WIDENED


# -- state that forward moves ------------------------------------------------------------------------------

LEVEL = "self.register_buffer('level', torch.zeros(48))"
MOVES = "self.level = self.level * 0.9 + x.mean(0) * 0.1", "self.level.mul_(0.9).add_(x.mean(0), alpha=0.1)"


@pytest.mark.parametrize("moves", MOVES, ids=["another buffer", "in place"])
def test_what_follows_from_a_buffer_that_forward_moves_is_not_random(moves: str):
    """The exact run begins where the reference's did, before or behind it."""
    made = reference(f"{moves}; return x * 0.5 + self.level", "torch.randn(32, 48)", LEVEL)
    assert not made.stochastic
    assert made.moving == {"level"}
    for _ in range(3):
        before = made.module.level.clone()
        case = made.case("normal")
        assert case.yardstick is Yardstick.FP64
        level = before.double() * 0.9 + case.inputs[0].double().mean(0) * 0.1
        torch.testing.assert_close(case.golden[0][1], case.inputs[0].double() * 0.5 + level)
        torch.testing.assert_close(made.module.level.double(), level, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("saved", [True, False])
def test_the_exact_run_of_a_program_that_draws_begins_where_the_reference_did(saved: bool):
    forward = f"{MOVES[1]}; return F.dropout(x, 0.5) + self.level"
    level = LEVEL.replace("(48)", f"(48), persistent={saved}")
    made = reference(forward, "torch.randn(32, 48)", level)
    assert made.stochastic
    for _ in range(3):
        case = made.case("normal")
        assert case.yardstick is Yardstick.DRAWS
        torch.testing.assert_close(case.golden[0][1].float(), case.outputs[0][1], rtol=1e-5, atol=1e-5)


TABLE = "self.register_buffer('table', torch.zeros(1, 48)); self.ready = False"
WRITTEN = "self.table.copy_(torch.arange(48.0))"
ANOTHER = "self.register_buffer('table', torch.arange(48.0).expand(len(x), 48).clone())"


@pytest.mark.parametrize("made", [WRITTEN, ANOTHER], ids=["written", "another buffer"])
def test_a_table_that_the_first_call_makes_is_there_in_every_other(made: str):
    """Where the buffer goes back to what it was, the flag that says what it is goes with it."""
    forward = f"\n        if not self.ready: {made}; self.ready = True\n        return x + self.table"
    module = reference(forward, "torch.randn(32, 48)", TABLE)
    assert not module.stochastic
    for _ in range(3):
        with module.spared():
            module.run(module.draw())
        case = module.case("normal")
        for answer in (case.outputs, case.golden):
            wanted = case.inputs[0] + torch.arange(48.0)
            torch.testing.assert_close(answer[0][1].float(), wanted, rtol=1e-5, atol=1e-5)


def test_an_exact_run_of_another_shape_is_none():
    """Bits of a tensor are twice as many in fp64."""
    made = reference("return x.view(torch.int32).float()", "torch.randn(32, 48)")
    case = made.case("normal")
    assert case.yardstick is not Yardstick.FP64
    assert case.golden[0][1].shape == case.outputs[0][1].shape


# -- what is rounded on the way to an answer -------------------------------------------------------------

HALF, SINGLE = 2.0**-8, 2.0**-24


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("y = x.float() * 2; return y, y.bfloat16()", (SINGLE, HALF)),
        ("y = x * 2; return y.float(), x.float() + 1", (HALF, SINGLE)),
        ("y = torch.zeros(4); y[1:] = (x * 2)[1:]; return y, y.float()", (HALF, HALF)),
        ("y = x.float() * float((x * 2).sum()); return y, x.float().exp()", (HALF, HALF)),
        ("return x.float().mul(2), torch.empty(4).copy_(x).mul_(2).long()", (SINGLE, SINGLE)),
        ("return x.float(), x", (0.0, 0.0)),
    ],
)
def test_the_coarsest_rounding_is_that_on_the_way_to_each_answer(forward: str, expected: tuple[float, ...]):
    made = reference(forward, "torch.randn(4).bfloat16()")
    noted = conditioning._roundings(made, made.case("any"))
    assert noted.answers == expected


def test_an_answer_in_fp32_is_not_excused_by_one_of_16_bits_beside_it():
    made = reference("y = F.silu(x.float()); return y, y.bfloat16()", "torch.randn(64, 128).bfloat16()")
    case = made.case("any")
    exact = case.golden[0][1]
    allowed = conditioning.moved(made, case, 0)
    assert not compare(exact.bfloat16().float(), case.outputs[0][1], exact, made.precision, allowed).passed


def test_a_row_that_a_composed_function_leaves_nothing_of_is_not_lost():
    made = reference("return F.softplus(x)", "40.0 * torch.randn(64, 128)")
    inputs = 40.0 * torch.randn(64, 128)
    inputs[3] = -25.0 - torch.rand(128)
    case = made.answer("a row far below zero", [inputs])
    [(_, expected)], [(_, golden)] = case.outputs, case.golden
    composed = torch.where(inputs > 20.0, inputs, torch.log(1.0 + torch.exp(inputs)))
    assert compare(composed, expected, golden, made.precision).lost_ratio > 1.0
    functions = conditioning.by_functions(made, case, 0)
    assert compare(composed, expected, golden, made.precision, functions).lost_ratio <= 1.0
    coarse = golden.float()
    coarse[3] = 1e-6
    assert compare(coarse, expected, golden, made.precision, functions).lost_ratio > 1.0


def test_slow_waves_are_not_as_wrong_as_fast_ones_may_be():
    made = reference(
        "return torch.where(x > 0, torch.sin(3000.0 * x), torch.sin(0.5 * x))", "torch.randn(64, 128)"
    )
    case = made.case("waves")
    [(_, expected)], [(_, golden)] = case.outputs, case.golden
    moves = conditioning.sensitivity(made, case, 0)
    x = case.inputs[0]
    honest = torch.where(x > 0, torch.sin(x * 3000.0), torch.sin(x / 2.0))
    coarse = torch.where(x > 0, honest, honest * (1.0 - 6e-5))
    error = compare(coarse, expected, golden, made.precision, banded=True)
    assert error.passed
    assert error.suspected
    assert by_conditioning((coarse, expected, golden), moves, made.precision, {}).ratio > 1.0
    assert by_conditioning((honest, expected, golden), moves, made.precision, {}).ratio <= 1.0
