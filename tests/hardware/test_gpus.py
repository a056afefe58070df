"""The GPU table: found by the right names, consistent with itself, refused when it is malformed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import resources
from types import SimpleNamespace

import pytest

from egg.core.errors import UsageError
from egg.hardware.detect import DERIVED, _describe, derived_gpu
from egg.hardware.gpus import GPUS, KIB, PRECISIONS, find, name_key, read_table, reference, resolve, table

TEXT = resources.files("egg.hardware").joinpath("gpus.toml").read_text("utf-8")
every_gpu = pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)


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
        ("AMD Instinct MI250X / MI250", "MI250X"),
        ("AMD Instinct MI325X", "MI325X"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA A40", "A40"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("gfx90a", "MI250X"),
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
        "NVIDIA GH200 144G HBM3e",
        "AMD Instinct MI300A",
    ],
)
def test_a_near_miss_is_no_match(name):
    assert find(name) is None


def test_every_name_means_exactly_one_row():
    for gpu in GPUS:
        for name in (gpu.name, *gpu.aliases):
            assert find(name) is gpu
    keys = [key for gpu in GPUS for key in {name_key(n) for n in (gpu.name, *gpu.aliases)}]
    assert len(keys) == len(set(keys))


def test_an_architecture_means_a_card_of_it():
    for arch in {gpu.arch for gpu in GPUS}:
        assert resolve(arch).arch == arch
    assert {gpu.arch for gpu in GPUS} == set(table().architectures)


def test_the_cards_people_use_are_there():
    assert len(GPUS) >= 14
    assert {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", "gfx90a", "gfx942"} <= {
        g.arch for g in GPUS
    }


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError) as caught:
        resolve("h300")
    assert "h300" in caught.value.message
    assert all(gpu.name in caught.value.hint for gpu in GPUS)


def test_importing_reads_nothing():
    code = """
import egg.hardware.gpus as gpus
assert not gpus.table.cache_info().currsize
print(len(gpus.GPUS))
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) == len(GPUS)


# -- consistency -------------------------------------------------------------------------------------


@every_gpu
def test_less_precision_is_never_slower(gpu):
    for unit in (gpu.peaks, gpu.tensor):
        order = [unit[p] for p in ("fp64", "fp32", "tf32", "fp16", "fp8") if p in unit]
        assert order == sorted(order)
    assert gpu.vector["fp64"] <= gpu.vector["fp32"] <= gpu.vector.get("fp16", gpu.vector["fp32"])
    assert gpu.tensor.get("bf16", gpu.tensor["fp16"]) == gpu.tensor["fp16"]
    assert gpu.peaks["fp16"] > gpu.peaks["fp32"]


@every_gpu
def test_peaks_are_the_fastest_unit(gpu):
    units = (gpu.vector, gpu.tensor, gpu.tensor_fp16_accumulation)
    assert set(gpu.peaks) == {p for unit in units for p in unit}
    for precision, peak in gpu.peaks.items():
        assert peak == max(unit.get(precision, 0) for unit in units)


@every_gpu
def test_vector_peaks_are_what_the_multiprocessors_do_at_their_clock(gpu):
    """A slip in a digit, a clock or a count of SMs shows here."""
    kind = table().architectures[gpu.arch]
    assert set(gpu.vector) == set(kind.vector)
    for precision, peak in gpu.vector.items():
        assert peak == pytest.approx(kind.vector[precision] * gpu.sms * gpu.clock, rel=0.03), precision


@every_gpu
def test_tensor_peaks_are_what_the_tensor_cores_do_at_their_clock(gpu):
    """At the rate every card of the architecture has; professional cards where consumer ones exist, twice."""
    kind = table().architectures[gpu.arch]
    assert set(gpu.tensor) == set(kind.tensor)
    full_rate = kind.tensor_fp16_accumulation and not gpu.tensor_fp16_accumulation
    for precision, peak in gpu.tensor.items():
        clock = gpu.clock if precision == "fp64" else gpu.tensor_clock or gpu.clock
        halved = full_rate and precision != "int8"
        expected = kind.tensor[precision] * gpu.sms * clock * (2 if halved else 1)
        assert peak == pytest.approx(expected, rel=0.03), precision
    for precision, peak in gpu.tensor_fp16_accumulation.items():
        expected = kind.tensor_fp16_accumulation[precision] * gpu.sms * gpu.clock
        assert peak == pytest.approx(expected, rel=0.03), precision


@every_gpu
def test_only_consumer_cards_halve_fp32_sums(gpu):
    assert bool(gpu.tensor_fp16_accumulation) == bool(re.match(r"RTX \d", gpu.name))
    for precision, peak in gpu.tensor_fp16_accumulation.items():
        assert peak == pytest.approx(2 * gpu.tensor[precision], rel=0.01)


