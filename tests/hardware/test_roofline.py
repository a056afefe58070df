from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.errors import UsageError
from egg.hardware.detect import _describe
from egg.hardware.gpus import GPUS, resolve
from egg.hardware.roofline import compute_peak, effective_precision, floor_seconds

H200 = resolve("h200")
WORK = st.floats(min_value=0, max_value=1e18)


def test_memory_bound_work_is_bytes_over_bandwidth():
    assert floor_seconds(H200, flops=1.0, bytes=4.8e9, precision="fp32") == pytest.approx(1e-3)


def test_compute_bound_work_is_operations_over_the_peak():
    assert floor_seconds(H200, flops=989.4e9, bytes=1.0, precision="bf16") == pytest.approx(1e-3)


def test_fp32_grade_on_tensor_cores_is_inside_the_roof():
    """Three 16-bit products were measured at 103 TFLOP/s here, above the FMA peak: honest, not refused."""
    assert compute_peak(H200, "fp32") > 103e12 > H200.peaks["fp32"]
    assert compute_peak(H200, "fp32") == pytest.approx(H200.peaks["fp16"] / 3)
    assert compute_peak(H200, "match") == compute_peak(H200, "fp32")


def test_tf32_grade_on_fp16_units_is_inside_the_roof():
    assert compute_peak(H200, "tf32") == H200.peaks["fp16"] > H200.peaks["tf32"]


def test_a_gpu_without_the_unit_falls_back_to_one_it_has():
    t4 = resolve("t4")
    assert compute_peak(t4, "bf16") == t4.peaks["fp16"]
    assert compute_peak(t4, "fp8") == t4.peaks["fp16"]


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)
def test_less_precision_never_lowers_the_roof(gpu):
    peaks = [compute_peak(gpu, p) for p in ("fp32", "tf32", "fp16", "fp8")]
    assert peaks == sorted(peaks)


@given(flops=WORK, bytes=WORK, more=st.floats(min_value=1, max_value=1e3))
def test_more_work_never_takes_less(flops, bytes, more):
    base = floor_seconds(H200, flops=flops, bytes=bytes, precision="tf32")
    assert floor_seconds(H200, flops=flops * more, bytes=bytes, precision="tf32") >= base
    assert floor_seconds(H200, flops=flops, bytes=bytes * more, precision="tf32") >= base


def test_bad_arguments():
    with pytest.raises(ValueError, match="negative"):
        floor_seconds(H200, flops=-1, bytes=0, precision="fp32")
    with pytest.raises(UsageError, match="fp12"):
        floor_seconds(H200, flops=1, bytes=1, precision="fp12")


@pytest.mark.parametrize(
    ("declared", "dtype", "error", "meant"),
    [
        ("fp32", "float32", 3e-4, "fp32"),
        ("match", "torch.float32", 1.1e-6, "fp32"),
        ("match", "float32", 2.9e-4, "tf32"),
        ("match", "torch.bfloat16", 2e-3, "bf16"),
        ("match", "float16", 2e-4, "fp16"),
        ("match", "float64", 1e-15, "fp64"),
        ("match", "float8_e4m3fn", 1e-2, "fp8"),
        ("tf32", "float32", 1e-6, "tf32"),
    ],
)
def test_match_looks_at_the_reference(declared, dtype, error, meant):
    assert effective_precision(declared, dtype=dtype, reference_error=error) == meant


class _Properties:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def test_device_properties_of_both_vendors():
    """CUDA builds put the card's name where ROCm builds put the architecture."""
    nvidia = _describe(
        0, _Properties(name="NVIDIA H200", major=9, minor=0, gcnArchName="NVIDIA H200", L2_cache_size=7)
    )
    assert (nvidia.arch, nvidia.spec, nvidia.l2_bytes) == ("sm_90", H200, 7)
    amd = _describe(
        1, _Properties(name="AMD Instinct MI300X", major=9, minor=4, gcnArchName="gfx942:sramecc+:xnack-")
    )
    assert (amd.arch, amd.spec) == ("gfx942", resolve("mi300x"))
    assert _describe(2, _Properties(name="NVIDIA Unheard Of", major=12, minor=1)).spec is None
