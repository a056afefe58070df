"""What fusion could save, on operations put together by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.analysis.savings import LAUNCH_MILLISECONDS, accuracy, narrowing, savings
from egg.core.facts import Family, Operation, Savings, TensorForm, Workload
from egg.hardware.gpus import resolve, table
from egg.hardware.roofline import compute_peak

H200 = resolve("H200")
MIB = 1 << 20
BIG = 64 * MIB
"""Elements whose traffic takes much longer than a launch."""


def form(elements: int, dtype: str = "float32", itemsize: int = 4) -> TensorForm:
    return TensorForm(dtype, (elements,), itemsize)


class Trace:
    """Operations over numbered values; value 0 to 9 are given from outside."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.sizes: dict[int, int] = {}

    def given(self, value: int, elements: int = BIG) -> int:
        self.sizes[value] = elements
        return value

    def add(
        self,
        family: Family,
        reads: tuple[int, ...],
        elements: int = BIG,
        flops: float = 0.0,
        launches: int = 1,
        extra: int = 0,
        over: tuple[int, ...] = (),
    ) -> int:
        value = 10 + len(self.operations)
        self.sizes[value] = elements
        inputs = tuple(form(self.sizes[v]) for v in reads)
        out = form(elements)
        moved = sum(f.bytes for f in inputs) + out.bytes + extra
        self.operations.append(
            Operation(
                "made", family, inputs, (out,), flops, moved, launches, reads=(*reads, *over), writes=(value,)
            )
        )
        return value

    def pointwise(self, *reads: int, elements: int = BIG) -> int:
        return self.add(Family.POINTWISE, reads, elements)

    def done(self, *kept: int, least_bytes: int = 0) -> Workload:
        return Workload({"x": form(1)}, {}, {}, tuple(self.operations), least_bytes, kept)

    def times(self, *kept: int) -> Savings:
        return savings(self.done(*kept), H200, "fp32")


def moving(elements: float, launches: int = 1) -> float:
    """Milliseconds for so many floats and launches on the H200."""
    return elements * 4 / H200.bandwidth * 1e3 + launches * LAUNCH_MILLISECONDS


def test_a_chain_becomes_one_pass() -> None:
    trace = Trace()
    value = trace.given(0)
    for _ in range(5):
        value = trace.pointwise(value)
    times = trace.times(value)
    assert times.eager == pytest.approx(moving(10 * BIG, 5))
    assert times.pointwise_fused == pytest.approx(moving(2 * BIG))


def test_other_inputs_are_still_read_and_each_once() -> None:
    trace = Trace()
    x, y = trace.given(0), trace.given(1)
    one = trace.pointwise(x, y)
    two = trace.pointwise(one, y)
    three = trace.pointwise(two, x)
    assert trace.times(three).pointwise_fused == pytest.approx(moving(3 * BIG))


def test_two_chains_that_meet_are_one_kernel() -> None:
    trace = Trace()
    x = trace.given(0)
    left, right = trace.pointwise(trace.pointwise(x)), trace.pointwise(x)
    assert trace.times(trace.pointwise(left, right)).pointwise_fused == pytest.approx(moving(2 * BIG))


def test_what_somebody_else_uses_is_written() -> None:
    trace = Trace()
    first = trace.pointwise(trace.given(0))
    second = trace.pointwise(first)
    assert trace.times(first, second).pointwise_fused == pytest.approx(moving(3 * BIG))
    total = trace.add(Family.REDUCTION, (first,), 1)
    assert trace.times(second, total).pointwise_fused == pytest.approx(moving(4 * BIG + 1, 2))


def test_pointwise_work_rides_on_a_product() -> None:
    trace = Trace()
    a, b, residual = trace.given(0, MIB), trace.given(1, MIB), trace.given(2)
    product = trace.add(Family.PRODUCT, (a, b), flops=1.0)
    out = trace.pointwise(trace.pointwise(product), residual)
    assert trace.times(out).pointwise_fused == pytest.approx(moving(2 * MIB + 2 * BIG))


def test_a_bias_in_a_launch_of_its_own_rides_along() -> None:
    trace = Trace()
    x = trace.given(0)
    out = trace.add(Family.CONVOLUTION, (x,), launches=2, extra=2 * BIG * 4)
    times = trace.times(out)
    assert times.eager == pytest.approx(moving(4 * BIG, 2))
    assert times.pointwise_fused == pytest.approx(moving(2 * BIG, 1))


def test_a_normalization_still_reads_twice() -> None:
    trace = Trace()
    out = trace.add(Family.NORMALIZATION, (trace.given(0),), launches=2, extra=BIG * 4)
    assert trace.times(out).pointwise_fused == trace.times(out).eager == pytest.approx(moving(3 * BIG, 2))


def test_a_sum_is_not_ridden_on_by_what_is_larger() -> None:
    trace = Trace()
    x = trace.given(0)
    total = trace.add(Family.REDUCTION, (x,), 4096)
    out = trace.pointwise(x, total)
    assert trace.times(out).pointwise_fused == pytest.approx(moving(3 * BIG + 2 * 4096, 2))


def test_nor_does_anything_ride_on_what_waits_for_it() -> None:
    """Scaling by a sum of the product: the sum needs the product, so the scaling cannot be part of it."""
    trace = Trace()
    product = trace.add(Family.PRODUCT, (trace.given(0, MIB),))
    total = trace.add(Family.REDUCTION, (product,), 1)
    out = trace.pointwise(product, total)
    assert trace.times(out).pointwise_fused == pytest.approx(moving(MIB + 4 * BIG + 2, 3))