@every_gpu
def test_limits_are_those_of_the_architecture(gpu):
    """Shared memory per block in KiB, warps, blocks: as the vendors' programming guides have them."""
    limits = {
        "sm_75": (64, 32, 16),
        "sm_80": (163, 64, 32),
        "sm_86": (99, 48, 16),
        "sm_89": (99, 48, 24),
        "sm_90": (227, 64, 32),
        "sm_100": (227, 64, 32),
        "sm_120": (99, 48, 24),
        "gfx90a": (64, 32, 32),
        "gfx942": (64, 32, 32),
    }
    assert (gpu.shared_per_block // KIB, gpu.warps_per_sm, gpu.blocks_per_sm) == limits[gpu.arch]
    kept = 0 if gpu.arch == "sm_75" or gpu.vendor == "amd" else KIB
    assert gpu.shared_per_sm - gpu.shared_per_block == kept
    assert gpu.registers_per_sm == (131072 if gpu.vendor == "amd" else 65536)


@every_gpu
def test_magnitudes(gpu):
    assert 1e11 < gpu.bandwidth < 2e13
    assert 1e9 < gpu.clock < 3e9
    assert gpu.base_clock is None or 5e8 < gpu.base_clock < gpu.clock
    assert gpu.tensor_clock is None or gpu.tensor_clock <= gpu.clock
    assert gpu.memory_bytes > 10 * gpu.l2_bytes


@every_gpu
def test_every_row_says_where_it_is_from(gpu):
    assert gpu.source
    assert all(page.startswith("https://") for page in gpu.checked)
    assert gpu.checked or gpu.unverified, "a row nobody checked must say so"


def test_triton_targets():
    assert resolve("h100").triton_arch == 90
    assert (resolve("mi300x").backend, resolve("mi300x").triton_arch) == ("hip", "gfx942")
    assert resolve("mi300x").warp_size == 64


def test_the_table_cannot_be_changed():
    for unit in ("peaks", "vector", "tensor"):
        with pytest.raises(TypeError):
            getattr(resolve("h100"), unit)["fp16"] = 1.0


# -- a malformed table -------------------------------------------------------------------------------


def one_row(**changes: str) -> str:
    """The H200 and its architecture, with some lines changed (``None``: left out)."""
    architecture = re.search(r"\[architecture\.sm_90\].*?\n\n", TEXT, re.DOTALL)
    gpu = re.search(r"\[\[gpu\]\]\nname = \"H200\".*?\n\n", TEXT, re.DOTALL)
    assert architecture
    assert gpu
    lines = []
    row = re.sub(r"checked = \[\n.*?\]", "checked = []", gpu[0], flags=re.DOTALL)
    for line in row.splitlines():
        column = line.split(" = ")[0]
        lines.append(changes.pop(column) if column in changes else line)
    return architecture[0] + "\n".join(filter(None, [*lines, *changes.values()])) + "\n"


def test_one_row_alone_is_a_table():
    (gpu,) = read_table(one_row()).gpus
    assert (gpu.peaks, gpu.l2_bytes) == (resolve("h200").peaks, resolve("h200").l2_bytes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sms": ""}, ("H200", "sms", "None")),
        ({"sms": "sms = 0"}, ("H200", "sms", "0")),
        ({"sms": "sms = -1"}, ("H200", "sms", "-1")),
        ({"sms": "sms = 1.5"}, ("H200", "sms", "whole")),
        ({"sms": 'sms = "132"'}, ("H200", "sms", "'132'")),
        ({"sms": "sms = true"}, ("H200", "sms", "True")),
        ({"clock_mhz": "clock_mhz = nan"}, ("H200", "clock_mhz", "nan")),
        ({"bandwidth_gbs": "bandwidth_gbs = inf"}, ("H200", "bandwidth_gbs", "inf")),
        ({"vector": "vector = {}"}, ("H200", "vector", "fp32")),
        ({"vector": "vector = 66.9"}, ("H200", "vector", "66.9")),
        ({"tensor": "tensor = { fp7 = 1 }"}, ("H200", "tensor", "fp7")),
        ({"tensor": "tensor = { fp16 = 0 }"}, ("H200", "tensor.fp16", "0")),
        ({"arch": 'arch = "sm_91"'}, ("H200", "arch", "sm_91")),
        ({"name": ""}, ("number 1", "name")),
        ({"source": 'source = " "'}, ("H200", "source")),
        ({"aliases": 'aliases = "H200"'}, ("H200", "aliases")),
        ({"l2_mib": "l2_mb = 60"}, ("H200", "l2_mib", "None")),
        ({"aliases": 'aliases = ["NVIDIA"]'}, ("H200", "aliases")),
        ({"extra": "watts = 700"}, ("H200", "watts", "unknown column")),
        ({"extra": 'unverified = ["base_clock_mhz"]'}, ("H200", "unverified", "base_clock_mhz")),
        ({"extra": "[colours]"}, ("colours",)),
    ],
)
def test_a_malformed_row_is_refused_by_name(changes, named):
    with pytest.raises(ValueError, match="GPU table") as caught:
        read_table(one_row(**changes))
    for words in named:
        assert words in str(caught.value)


def test_two_rows_may_not_share_a_name():
    row = one_row()
    twin = row[row.index("[[gpu]]") :]
    with pytest.raises(ValueError, match="H200"):
        read_table(row + twin)
    with pytest.raises(ValueError, match="also means H200"):
        read_table(row + twin.replace('name = "H200"', 'name = "H300"'))


