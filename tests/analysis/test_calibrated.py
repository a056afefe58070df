"""What a calibration changes in predictions, and what it leaves alone."""

# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.analysis.calibrated import FITTED_ON, calibrated
from egg.analysis.diagnose import diagnose
from egg.analysis.predict import FITTED, predict
from egg.analysis.program import predicted_milliseconds
from egg.core.evaluation import Compiled
from egg.core.profile import Rung
from egg.hardware.gpus import resolve
from tests.analysis.calibrations import measured
from tests.analysis.kernels import GEMM, SOFTMAX
from tests.analysis.profiles import PLANTED

H200, A100 = resolve("H200"), resolve("A100")
CHANGED = {"launch", "dram", "l2_bytes_per_clock", "tensor", "tensor_by_warp", "product", "arithmetic"}


@pytest.mark.parametrize("gpu", [H200, A100], ids=lambda g: g.name)
def test_a_card_like_the_fitted_one_is_predicted_as_before(gpu):
    constants = calibrated(gpu, measured(gpu))
    for kernel in (SOFTMAX, GEMM):
        before, after = predict(kernel, gpu), predict(kernel, gpu, constants)
        assert before is not None
        assert after is not None
        assert after.milliseconds == pytest.approx(before.milliseconds, rel=1e-9)


def test_less_bandwidth_makes_a_stream_slower_and_leaves_a_product():
    slow = calibrated(A100, measured(A100, memory=FITTED_ON.memory / 2))
    stream = [predict(SOFTMAX, A100, constants) for constants in (FITTED, slow)]
    product = [predict(GEMM, A100, constants) for constants in (FITTED, slow)]
    assert all(stream)
    assert all(product)
    assert stream[1].parts["dram"] == pytest.approx(2 * stream[0].parts["dram"])
    assert product[1].milliseconds < 1.1 * product[0].milliseconds
    assert stream[1].floor_milliseconds == stream[0].floor_milliseconds, "floors keep to the data sheet"


def test_a_longer_gap_lengthens_every_launch_of_the_whole():
    late = calibrated(H200, measured(H200, gap=5e-6))
    assert late.launch == pytest.approx(FITTED.launch + 5e-6 - FITTED_ON.gap_seconds)
    often = Compiled("H200", (replace(SOFTMAX, launches=100),), 0.1, "full")
    more = predicted_milliseconds(often, H200, 0, late) - predicted_milliseconds(often, H200)
    assert more == pytest.approx(100 * (late.launch - FITTED.launch) * 1e3)


def test_a_diagnosis_reads_with_the_same_constants():
    """A copy at 0.6 of the data sheet is far from the wall of a card that gives 0.88, and at that of one
    that gives 0.6."""
    planted = PLANTED["dram_copy"].profile(Rung.TIMES)
    kernel = planted.kernels[0]
    work = kernel.resources.work
    time = work.distinct_bytes / (0.6 * H200.bandwidth) * 1e3
    slow = replace(planted, kernels=(replace(kernel, milliseconds=time),), milliseconds=time)
    weak = calibrated(H200, measured(H200, memory=0.6 * FITTED_ON.memory / FITTED.dram))
    usual, here = (diagnose(slow, H200, constants=c).features["dram_share"] for c in (FITTED, weak))
    assert usual < 0.75
    assert here > 0.95


@given(st.floats(0.01, 3.0), st.floats(0.01, 3.0), st.floats(0.01, 3.0), st.floats(1e-8, 1e-3))
def test_any_measurement_gives_usable_constants(memory, matrix, vector, gap):
    constants = calibrated(A100, measured(A100, memory=memory, matrix=matrix, vector=vector, gap=gap))
    same = {name for name in vars(FITTED) if name not in CHANGED}
    assert all(getattr(constants, name) == getattr(FITTED, name) for name in same)
    assert all(0 < getattr(constants, name) <= 1 for name in CHANGED - {"launch", "l2_bytes_per_clock"})
    assert constants.launch >= gap
    found = predict(SOFTMAX, A100, constants)
    assert found is not None
    assert found.milliseconds > found.floor_milliseconds
