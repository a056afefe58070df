"""Residency: what one SM holds of a kernel, by hand and as a property."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.analysis.occupancy import last_wave_fill, residency, waves
from egg.core.resources import KernelResources
from egg.hardware.gpus import Gpu, resolve
from tests.analysis.kernels import GEMM, SOFTMAX, gpus, kernels

H200, T4, A6000, MI300X = map(resolve, ("H200", "T4", "RTX A6000", "MI300X"))


@pytest.mark.parametrize(
    ("kernel", "gpu", "blocks", "limit"),
    [
        (SOFTMAX, H200, 16, "registers"),  # 32 registers and 4 warps fill registers and warp slots alike
        (replace(SOFTMAX, registers=16), H200, 16, "warps"),
        (replace(SOFTMAX, num_warps=1, registers=16), H200, 32, "slots"),
        (replace(SOFTMAX, registers=33), H200, 12, "registers"),  # 40 are given out
        (replace(SOFTMAX, registers=255, num_warps=8), H200, 1, "registers"),
        (replace(SOFTMAX, shared_bytes=100 * 1024), H200, 2, "shared"),
        (replace(SOFTMAX, shared_bytes=227 * 1024), H200, 1, "shared"),
        (replace(SOFTMAX, shared_bytes=228 * 1024), H200, 0, "shared"),
        (replace(SOFTMAX, registers=128, num_warps=32), H200, 0, "registers"),
        (SOFTMAX, T4, 8, "warps"),
        (replace(SOFTMAX, num_warps=1), T4, 16, "slots"),
        (replace(SOFTMAX, shared_bytes=64 * 1024), T4, 1, "shared"),
        (SOFTMAX, A6000, 12, "warps"),
        (SOFTMAX, MI300X, 8, "warps"),
        (GEMM, H200, 1, "registers"),
    ],
)
def test_how_many_programs_an_sm_holds(kernel: KernelResources, gpu: Gpu, blocks: int, limit: str) -> None:
    held = residency(kernel, gpu)
    assert (held.blocks, held.limit) == (blocks, limit)


def test_occupancy_and_waves() -> None:
    assert residency(SOFTMAX, H200).occupancy == 1.0
    assert residency(replace(SOFTMAX, shared_bytes=100 * 1024), H200).occupancy == 8 / 64
    assert residency(replace(SOFTMAX, shared_bytes=228 * 1024), H200).occupancy == 0.0
    assert waves(SOFTMAX, H200) == 16384 / (132 * 16)
    assert waves(replace(GEMM, grid=(66,)), H200) == 0.5
    assert last_wave_fill(replace(GEMM, grid=(66,)), H200) == 0.5
    assert last_wave_fill(replace(GEMM, grid=(132,)), H200) == 1.0
    assert last_wave_fill(replace(GEMM, grid=(133,)), H200) == pytest.approx(1 / 132)


@given(kernels, gpus)
def test_occupancy_is_a_share_and_waves_are_positive(kernel: KernelResources, gpu: Gpu) -> None:
    assert 0.0 <= residency(kernel, gpu).occupancy <= 1.0
    assert 0.0 < waves(kernel, gpu) < math.inf
    assert 0.0 < last_wave_fill(kernel, gpu) <= 1.0


@given(kernels, gpus, st.integers(0, 300), st.integers(0, 200_000))
def test_more_registers_or_shared_memory_never_fit_better(
    kernel: KernelResources, gpu: Gpu, registers: int, shared: int
) -> None:
    hungrier = replace(
        kernel, registers=kernel.registers + registers, shared_bytes=kernel.shared_bytes + shared
    )
    assert residency(hungrier, gpu).blocks <= residency(kernel, gpu).blocks