def test_nor_through_a_third() -> None:
    """The chain from the product through a sum comes back to it: neither end may be pulled into the other."""
    trace = Trace()
    product = trace.add(Family.PRODUCT, (trace.given(0, MIB),))
    positive = trace.pointwise(product)
    total = trace.add(Family.REDUCTION, (positive,), 1)
    small = trace.pointwise(total, elements=1)
    out = trace.pointwise(positive, small)
    first = MIB + BIG
    assert trace.times(out).pointwise_fused == pytest.approx(moving(first + (BIG + 1) + (2 * BIG + 1), 3))


def test_a_small_pointwise_result_is_computed_where_it_is_used() -> None:
    trace = Trace()
    gate = trace.pointwise(trace.given(1, 64), elements=64)
    product = trace.add(Family.PRODUCT, (trace.given(0, MIB),))
    out = trace.pointwise(product, gate)
    assert trace.times(out).pointwise_fused == pytest.approx(moving(MIB + 64 + BIG))


def test_what_is_written_over_in_part_must_be_in_memory() -> None:
    trace = Trace()
    whole = trace.pointwise(trace.given(0))
    patched = trace.add(Family.MOVEMENT, (trace.given(1, MIB),), MIB, over=(whole,))
    out = trace.pointwise(patched)
    assert trace.times(out).pointwise_fused == pytest.approx(moving(3 * BIG + 3 * MIB, 3))


def test_operations_without_values_are_left_as_they_are() -> None:
    op = Operation("made", Family.POINTWISE, (form(BIG),), (form(BIG),), 0.0, 8 * BIG, 1)
    times = savings(Workload({}, {}, {}, (op, op), 8 * BIG), H200, "fp32")
    assert times.eager == pytest.approx(moving(4 * BIG, 2))
    assert times.pointwise_fused <= times.eager


def test_the_whole_is_the_roofline_and_one_launch() -> None:
    trace = Trace()
    flops = 1e15
    out = trace.add(Family.PRODUCT, (trace.given(0),), flops=flops)
    for precision in ("fp32", "tf32", "bf16"):
        times = savings(trace.done(out, least_bytes=8 * BIG), H200, precision)
        expected = flops / compute_peak(H200, precision) * 1e3 + LAUNCH_MILLISECONDS
        assert times.whole == times.eager == pytest.approx(expected)


def test_nothing_to_do_takes_no_time() -> None:
    assert savings(Workload({}, {}, {}, (), 10**9), H200, "match") == Savings(0.0, 0.0, 0.0)


def test_half_precision_moves_half_of_it() -> None:
    trace = Trace()
    work = trace.done(trace.pointwise(trace.given(0)))
    assert savings(work, H200, "bf16").eager == pytest.approx(moving(BIG))
    half = Workload({"x": form(1, "bfloat16", 2)}, {}, {}, work.operations, 0)
    assert savings(half, H200, "bf16").eager == pytest.approx(moving(2 * BIG))


def test_under_match_the_reference_decides() -> None:
    assert accuracy("match", ["int64", "float32"], False) == "fp32"
    assert accuracy("match", ["float32"], True) == "tf32"
    assert accuracy("match", ["float32", "bfloat16"], True) == "bf16"
    assert accuracy("match", ["float8_e4m3fn", "float32"], False) == "fp8"
    assert accuracy("match", [], False) == "fp32"
    assert accuracy("bf16", ["float32"], True) == "bf16"
    assert [narrowing("fp16", [d]) for d in ("float64", "float32", "float16", "int64")] == [4, 2, 1, 1]
    assert narrowing("match", ["float32"]) == 1


# -- whatever the program --------------------------------------------------------------------------


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Any operations over any earlier values, consistent or not: bytes and launches are arbitrary."""
    operations: list[Operation] = []
    sizes = {value: draw(st.integers(0, 1 << 26)) for value in range(3)}
    for _ in range(draw(st.integers(0, 12))):
        reads = draw(st.lists(st.sampled_from(sorted(sizes)), max_size=3, unique=True))
        over = draw(st.lists(st.sampled_from(sorted(sizes)), max_size=1))
        made = range(len(sizes), len(sizes) + draw(st.integers(0, 2)))
        outputs = [draw(st.integers(0, 1 << 26)) for _ in made]
        operations.append(
            Operation(
                "made",
                draw(st.sampled_from(list(Family))),
                tuple(form(sizes[v]) for v in reads),
                tuple(map(form, outputs)),
                draw(st.floats(0, 1e13)),
                draw(st.integers(0, 1 << 30)),
                draw(st.integers(0, 9)),
                (*reads, *over),
                tuple(made),
            )
        )
        sizes.update(zip(made, outputs, strict=True))
    kept = draw(st.lists(st.sampled_from(sorted(sizes)), unique=True))
    return Workload({"x": form(1)}, {}, {}, tuple(operations), draw(st.integers(0, 1 << 34)), tuple(kept))


@given(workloads(), st.sampled_from(table().gpus), st.sampled_from(["match", "fp32", "tf32", "bf16", "fp16"]))
def test_fusing_more_never_takes_longer(work: Workload, gpu, precision: str) -> None:
    times = savings(work, gpu, precision)
    assert 0.0 <= times.whole <= times.pointwise_fused <= times.eager
    assert math.isfinite(times.eager)


@given(st.integers(1, 30), st.integers(1, 1 << 28))
def test_any_chain_takes_as_long_as_one_copy(length: int, elements: int) -> None:
    trace = Trace()
    value = trace.given(0, elements)
    for _ in range(length):
        value = trace.pointwise(value, elements=elements)
    times = trace.times(value)
    assert times.pointwise_fused == pytest.approx(moving(2 * elements))
    assert times.eager == pytest.approx(length * moving(2 * elements))
