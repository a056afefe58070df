"""Right is right in any order of summation; a lower precision, or one wrong element, is not."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.policy import Precision
from egg.evaluator.compare.compare import Usual, compare
from egg.evaluator.tensors import memory

MATCH, TF32, BF16, FP16 = Precision.MATCH, Precision.TF32, Precision.BF16, Precision.FP16
SEEDS = st.integers(0, 2**31)
property_test = settings(max_examples=15, deadline=None)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rounded_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    """Round the mantissa to ten bits, to nearest even, as tensor cores are fed."""
    bits = tensor.float().contiguous().view(torch.int32)
    kept = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    return kept.view(torch.float32)


def product(seed: int, size: int = 96) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    a, b = normal(size, size, seed=seed), normal(size, size, seed=seed + 1)
    return a, b, a.double() @ b.double()


def in_blocks(a: torch.Tensor, b: torch.Tensor, block: int) -> torch.Tensor:
    """The product summed in another order: over blocks of the inner dimension, the last first."""
    parts = [a[:, k : k + block] @ b[k : k + block] for k in reversed(range(0, a.shape[1], block))]
    return torch.stack(parts).sum(0)


# right answers


@property_test
@given(SEEDS)
def test_the_reference_itself_passes(seed):
    a, b, golden = product(seed)
    error = compare(a @ b, a @ b, golden, MATCH)
    assert error.passed
    assert error.max_ratio <= 0.25 + 1e-9
    assert error.rms_ratio <= 0.5 + 1e-9
    assert error.kernelbench


@property_test
@given(SEEDS)
def test_the_exact_answer_passes(seed):
    a, b, golden = product(seed)
    assert compare(golden.float(), a @ b, golden, MATCH).passed


@property_test
@given(SEEDS, st.sampled_from((8, 16, 32)))
def test_another_order_of_summation_passes(seed, block):
    a, b, golden = product(seed)
    assert compare(in_blocks(a, b, block), a @ b, golden, MATCH).passed


@property_test
@given(SEEDS)
def test_another_order_of_a_long_sum_passes_where_the_reference_is_lucky(seed):
    x = torch.rand(8, 4096, generator=torch.Generator().manual_seed(seed))
    golden = x.double().sum(1)
    lucky = golden.float()
    serial = x.cumsum(1)[:, -1]
    assert compare(serial, lucky, golden, MATCH).passed


# lower precision


@property_test
@given(SEEDS)
def test_a_product_in_lower_precision_fails_where_fp32_is_the_rule(seed):
    a, b, golden = product(seed)
    for lower in (
        rounded_to_tf32(a) @ rounded_to_tf32(b),
        (a.bfloat16() @ b.bfloat16()).float(),
        (a.half() @ b.half()).float(),
        a.bfloat16().float() @ b.bfloat16().float(),
    ):
        error = compare(lower, a @ b, golden, MATCH)
        assert not error.passed
        assert error.rms_ratio > 10
        assert not compare(lower, a @ b, golden, Precision.FP32).passed


@property_test
@given(SEEDS)
def test_tf32_passes_under_its_own_policy_and_bf16_does_not(seed):
    a, b, golden = product(seed)
    reference = rounded_to_tf32(a) @ rounded_to_tf32(b)
    assert compare(in_blocks(rounded_to_tf32(a), rounded_to_tf32(b), 16), reference, golden, TF32).passed
    assert compare(a @ b, reference, golden, TF32).passed
    assert not compare(a.bfloat16().float() @ b.bfloat16().float(), reference, golden, TF32).passed


def test_tf32_policy_is_measured_where_the_library_did_not_use_it():
    a, b, golden = product(3)
    strict = a @ b
    assert compare(rounded_to_tf32(a) @ rounded_to_tf32(b), strict, golden, TF32).passed
    assert not compare(a.bfloat16().float() @ b.bfloat16().float(), strict, golden, TF32).passed


@pytest.mark.parametrize(("dtype", "policy"), [(torch.bfloat16, BF16), (torch.float16, FP16)])
@property_test
@given(seed=SEEDS)
def test_half_precision_passes_under_its_own_policy(dtype, policy, seed):
    a, b = normal(96, 96, seed=seed).to(dtype), normal(96, 96, seed=seed + 1).to(dtype)
    golden = a.double() @ b.double()
    reference = (a.float() @ b.float()).to(dtype)
    assert compare(in_blocks(a.float(), b.float(), 16).to(dtype), reference, golden, policy).passed
    wrong = reference.clone()
    wrong[3, 5] += 64.0
    assert not compare(wrong, reference, golden, policy).passed


def test_bf16_accumulation_fails_a_bf16_task():
    a, b = normal(64, 1024, seed=1).bfloat16(), normal(1024, 64, seed=2).bfloat16()
    golden = a.double() @ b.double()
    reference = (a.float() @ b.float()).bfloat16()
    sloppy = torch.zeros(64, 64, dtype=torch.bfloat16)
    for k in range(0, 1024, 8):
        sloppy += a[:, k : k + 8] @ b[k : k + 8]
    assert not compare(sloppy, reference, golden, BF16).passed


# wrong answers


@property_test
@given(SEEDS, st.integers(0, 999_999), st.sampled_from((0.0, 1.01, -1.0, 2.0)))
def test_one_wrong_element_among_a_million_fails(seed, where, factor):
    golden = normal(1_000_000, seed=seed, dtype=torch.float64) + 3.0
    reference = golden.float()
    wrong = reference.clone()
    wrong[where] *= factor
    assert (
        abs(float(wrong[where] - reference[where])) < 1e-4
        or not compare(wrong, reference, golden, MATCH).passed
    )


@pytest.mark.parametrize("answer", [torch.zeros(64, 64), torch.ones(64, 64), torch.full((64, 64), 1e30)])
def test_a_constant_fails(answer):
    a, b, golden = product(0, 64)
    assert not compare(answer, a @ b, golden, MATCH).passed


def test_a_small_bias_everywhere_fails_by_its_rms():
    golden = normal(100_000, dtype=torch.float64)
    reference = golden.float()
    reference[0] += 1e-4  # an outlier of the reference widens the allowed maximum, not the allowed rms
    biased = golden.float() + 1e-4
    error = compare(biased, reference, golden, MATCH)
    assert error.max_ratio <= 1.0
    assert error.rms_ratio > 1.0
    assert not error.passed


@property_test
@given(SEEDS, st.integers(-60, 60))
def test_scaling_everything_by_a_power_of_two_changes_nothing(seed, exponent):
    a, b, golden = product(seed, 32)
    reference, candidate = a @ b, in_blocks(a, b, 8)
    scale = 2.0**exponent
    plain = compare(candidate, reference, golden, MATCH)
    scaled = compare(candidate * scale, reference * scale, golden * scale, MATCH)
    assert scaled.max_ratio == pytest.approx(plain.max_ratio, rel=1e-9)
    assert scaled.rms_ratio == pytest.approx(plain.rms_ratio, rel=1e-9)
    assert scaled.relative == pytest.approx(plain.relative, rel=1e-9)


# NaN and Inf


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_special_values_must_stand_where_the_reference_has_them(special):
    golden = normal(64, dtype=torch.float64)
    golden[5] = special
    reference = golden.float()
    assert compare(reference.clone(), reference, golden, MATCH).passed
    for value in (0.0, math.nan, math.inf, -math.inf):
        other = reference.clone()
        other[5] = value
        same = value == special or (math.isnan(value) and math.isnan(special))
        assert compare(other, reference, golden, MATCH).passed == same
    elsewhere = reference.clone()
    elsewhere[6] = special
    error = compare(elsewhere, reference, golden, MATCH)
    assert not error.passed
    assert "1 elements" in error.problem
    assert not error.kernelbench


def test_where_the_reference_overflows_so_may_the_candidate():
    """fp32 overflows where fp64 does not: the largest number or none is right there, nothing elsewhere."""
    golden = normal(64, dtype=torch.float64)
    golden[:4] = 1e60
    reference = golden.float()
    assert torch.isinf(reference[:4]).all()
    for value, right in ((0.0, False), (-3e38, False), (math.inf, True), (3e38, True), (math.nan, True)):
        candidate = reference.clone()
        candidate[:4] = value
        assert compare(candidate, reference, golden, MATCH).passed is right
    candidate[9] += 0.01
    assert not compare(candidate, reference, golden, MATCH).passed


def test_unwritten_memory_fails():
    golden = normal(4096, dtype=torch.float64)
    candidate = golden.float()
    candidate[-1] = math.nan
    assert not compare(candidate, golden.float(), golden, MATCH).passed


# other types


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_must_be_equal(dtype):
    reference = (torch.arange(100) % 2).to(dtype)
    assert compare(reference.clone(), reference, reference, MATCH).passed
    wrong = reference.clone()
    wrong[17] = 0
    error = compare(wrong, reference, reference, MATCH)
    assert not error.passed
    assert "1 of 100" in error.problem


def test_an_index_may_agree_with_the_fp64_run_instead():
    """A tie that fp32 rounding made: the index of either is right, a third one is not."""
    reference, golden = torch.tensor([3, 1, 2]), torch.tensor([4, 1, 2])
    assert compare(torch.tensor([4, 1, 2]), reference, golden, MATCH).passed
    assert not compare(torch.tensor([5, 1, 2]), reference, golden, MATCH).passed


def test_complex_outputs_are_judged_by_both_parts():
    golden = torch.complex(normal(256, dtype=torch.float64), normal(256, seed=1, dtype=torch.float64))
    reference = golden.to(torch.complex64)
    assert compare(reference.clone(), reference, golden, MATCH).passed
    assert not compare(reference.conj().resolve_conj(), reference, golden, MATCH).passed


def test_fp64_tasks_are_held_to_fp64():
    golden = normal(1000, dtype=torch.float64)
    assert compare(golden.clone(), golden, golden, MATCH).passed
    assert not compare(golden.float().double(), golden, golden, MATCH).passed


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_empty_outputs_pass(shape, dtype):
    nothing = torch.empty(shape, dtype=dtype)
    assert compare(nothing, nothing.clone(), nothing.clone(), MATCH).passed


def test_a_lone_number_is_judged_like_any_other():
    golden = torch.tensor(3.0, dtype=torch.float64)
    assert compare(torch.tensor(3.0), golden.float(), golden, MATCH).passed
    assert not compare(torch.tensor(3.001), golden.float(), golden, MATCH).passed


def test_an_answer_of_zeros_must_be_zero():
    zeros = torch.zeros(16)
    assert compare(zeros.clone(), zeros, zeros.double(), MATCH).passed
    assert not compare(zeros + 1e-20, zeros, zeros.double(), MATCH).passed


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000, 4096])
def test_chunks_change_nothing(monkeypatch, chunk):
    a, b, golden = product(5, 32)
    reference, candidate = a @ b, in_blocks(a, b, 8)
    golden[3, 4] = math.inf
    candidate[9, 9] += 1e-3
    whole = compare(candidate, reference, golden, MATCH)
    monkeypatch.setattr(memory, "CHUNK", chunk)
    parts = compare(candidate, reference, golden, MATCH)
    assert (parts.passed, parts.problem, parts.kernelbench) == (
        whole.passed,
        whole.problem,
        whole.kernelbench,
    )
    assert parts.max_ratio == pytest.approx(whole.max_ratio, rel=1e-9)
    assert parts.rms_ratio == pytest.approx(whole.rms_ratio, rel=1e-9)


def test_kernelbench_rule_is_reported_beside_ours():
    """TF32 passes allclose at 1e-4 on products of values in [0, 1) scaled down: the rule is lenient there."""
    golden = normal(1000, dtype=torch.float64)
    lenient = golden.float() * (1 + 3e-5)
    error = compare(lenient, golden.float(), golden, MATCH)
    assert error.kernelbench
    assert not error.passed


def test_strided_answers_are_compared_by_position():
    golden = normal(16, 8, dtype=torch.float64)
    reference = golden.float()
    transposed = reference.t().contiguous().t()
    assert compare(transposed, reference, golden, MATCH).passed
    assert not compare(reference.t().reshape(16, 8), reference, golden, MATCH).passed


def test_what_the_reference_got_wrong_at_the_tasks_own_call_is_allowed_elsewhere():
    """A library that uses TF32 at one shape and not at another is no measure at the other."""
    torch.manual_seed(0)
    golden = torch.randn(4096, dtype=torch.float64)
    reference = golden.float()
    noise = torch.randn_like(golden) * 5e-4
    candidate = (golden + noise).float()
    assert not compare(candidate, reference, golden, Precision.MATCH).passed
    own = compare(candidate, candidate, golden, Precision.MATCH)
    usual = Usual(own.reference_peak, own.reference_relative)
    assert usual.rms == pytest.approx(5e-4, rel=0.1)
    assert compare(candidate, reference, golden, Precision.MATCH, usual=usual).passed
    worse = (golden + 5 * noise).float()
    assert not compare(worse, reference, golden, Precision.MATCH, usual=usual).passed
    spoilt = candidate.clone()
    spoilt[7] += 0.1
    assert not compare(spoilt, reference, golden, Precision.MATCH, usual=usual).passed


# small elements beside large ones


def exponentials() -> tuple[torch.Tensor, torch.Tensor]:
    exact = torch.exp(6.0 * normal(64, 64, dtype=torch.float64))
    return exact.float(), exact


@pytest.mark.parametrize(
    ("count", "factor", "passes"),
    [(1, 3.9, True), (1, 4.2, False), (16, 3.5, True), (16, 4.2, False), (64, 2.3, True), (64, 2.6, False),
     (1024, 1.95, True), (1024, 2.1, False)],
)  # fmt: skip
def test_few_errors_may_differ_by_chance(count, factor, passes):
    answer = torch.linspace(1.0, 1.5, count, dtype=torch.float64)
    off = 0.02 * torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0).double()
    ours, theirs = (answer + factor * off).float(), (answer + off).float()
    assert compare(ours, theirs, answer, MATCH).passed == passes


@pytest.mark.parametrize(("factor", "passes"), [(3.0, True), (5.0, False)])
def test_where_a_result_cancels_entirely_the_size_of_the_noise_is_chance(factor, passes):
    noises = normal(512), normal(512, seed=1)
    ours, theirs = (1e-8 * noise / noise.square().mean().sqrt() for noise in noises)
    nothing = torch.full((512,), 1e-17, dtype=torch.float64)
    assert compare(factor * ours, theirs, nothing, MATCH).passed == passes
    answer = torch.full((512,), 2e-8, dtype=torch.float64)
    assert not compare(factor * ours + 2e-8, theirs + 2e-8, answer, MATCH).passed


def test_small_elements_beside_large_ones_keep_their_own_value():
    reference, exact = exponentials()
    typical = float(exact.median())
    zeroed = torch.where(reference < typical / 100, 0.0, reference)
    error = compare(zeroed, reference, exact, MATCH)
    assert not error.passed
    assert max(error.max_ratio, error.rms_ratio) <= 1.0 < error.lost_ratio
    assert compare(reference * (1 + 2e-7), reference, exact, MATCH).passed


def test_elements_that_the_reference_loses_too_are_allowed():
    """Results that cancel: both are off by what was added and taken away."""
    _, exact = exponentials()
    big = float(exact.max())
    reference, other = ((exact + shift).float() - shift for shift in (big, -big))
    error = compare(other, reference, exact, MATCH)
    assert error.lost > 0.1
    assert error.passed


# floats of 8 bits


EIGHT = pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])


def quantized(dtype: torch.dtype, *, off: float = 1.0, size: float = 1.0) -> tuple[torch.Tensor, ...]:
    """A candidate whose values are ``off``, the reference and the exact result, as a program rounds them."""
    x = normal(64, 96, dtype=torch.float64) * size
    return (off * x.float()).to(dtype), x.float().to(dtype), x.to(dtype)


@EIGHT
@pytest.mark.parametrize("size", [1.0, 1e-4], ids=["ordinary", "among the smallest numbers"])
def test_eight_bits_of_another_arithmetic_pass(dtype, size):
    _, reference, golden = quantized(dtype, size=size)
    other = (normal(64, 96, dtype=torch.float64) * size).bfloat16().to(dtype)
    assert bool((other.float() != golden.float()).any()) or size < 1.0
    assert compare(other, reference, golden, MATCH).passed


@EIGHT
def test_eight_bits_of_another_scale_do_not_pass(dtype):
    error = compare(*quantized(dtype, off=1.06), MATCH)
    assert not error.passed
    assert error.rms_ratio > 1.0


@EIGHT
def test_eight_bits_rounded_toward_zero_do_not_pass(dtype):
    _, reference, golden = quantized(dtype)
    exact = normal(64, 96, dtype=torch.float64)
    beyond = reference.double().abs() > exact.abs()
    shorter = torch.where(beyond, reference.view(torch.uint8) - 1, reference.view(torch.uint8)).view(dtype)
    assert not compare(shorter, reference, golden, MATCH).passed


@EIGHT
def test_few_elements_of_eight_bits_may_not_be_steps_away(dtype):
    candidate, reference, golden = quantized(dtype)
    wrong = candidate.view(torch.uint8).clone()
    wrong.view(-1)[int(golden.float().argmax())] -= 3
    assert compare(candidate, reference, golden, MATCH).passed
    assert not compare(wrong.view(dtype), reference, golden, MATCH).passed


@EIGHT
def test_a_nan_among_eight_bits_is_seen(dtype):
    candidate, reference, golden = quantized(dtype)
    candidate[1, 2] = math.nan
    assert "1 elements are NaN" in compare(candidate, reference, golden, MATCH).problem


def test_integers_beside_a_boundary_are_counted_over_all_answers():
    reference, candidate = torch.tensor([3, 4]), torch.tensor([4, 4])
    error = compare(candidate, reference, reference, Precision.MATCH, crossed=(candidate,))
    assert error.passed
    assert not (error.crossed + error.crossed).too_many
    assert (error.crossed + error.crossed + error.crossed).too_many
