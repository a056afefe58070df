"""Predicted times: crude, always a number, and monotone where a kernel engineer expects it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.evaluation import Compiled, KernelResources
from egg.hardware.estimate import (
    LAUNCH_MILLISECONDS,
    occupancy,
    predicted_milliseconds,
    resident_blocks,
    slowdown,
    waves,
)
from egg.hardware.gpus import GPUS, Gpu, resolve

H200, T4, A6000, MI300X = map(resolve, ("H200", "T4", "RTX A6000", "MI300X"))
SOFTMAX = KernelResources("softmax_rows", (16384, 1, 1), 32, 0, 16, 4, 3, 0, 128)
GEMM = KernelResources("gemm", (32, 33, 1), 168, 0, 98304, 8, 3, 192, 128)

gpus = st.sampled_from(GPUS)
kernels = st.builds(
    KernelResources,
    name=st.just("k"),
    grid=st.lists(st.integers(1, 5000), min_size=1, max_size=3).map(tuple),
    registers=st.integers(1, 255),
    spill_bytes=st.integers(0, 4096),
    shared_bytes=st.integers(0, 232448),
    num_warps=st.sampled_from((1, 2, 4, 8, 16, 32)),
    num_stages=st.integers(1, 12),
    tensor_core_instructions=st.sampled_from((0, 4, 512)),
    widest_load_bits=st.sampled_from((8, 16, 32, 64, 128, 256)),
    launches=st.integers(1, 50),
)
floors = st.none() | st.floats(0.0, 1e4)


def predicted(gpu: Gpu, *given: KernelResources, floor: float | None = 0.1) -> float:
    return predicted_milliseconds(Compiled(gpu.name, given, floor, "full"), gpu)


def no_slower(one: float, other: float) -> bool:
    return one <= other * (1 + 1e-9)


# -- residency -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "gpu", "blocks"),
    [
        (SOFTMAX, H200, 16),  # 4 warps each, 64 warps
        (replace(SOFTMAX, num_warps=1), H200, 32),  # block slots
        (replace(SOFTMAX, registers=33), H200, 12),  # 40 registers are given out
        (replace(SOFTMAX, registers=255, num_warps=8), H200, 1),
        (replace(SOFTMAX, shared_bytes=100 * 1024), H200, 2),
        (replace(SOFTMAX, shared_bytes=227 * 1024), H200, 1),
        (replace(SOFTMAX, shared_bytes=228 * 1024), H200, 0),
        (replace(SOFTMAX, registers=128, num_warps=32), H200, 0),
        (SOFTMAX, T4, 8),
        (replace(SOFTMAX, num_warps=1), T4, 16),
        (replace(SOFTMAX, shared_bytes=64 * 1024), T4, 1),
        (SOFTMAX, A6000, 12),
        (SOFTMAX, MI300X, 8),
        (GEMM, H200, 1),
    ],
)
def test_how_many_programs_an_sm_holds(kernel: KernelResources, gpu: Gpu, blocks: int) -> None:
    assert resident_blocks(kernel, gpu) == blocks


def test_occupancy_and_waves() -> None:
    assert occupancy(SOFTMAX, H200) == 1.0
    assert occupancy(replace(SOFTMAX, shared_bytes=100 * 1024), H200) == 8 / 64
    assert occupancy(replace(SOFTMAX, shared_bytes=228 * 1024), H200) == 0.0
    assert waves(SOFTMAX, H200) == 16384 / (132 * 16)
    assert waves(GEMM, H200) == 8.0
    assert waves(replace(GEMM, grid=(66,)), H200) == 0.5


@given(kernels, gpus)
def test_occupancy_is_a_share_and_waves_are_positive(kernel: KernelResources, gpu: Gpu) -> None:
    assert 0.0 <= occupancy(kernel, gpu) <= 1.0
    assert 0.0 < waves(kernel, gpu) < math.inf


@given(kernels, gpus, st.integers(0, 300), st.integers(0, 200_000))
def test_more_registers_or_shared_memory_never_fit_better(
    kernel: KernelResources, gpu: Gpu, registers: int, shared: int
) -> None:
    hungrier = replace(
        kernel, registers=kernel.registers + registers, shared_bytes=kernel.shared_bytes + shared
    )
    assert occupancy(hungrier, gpu) <= occupancy(kernel, gpu)


# -- what an expert expects ------------------------------------------------------------------------


def test_a_kernel_without_faults_takes_little_more_than_its_floor() -> None:
    for kernel in (SOFTMAX, replace(GEMM, grid=(132 * 8,))):
        assert slowdown(kernel, H200) == 1.0
        assert 1.0 < predicted(H200, kernel, floor=1.0) < 1.2


def test_too_few_programs_leave_sms_idle() -> None:
    assert slowdown(replace(GEMM, grid=(66,)), H200) == pytest.approx(2.0)
    assert slowdown(replace(GEMM, grid=(1,)), H200) == pytest.approx(132.0)
    assert slowdown(replace(GEMM, grid=(133,)), H200) == pytest.approx(2 * 132 / 133)


def test_pipelining_pays_where_the_buffers_are_small() -> None:
    starved = replace(GEMM, shared_bytes=8192, num_stages=1, widest_load_bits=16)
    assert slowdown(replace(starved, shared_bytes=32768, num_stages=4), H200) < slowdown(starved, H200)


def test_one_fused_kernel_beats_two() -> None:
    tail = replace(SOFTMAX, name="gelu")
    assert predicted(H200, GEMM) < predicted(H200, GEMM, tail)


def test_a_small_helper_kernel_costs_little_more_than_its_launch() -> None:
    helper = replace(SOFTMAX, name="finish", grid=(1, 1, 1))
    extra = predicted(H200, SOFTMAX, helper) - predicted(H200, SOFTMAX)
    assert LAUNCH_MILLISECONDS < extra < 2 * LAUNCH_MILLISECONDS


def test_what_could_not_be_followed_is_not_taken_for_fast() -> None:
    assert predicted(H200) > 2 * predicted(H200, SOFTMAX)


def test_the_faster_gpu_is_faster() -> None:
    for kernel in (SOFTMAX, GEMM):
        assert slowdown(kernel, H200) < 2.0
        assert predicted(H200, kernel, floor=0.028) < predicted(T4, kernel, floor=0.42)


@given(st.lists(kernels, max_size=5), gpus, floors)
def test_the_prediction_is_always_a_positive_number(given: list, gpu: Gpu, floor: float | None) -> None:
    time = predicted(gpu, *given, floor=floor)
    assert math.isfinite(time)
    assert time > 0
    assert floor is None or time > floor


@pytest.mark.parametrize("floor", [math.inf, math.nan, -1.0, 0.0, None])
@pytest.mark.parametrize(
    "kernel",
    [
        replace(SOFTMAX, grid=()),
        replace(SOFTMAX, grid=(0, 1, 1)),
        replace(SOFTMAX, grid=(2**31, 65535, 65535)),
        replace(SOFTMAX, registers=0, num_warps=0, num_stages=0, launches=0, widest_load_bits=0),
        replace(GEMM, num_stages=0, shared_bytes=0),
        replace(GEMM, registers=10**6, shared_bytes=10**9, spill_bytes=10**9),
    ],
)
def test_a_strange_report_is_no_obstacle(kernel: KernelResources, floor: float | None) -> None:
    for gpu in (H200, MI300X, replace(H200, arch="sm_999")):
        time = predicted(gpu, kernel, floor=floor)
        assert math.isfinite(time)
        assert time > 0


# -- monotone --------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[KernelResources], int]:
    """Some kernels, and which of them is going to change."""
    made = draw(st.lists(kernels, min_size=1, max_size=4))
    return made, draw(st.integers(0, len(made) - 1))


def changed(made: list[KernelResources], index: int, **fields) -> list[KernelResources]:
    return [*made[:index], replace(made[index], **fields), *made[index + 1 :]]


@given(programs(), gpus, floors, st.integers(0, 2000))
def test_spills_never_help(program, gpu: Gpu, floor, more: int) -> None:
    made, index = program
    worse = changed(made, index, spill_bytes=made[index].spill_bytes + more)
    assert no_slower(predicted(gpu, *made, floor=floor), predicted(gpu, *worse, floor=floor))


@given(programs(), gpus, floors, st.sampled_from((8, 16, 32, 64, 128, 256)))
def test_wider_loads_never_hurt(program, gpu: Gpu, floor, bits: int) -> None:
    made, index = program
    narrow, wide = sorted((bits, made[index].widest_load_bits))
    fast = predicted(gpu, *changed(made, index, widest_load_bits=wide), floor=floor)
    assert no_slower(fast, predicted(gpu, *changed(made, index, widest_load_bits=narrow), floor=floor))


@given(programs(), gpus, floors, st.integers(1, 100))
def test_more_launches_never_help(program, gpu: Gpu, floor, more: int) -> None:
    made, index = program
    worse = changed(made, index, launches=made[index].launches + more)
    assert predicted(gpu, *made, floor=floor) < predicted(gpu, *worse, floor=floor)


@given(programs(), gpus, floors)
def test_the_same_kernel_again_never_helps(program, gpu: Gpu, floor) -> None:
    made, index = program
    assert predicted(gpu, *made, floor=floor) < predicted(gpu, *made, made[index], floor=floor)


@given(kernels, gpus, floors, st.integers(0, 30), st.data())
def test_a_fuller_last_wave_never_hurts(
    kernel: KernelResources, gpu: Gpu, floor, full_waves: int, data: st.DataObject
) -> None:
    capacity = gpu.sms * max(1, resident_blocks(kernel, gpu))
    last = st.integers(1, capacity)
    fewer, more = sorted((data.draw(last), data.draw(last)))
    before = replace(kernel, grid=(full_waves * capacity + fewer,))
    after = replace(kernel, grid=(full_waves * capacity + more,))
    assert no_slower(predicted(gpu, after, floor=floor), predicted(gpu, before, floor=floor))


@given(kernels, gpus)
def test_no_kernel_is_faster_than_the_whole_machine(kernel: KernelResources, gpu: Gpu) -> None:
    assert slowdown(kernel, gpu) >= 1.0 - 1e-9


@given(st.permutations([SOFTMAX, GEMM, replace(GEMM, name="other", grid=(9,)), replace(SOFTMAX, launches=3)]))
def test_the_order_of_kernels_does_not_matter(given: list[KernelResources]) -> None:
    assert predicted(H200, *given) == pytest.approx(predicted(H200, *sorted(given, key=str)))