def test_the_shipped_table_uses_known_precisions_only():
    for row in tomllib.loads(TEXT)["gpu"]:
        assert set(row["tensor"]) <= set(PRECISIONS)


# -- GPUs that are not in it -------------------------------------------------------------------------


def properties(**fields):
    """What torch reports of a card."""
    return SimpleNamespace(**fields)


H20 = properties(
    name="NVIDIA H20",
    major=9,
    minor=0,
    gcnArchName="NVIDIA H20",
    multi_processor_count=78,
    total_memory=96 << 30,
    L2_cache_size=60 << 20,
    shared_memory_per_block_optin=227 * KIB,
    shared_memory_per_multiprocessor=228 * KIB,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    warp_size=32,
    clock_rate=1_980_000,
    memory_clock_rate=2_619_000,
    memory_bus_width=6144,
)


def test_a_known_card_gets_its_row_and_no_other():
    present = _describe(0, properties(name="NVIDIA H200", major=9, minor=0))
    assert present.best_row is present.spec is resolve("h200")
    assert present.derived is None


def test_an_unknown_card_gets_a_derived_row():
    present = _describe(0, H20)
    assert present.spec is None
    row = present.best_row
    assert row is not None
    assert row is present.derived
    assert (row.name, row.arch, row.sms, row.source) == ("NVIDIA H20", "sm_90", 78, DERIVED)
    assert (row.warps_per_sm, row.blocks_per_sm, row.l2_bytes) == (64, 32, 60 << 20)
    assert row.vector["fp32"] == pytest.approx(78 * 256 * 1.98e9)
    assert row.tensor["fp16"] == pytest.approx(78 * 4096 * 1.98e9)
    assert row.bandwidth == pytest.approx(4.0e12, rel=0.01)
    assert find("NVIDIA H20") is None, "the judge must not take a derived row for a data sheet"


@every_gpu
def test_a_derived_row_agrees_with_the_table_where_both_exist(gpu):
    """The same counts and clocks give the same peaks, or half of them where consumer cards exist."""
    major, minor = (int(gpu.arch[3:-1]), int(gpu.arch[-1])) if gpu.vendor == "nvidia" else (9, 0)
    row = derived_gpu(
        properties(
            name=gpu.name,
            major=major,
            minor=minor,
            gcnArchName=f"{gpu.arch}:sramecc+" if gpu.vendor == "amd" else gpu.name,
            multi_processor_count=gpu.sms,
            total_memory=gpu.memory_bytes,
            clock_rate=int((gpu.tensor_clock or gpu.clock) / 1e3),
        )
    )
    assert row is not None
    assert row.arch == gpu.arch
    assert (row.shared_per_block, row.warps_per_sm) == (gpu.shared_per_block, gpu.warps_per_sm)
    assert 0 < row.bandwidth <= gpu.bandwidth * 1.001
    for precision, peak in row.tensor.items():
        assert peak <= gpu.tensor[precision] * 1.03
        assert peak >= gpu.tensor[precision] * 0.48 or precision == "fp64"


@pytest.mark.parametrize(
    ("reported", "like"),
    [
        ({"major": 8, "minor": 7}, "sm_86"),
        ({"major": 10, "minor": 3}, "sm_100"),
        ({"major": 12, "minor": 1}, "sm_120"),
        ({"major": 9, "minor": 5, "gcnArchName": "gfx950:sramecc+:xnack-"}, "gfx942"),
    ],
)
def test_a_new_member_of_a_family_is_taken_for_its_elder(reported, like):
    row = derived_gpu(properties(name="New", multi_processor_count=10, total_memory=1 << 34, **reported))
    assert row is not None
    assert row.arch != like
    assert row.blocks_per_sm == table().architectures[like].blocks_per_sm


@pytest.mark.parametrize(
    "reported",
    [
        {"major": 7, "minor": 0},
        {"major": 6, "minor": 1},
        {"major": 99, "minor": 0},
        {"major": 11, "minor": 0, "gcnArchName": "gfx1100"},
        {"major": 9, "minor": 0, "gcnArchName": "gfx908:sramecc+"},
        {"major": 9, "minor": 0, "multi_processor_count": 0},
        {"major": 9, "minor": 0, "total_memory": 0},
        {},
    ],
)
def test_of_an_unknown_architecture_nothing_is_guessed(reported):
    card = {"name": "Odd", "multi_processor_count": 80, "total_memory": 1 << 34, **reported}
    assert derived_gpu(properties(**card)) is None


def test_attained_rates_are_below_the_peaks_of_their_card() -> None:
    card = reference()
    assert card.attained
    assert max(card.attained.values()) < max(card.peaks.values())


def test_an_attained_rate_is_a_positive_number() -> None:
    with pytest.raises(ValueError, match=r"gpu H200: attained\.ordinary units: expected a positive number"):
        read_table(TEXT.replace('"ordinary units" = 20', '"ordinary units" = -20'))
