"""Predictions of whole programs: what is known adds up, what is not known costs its floor."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.analysis.predict import FITTED, predict
from egg.analysis.program import ATTAINABLE, UNSEEN, predicted_milliseconds
from egg.core.evaluation import Compiled
from egg.core.resources import KernelResources
from egg.hardware.gpus import resolve
from tests.analysis.kernels import GEMM, SOFTMAX, gpus

H200 = resolve("H200")
LAUNCH = FITTED.launch * 1e3


def program(*kernels: KernelResources, floor: float | None = 0.05) -> Compiled:
    return Compiled("H200", kernels, floor, "full")


def unknown(kernel: KernelResources) -> KernelResources:
    return replace(kernel, work=None)


def alone(kernel: KernelResources) -> float:
    found = predict(kernel, H200)
    assert found is not None
    return found.milliseconds


def test_kernels_add_up_with_their_launches():
    both = program(SOFTMAX, replace(GEMM, launches=3))
    assert predicted_milliseconds(both, H200) == pytest.approx(alone(SOFTMAX) + 3 * alone(GEMM))


def test_what_is_left_to_a_library_costs_what_is_left_of_the_floor():
    """Half of the work handed to a library does not halve the time."""
    left = predicted_milliseconds(program(SOFTMAX, floor=1.0), H200, library_calls=2)
    covered = predict(SOFTMAX, H200)
    assert covered is not None
    rest = (1.0 - covered.floor_milliseconds) / ATTAINABLE
    assert left == pytest.approx(covered.milliseconds + 2 * LAUNCH + rest)


def test_a_floor_below_what_the_kernels_cover_leaves_launches_alone():
    here = predicted_milliseconds(program(SOFTMAX, floor=1e-6), H200, library_calls=4)
    assert here == pytest.approx(alone(SOFTMAX) + 4 * LAUNCH)


def test_a_program_that_launches_nothing_is_taken_for_unfused_code():
    assert predicted_milliseconds(program(floor=0.5), H200, library_calls=9) == pytest.approx(
        0.5 * UNSEEN + 10 * LAUNCH
    )


@pytest.mark.parametrize("change", [{"spill_bytes": 512}, {"shared_bytes": 200 << 10, "num_warps": 4}])
def test_of_a_kernel_whose_work_is_unknown_its_resources_speak(change):
    plain = predicted_milliseconds(program(unknown(SOFTMAX)), H200)
    assert predicted_milliseconds(program(replace(unknown(SOFTMAX), **change)), H200) > 1.5 * plain


def test_a_kernel_that_does_not_fit_on_an_sm_is_slow_and_finite():
    impossible = replace(unknown(SOFTMAX), shared_bytes=10 << 20)
    found = predicted_milliseconds(program(impossible), H200)
    assert math.isfinite(found)
    assert found > 5 * predicted_milliseconds(program(unknown(SOFTMAX)), H200)


@given(
    gpu=gpus,
    floor=st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)),
    calls=st.integers(0, 1000),
    kernels=st.lists(st.sampled_from([SOFTMAX, GEMM, unknown(SOFTMAX), unknown(GEMM)]), max_size=4),
)
def test_always_a_positive_number(gpu, floor, calls, kernels):
    found = predicted_milliseconds(program(*kernels, floor=floor), gpu, calls)
    assert math.isfinite(found)
    assert found > 0
