"""Predicted times: always a number, what an expert expects in plain cases, monotone where it must be."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.analysis.predict import FITTED, predict
from egg.analysis.program import predicted_milliseconds
from egg.core.evaluation import Compiled
from egg.core.resources import KernelResources
from egg.hardware.gpus import Gpu, resolve
from tests.analysis.kernels import GEMM, SOFTMAX, amounts, gpus, kernels, product, stream

H200, T4, A6000, MI300X = map(resolve, ("H200", "T4", "RTX A6000", "MI300X"))
LAUNCH = FITTED.launch * 1e3

followed = kernels.filter(lambda k: k.work is not None)
floors = st.none() | st.floats(0.0, 1e4)


def of(kernel: KernelResources, gpu: Gpu = H200) -> float:
    found = predict(kernel, gpu)
    assert found is not None
    return found.milliseconds


def program(gpu: Gpu, *given: KernelResources, floor: float | None = 0.1, library_calls: int = 0) -> float:
    return predicted_milliseconds(Compiled(gpu.name, given, floor, "full"), gpu, library_calls)


def no_slower(one: float, other: float) -> bool:
    return one <= other * (1 + 1e-6)


# -- one kernel: what an expert expects --------------------------------------------------------------


def test_a_large_copy_runs_near_the_bandwidth() -> None:
    copy = replace(SOFTMAX, work=stream(2000))
    assert of(copy) == pytest.approx(4e9 / H200.bandwidth * 1e3 / 0.88, rel=0.15)


def test_a_large_product_runs_on_the_tensor_cores() -> None:
    large = replace(GEMM, grid=(32, 32, 1), work=product(8192, 8192, 8192, tile=256))
    found = predict(large, H200)
    assert found is not None
    assert max(found.parts, key=lambda part: found.parts[part]) == "tensor"
    assert 500e12 < 2 * 8192**3 / (found.milliseconds * 1e-3) < 800e12


def test_fp32_products_miss_the_tensor_cores() -> None:
    exact = replace(GEMM, work=product(4096, 4096, 4096, precision="ieee"))
    assert of(exact) > 5 * of(GEMM)


def test_too_few_programs_leave_sms_idle() -> None:
    one = replace(GEMM, grid=(1,))
    assert of(one) > 50 * of(GEMM)
    assert 1.4 < of(replace(GEMM, grid=(66,))) / of(replace(GEMM, grid=(132,))) < 2.1


def test_one_program_too_many_costs_a_whole_round() -> None:
    assert of(replace(GEMM, grid=(133,))) > 1.5 * of(replace(GEMM, grid=(132,)))


def test_scattered_access_pays_for_whole_sectors() -> None:
    assert SOFTMAX.work is not None
    strided = tuple(
        replace(a, sector_bytes=8 * a.bytes, argument_bytes=8 * a.bytes) for a in SOFTMAX.work.accesses
    )
    assert of(replace(SOFTMAX, work=replace(SOFTMAX.work, accesses=strided))) > 3 * of(SOFTMAX)


def test_a_tiny_kernel_costs_its_launch() -> None:
    tiny = replace(SOFTMAX, grid=(1, 1, 1), work=stream(0.001))
    assert LAUNCH < of(tiny) < 3 * LAUNCH


def test_the_faster_gpu_is_faster() -> None:
    for kernel in (SOFTMAX, GEMM):
        assert of(kernel, H200) < of(kernel, A6000) < of(kernel, T4)


def test_work_that_is_not_known_is_not_guessed() -> None:
    assert predict(replace(SOFTMAX, work=None), H200) is None


@given(followed, gpus)
def test_no_kernel_is_faster_than_its_floor(kernel: KernelResources, gpu: Gpu) -> None:
    found = predict(kernel, gpu)
    assert found is not None
    assert math.isfinite(found.milliseconds)
    assert 0 <= found.floor_milliseconds < found.milliseconds
    assert found.tail >= 1.0


@given(followed, gpus, st.integers(0, 2000))
def test_spills_never_help(kernel: KernelResources, gpu: Gpu, more: int) -> None:
    assert no_slower(of(kernel, gpu), of(replace(kernel, spill_bytes=kernel.spill_bytes + more), gpu))


@given(followed, gpus, st.sampled_from(("product_flops", "flops", "special")), amounts)
def test_more_work_never_helps(kernel: KernelResources, gpu: Gpu, what: str, more: float) -> None:
    assert kernel.work is not None
    worse = replace(kernel.work, **{what: getattr(kernel.work, what) + more})
    assert no_slower(of(kernel, gpu), of(replace(kernel, work=worse), gpu))


@given(followed, gpus, st.floats(1.0, 10.0))
def test_more_sectors_never_help(kernel: KernelResources, gpu: Gpu, times: float) -> None:
    assert kernel.work is not None
    wider = tuple(replace(a, sector_bytes=a.sector_bytes * times) for a in kernel.work.accesses)
    worse = replace(kernel, work=replace(kernel.work, accesses=wider))
    assert no_slower(of(kernel, gpu), of(worse, gpu))


# -- a whole program ---------------------------------------------------------------------------------


def test_what_could_not_be_followed_is_not_taken_for_fast() -> None:
    assert program(H200) > 2 * program(H200, replace(SOFTMAX, work=None))


def test_work_left_to_a_library_is_not_free() -> None:
    tail = replace(SOFTMAX, work=stream(1))
    alone = program(H200, tail, floor=1.0)
    assert program(H200, tail, floor=1.0, library_calls=1) > alone + 1.0


@given(st.lists(kernels, max_size=5), gpus, floors, st.integers(0, 5))
def test_the_prediction_is_always_a_positive_number(given: list, gpu: Gpu, floor, calls: int) -> None:
    time = program(gpu, *given, floor=floor, library_calls=calls)
    assert math.isfinite(time)
    assert time > 0


@pytest.mark.parametrize("floor", [math.inf, math.nan, -1.0, 0.0, None])
@pytest.mark.parametrize(
    "kernel",
    [
        replace(SOFTMAX, grid=()),
        replace(SOFTMAX, grid=(0, 1, 1)),
        replace(SOFTMAX, grid=(2**31, 65535, 65535)),
        replace(SOFTMAX, registers=0, num_warps=0, num_stages=0, launches=0, widest_load_bits=0, work=None),
        replace(GEMM, num_stages=0, shared_bytes=0),
        replace(GEMM, registers=10**6, shared_bytes=10**9, spill_bytes=10**9),
        replace(GEMM, registers=10**6, shared_bytes=10**9, spill_bytes=10**9, work=None),
    ],
)
def test_a_strange_report_is_no_obstacle(kernel: KernelResources, floor: float | None) -> None:
    for gpu in (H200, MI300X, replace(H200, arch="sm_999")):
        time = program(gpu, kernel, floor=floor)
        assert math.isfinite(time)
        assert time > 0


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[KernelResources], int]:
    """Some kernels, and which of them is going to change."""
    made = draw(st.lists(kernels, min_size=1, max_size=4))
    return made, draw(st.integers(0, len(made) - 1))


@given(programs(), gpus, st.integers(1, 100))
def test_more_launches_never_help(given, gpu: Gpu, more: int) -> None:
    made, index = given
    worse = [*made]
    worse[index] = replace(made[index], launches=made[index].launches + more)
    assert program(gpu, *made, floor=0.0) < program(gpu, *worse, floor=0.0)


@given(st.permutations([SOFTMAX, GEMM, replace(GEMM, name="other", grid=(9,)), replace(SOFTMAX, launches=3)]))
def test_the_order_of_kernels_does_not_matter(given: list[KernelResources]) -> None:
    assert program(H200, *given) == pytest.approx(program(H200, *sorted(given, key=str)))
