from __future__ import annotations

import pytest

from egg.core.errors import UsageError
from egg.hardware.gpus import GPUS, KIB, find, resolve


@pytest.mark.parametrize(
    ("reported", "row"),
    [
        ("NVIDIA H200", "H200"),
        ("h200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("H100", "H100 SXM"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10", "A10"),
        ("Tesla T4", "T4"),
        ("NVIDIA B200", "B200"),
        ("AMD Instinct MI300X", "MI300X"),
        ("sm_90", "H100 SXM"),
        ("gfx942", "MI300X"),
    ],
)
def test_names_as_drivers_and_people_write_them(reported, row):
    found = find(reported)
    assert found is not None
    assert found.name == row


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A10G",
        "NVIDIA L40",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA H200 NVL",
        "H1000",
    ],
)
def test_a_near_miss_is_no_match(name):
    assert find(name) is None


def test_every_name_means_exactly_one_row():
    for gpu in GPUS:
        for name in (gpu.name, *gpu.aliases):
            assert find(name) is gpu


def test_an_architecture_means_a_card_of_it():
    for arch in {gpu.arch for gpu in GPUS}:
        assert resolve(arch).arch == arch


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        resolve("h300")
    assert "h300" in caught.value.message
    assert all(gpu.name in caught.value.hint for gpu in GPUS)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)
def test_rows_are_consistent(gpu):
    """Faster for less precision, shared memory as the architecture has it, and a source."""
    order = [gpu.peaks[p] for p in ("fp32", "tf32", "fp16", "fp8") if p in gpu.peaks]
    assert order == sorted(order)
    assert gpu.peaks["fp64"] <= gpu.peaks["fp32"]
    assert gpu.peaks.get("bf16", 0) <= gpu.peaks["fp16"]
    by_arch = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99, "sm_75": 64}
    assert gpu.shared_per_block == by_arch.get(gpu.arch, 64) * KIB
    assert gpu.shared_per_block <= gpu.shared_per_sm
    assert 1e11 < gpu.bandwidth < 2e13
    assert gpu.memory_bytes > 10 * gpu.l2_bytes
    assert gpu.source


def test_fp32_peak_is_what_the_multiprocessors_can_do():
    """128 (or 64) FMA lanes a cycle on each SM at a clock that exists: a slip in the digits shows here."""
    for gpu in GPUS:
        lanes = {"sm_80": 64, "sm_75": 64, "gfx942": 128}.get(gpu.arch, 128)
        clock = gpu.peaks["fp32"] / (2 * lanes * gpu.sms)
        assert 1.2e9 < clock < 2.9e9, gpu.name


def test_triton_targets():
    assert resolve("h100").triton_arch == 90
    assert (resolve("mi300x").backend, resolve("mi300x").triton_arch) == ("hip", "gfx942")
    assert resolve("mi300x").warp_size == 64


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        resolve("h100").peaks["fp16"] = 1.0  # type: ignore[index]
