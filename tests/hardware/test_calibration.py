"""Calibrations: kept safely, applied beside the data sheet, and measured with the right arithmetic."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
from hypothesis import given
from hypothesis import strategies as st
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from egg.core.errors import MachineError, UsageError
from egg.evaluator.calibrate import gpu_bench
from egg.evaluator.calibrate import measure as calibrate
from egg.evaluator.calibrate.gpu_bench import Bench, Probe, precisions, reading
from egg.hardware.calibration import (
    SCHEMA,
    Calibration,
    attained,
    compare,
    default_folder,
    file_of,
    load,
    read,
    save,
)
from egg.hardware.gpus import resolve
from tests import samples

H200 = resolve("h200")
MEASURED = samples.CALIBRATION


# -- kept -------------------------------------------------------------------------------------------


def test_what_is_saved_is_what_is_loaded(tmp_path):
    assert load("H200", tmp_path) is None
    file = save(MEASURED, tmp_path / "new" / "folder")
    assert load("H200", tmp_path / "new" / "folder") == MEASURED
    assert read(file) == MEASURED
    assert [f.name for f in file.parent.iterdir()] == ["h200.json"]


def test_all_names_of_a_card_mean_one_file(tmp_path):
    save(replace(MEASURED, gpu="NVIDIA H100 80GB HBM3"), tmp_path)
    assert load("h100", tmp_path) is not None
    assert load("H100 SXM", tmp_path) is not None
    assert load("H100 PCIe", tmp_path) is None
    assert load("H200", tmp_path) is None


@given(st.text(max_size=60))
def test_no_name_leads_out_of_the_folder(name):
    folder = Path("/somewhere/egg")
    assert file_of(name, folder).parent == folder
    assert re.fullmatch(r"[a-z0-9-]+\.json", file_of(name, folder).name)


def test_a_later_calibration_replaces_an_earlier_one(tmp_path):
    save(MEASURED, tmp_path)
    save(replace(MEASURED, copy_bandwidth=4.3e12), tmp_path)
    found = load("H200", tmp_path)
    assert found is not None
    assert found.copy_bandwidth == 4.3e12


def test_a_write_that_fails_leaves_the_earlier_one(tmp_path, monkeypatch):
    save(MEASURED, tmp_path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save(replace(MEASURED, copy_bandwidth=1e12), tmp_path)
    assert load("H200", tmp_path) == MEASURED
    assert [f.name for f in tmp_path.iterdir()] == ["h200.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("[]", "schema"),
        ("null", "schema"),
        ("{}", "schema"),
        (json.dumps(MEASURED.to_json() | {"schema": "egg.calibration/2"}), "egg.calibration/2"),
        (json.dumps(MEASURED.to_json() | {"copy_bandwidth": 0}), "copy_bandwidth"),
        (json.dumps(MEASURED.to_json() | {"copy_bandwidth": "nan"}), "copy_bandwidth"),
        (json.dumps(MEASURED.to_json() | {"gap_milliseconds": None}), "float"),
        (json.dumps(MEASURED.to_json() | {"gap_milliseconds": "fast"}), "fast"),
        (json.dumps(MEASURED.to_json() | {"gpu": 7}), "type"),
        (json.dumps(MEASURED.to_json() | {"matrix": [1]}), "type"),
        (json.dumps(MEASURED.to_json() | {"matrix": {"fp7": 1}}), "fp7"),
        (json.dumps(MEASURED.to_json() | {"matrix": {"fp16": -1}}), "matrix.fp16"),
        (json.dumps({k: v for k, v in MEASURED.to_json().items() if k != "when"}), "when"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, text, message):
    file = tmp_path / "h200.json"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        load("H200", tmp_path)
    assert str(file) in caught.value.message
    assert message in caught.value.message
    assert "--calibrate" in caught.value.hint


def test_an_unreadable_file_is_no_calibration(tmp_path):
    (tmp_path / "h200.json").mkdir()
    with pytest.raises(UsageError, match=r"h200\.json"):
        load("H200", tmp_path)


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"XDG_CONFIG_HOME": "/etc/me", "HOME": "/home/me"}, "/etc/me/egg/calibration"),
        ({"HOME": "/home/me"}, "/home/me/.config/egg/calibration"),
        ({"XDG_CONFIG_HOME": "", "HOME": "/home/me"}, "/home/me/.config/egg/calibration"),
        ({"XDG_CONFIG_HOME": "not/absolute", "HOME": "/home/me"}, "/home/me/.config/egg/calibration"),
    ],
)
def test_the_folder_is_where_configuration_goes(environment, folder):
    assert default_folder(environment) == Path(folder)


# -- applied ----------------------------------------------------------------------------------------


def test_a_calibration_against_the_data_sheet():
    real = attained(H200, MEASURED)
    assert real.memory == pytest.approx(4.2 / 4.8)
    assert real.matrix == pytest.approx((408 / 494.7 + 790 / 989.4) / 2, rel=1e-3), "fp32 has no tensor core"
    assert real.vector == pytest.approx(60 / 66.9, rel=1e-3)
    assert real.l2_bytes_per_clock == pytest.approx(7e12 / H200.sms / H200.clock)
    assert real.gap_seconds == pytest.approx(2e-6)


def test_a_library_without_tensor_cores_says_nothing_of_them():
    assert attained(H200, replace(MEASURED, matrix={"fp32": 52e12})).matrix is None


def test_the_data_sheet_itself_is_never_touched():
    before = (H200.bandwidth, dict(H200.peaks))
    attained(H200, MEASURED)
    assert (H200.bandwidth, dict(H200.peaks)) == before


def test_another_cards_calibration_is_refused():
    with pytest.raises(ValueError, match="H200 says nothing of H100"):
        attained(resolve("h100"), MEASURED)


def test_figures_beside_the_table():
    rows = {row.name: row for row in compare(MEASURED, H200)}
    assert rows["copy"].share == pytest.approx(4.2 / 4.8)
    assert rows["matrix bf16"].share == pytest.approx(790 / 989.4)
    assert rows["matrix fp32"].share == pytest.approx(52 / 66.9)
    assert rows["read from L2"].share is None
    assert rows["gap between kernels"].measured == pytest.approx(2.0)
    assert all(row.share is None for row in compare(MEASURED, None))


# -- measured: the arithmetic, under a clock that is ours ----------------------------------------------


class FakeStopwatch:
    """Runs nothing for real: each probe takes what its name says, with an outlier now and then."""

    def __init__(self, milliseconds: dict[str, float], issued: float = 3.0, queued: float = 0.5) -> None:
        self.milliseconds, self._issued, self._queued = milliseconds, issued, queued
        self.log: list[tuple[str, int, bool]] = []

    def times(self, run, repeats, *, cold):
        name = run()
        self.log.append((name, repeats, cold))
        usual = self.milliseconds[name]
        return [usual * (10 if number % 5 == 3 else 1) for number in range(repeats)]

    def issued(self, run, count):
        assert run() == "empty"
        return self._issued * count / 200

    def queued(self, run, count):
        return self._queued * count / 200


def bench(**matrix: float | None) -> Bench:
    def named(name: str, amount: float, cold: bool = False) -> Probe:
        return Probe(lambda: name, amount, cold)

    return Bench(
        gpu="NVIDIA H200",
        driver="580.65.06",
        copy=named("copy", 2e9, cold=True),
        read=named("read", 1e9, cold=True),
        l2=named("l2", 8e9),
        vector=named("vector", 1e11),
        matrix={
            p: (lambda p=p, amount=amount: named(p, amount) if amount else None)
            for p, amount in matrix.items()
        },
        empty=lambda: "empty",
    )


TIMES = {"copy": 0.5, "read": 0.25, "l2": 1.0, "vector": 2.0, "bf16": 1.25, "fp32": 500.0}


def test_amounts_over_median_times():
    watch = FakeStopwatch(TIMES)
    made = calibrate.calibrated(bench(bf16=1e12, fp32=1e12, fp8=None), watch)
    assert made.copy_bandwidth == pytest.approx(4e12)
    assert made.read_bandwidth == pytest.approx(4e12)
    assert made.l2_bandwidth == pytest.approx(8e12)
    assert made.vector_fp32 == pytest.approx(5e13)
    assert made.matrix == pytest.approx({"bf16": 8e14, "fp32": 2e12})
    assert made.launch_milliseconds == pytest.approx(0.015)
    assert made.gap_milliseconds == pytest.approx(0.0025)
    assert (made.schema, made.torch) == (SCHEMA, torch.__version__)
    assert Calibration.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_memory_is_measured_cold_and_long_runs_are_repeated_less():
    watch = FakeStopwatch(TIMES)
    calibrate.calibrated(bench(fp32=1e12), watch)
    assert {name for name, _, cold in watch.log if cold} == {"copy", "read"}
    repeats = {name: most for name, most, _ in watch.log}
    assert repeats == {"copy": 50, "read": 50, "l2": 50, "vector": 50, "fp32": 5}
    assert max(i for i, (n, *_) in enumerate(watch.log) if n == "vector") < next(
        i for i, (n, *_) in enumerate(watch.log) if n == "fp32"
    )


@pytest.mark.parametrize("stuck", ["copy", "vector", "bf16"])
def test_a_clock_that_stands_still_is_a_fault_of_the_machine(stuck):
    with pytest.raises(MachineError, match="clock"):
        calibrate.calibrated(bench(bf16=1e12), FakeStopwatch(TIMES | {stuck: 0.0}))
    with pytest.raises(MachineError, match="clock"):
        calibrate.calibrated(bench(), FakeStopwatch(TIMES, queued=0.0))


@given(st.integers(1, 1 << 34), st.integers(1, 1 << 34), st.integers(1, 4000))
def test_reading_counts_what_the_programs_read(span, traffic, programs):
    chunks, steps, moved = reading(span, traffic, programs)
    assert chunks >= 1
    assert steps >= 1
    assert moved == steps * programs * 8192
    assert moved <= max(traffic, programs * 8192)
    assert (chunks - 1) * 8192 <= span


def test_one_pass_over_memory_reads_no_byte_twice():
    chunks, steps, moved = reading(1 << 30, 1 << 30, 132 * 8)
    assert steps * 132 * 8 <= chunks
    assert moved > 0.98 * (1 << 30)


@pytest.mark.parametrize(
    ("arch", "wanted"),
    [
        ("sm_75", ("fp32", "fp16")),
        ("sm_80", ("fp32", "tf32", "bf16", "fp16")),
        ("sm_90", ("fp32", "tf32", "bf16", "fp16", "fp8")),
        ("sm_100", ("fp32", "tf32", "bf16", "fp16", "fp8")),
        ("gfx90a", ("fp32", "bf16", "fp16")),
        ("gfx942", ("fp32", "bf16", "fp16", "fp8")),
    ],
)
def test_precisions_an_architecture_has(arch, wanted):
    assert precisions(arch) == wanted


def test_the_drivers_version_is_read_where_the_kernel_has_it(tmp_path):
    nvidia = tmp_path / "version"
    nvidia.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
        "GCC version:  gcc version 12.3.0\n"
    )
    assert gpu_bench.driver_version(tmp_path / "missing", nvidia) == "580.65.06"
    assert gpu_bench.driver_version(tmp_path / "missing") == ""


def test_without_a_gpu_the_program_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert calibrate.main(["--out", str(tmp_path / "c.json")]) == 3
    assert "no GPU" in capsys.readouterr().err
    assert calibrate.main(["--device", "cpu"]) == 3
    assert calibrate.main(["--device", "cuda:3"]) == 3
    assert calibrate.main(["--device", "tpu"]) == 2
    assert not list(tmp_path.iterdir())


def test_the_program_writes_what_it_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(calibrate, "measure", lambda device: MEASURED)
    assert calibrate.main([]) == 0
    assert Calibration.from_json(json.loads(capsys.readouterr().out)) == MEASURED
    assert calibrate.main(["--out", str(tmp_path / "c.json")]) == 0
    assert read(tmp_path / "c.json") == MEASURED
    assert "88%" in capsys.readouterr().err


# -- measured: the kernels ----------------------------------------------------------------------------

KERNELS = {
    "read": (
        gpu_bench.read_kernel,
        {"source": "*fp32", "sums": "*fp32", "chunks": "i32", "steps": "i32", "BLOCK": "constexpr"},
        {"BLOCK": gpu_bench.READ_BLOCK},
    ),
    "multiply_add": (
        gpu_bench.multiply_add_kernel,
        {
            "sums": "*fp32",
            "factor": "fp32",
            "term": "fp32",
            "iterations": "i32",
            "BLOCK": "constexpr",
            "UNROLL": "constexpr",
        },
        {"BLOCK": gpu_bench.FMA_BLOCK, "UNROLL": gpu_bench.FMA_UNROLL},
    ),
    "empty": (gpu_bench.empty_kernel, {"pointer": "*fp32"}, {}),
}


def compiled(kernel: str, target: GPUTarget):
    function, signature, constants = KERNELS[kernel]
    aligned = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(signature.values()) if kind[0] == "*"}
    indices = {(list(signature).index(name),): value for name, value in constants.items()}
    source = ASTSource(fn=function, signature=signature, constexprs=indices, attrs=aligned)
    return triton.compile(source, target=target)


@pytest.fixture(autouse=True)
def own_triton_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "triton"))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")


@pytest.mark.parametrize("capability", [80, 90])
def test_reads_are_wide_and_pass_l1_by(capability):
    ptx = compiled("read", GPUTarget("cuda", capability, 32)).asm["ptx"]
    wide = [line for line in ptx.splitlines() if "ld.global" in line]
    assert len(wide) == gpu_bench.READ_BLOCK // (4 * 32 * 4), "one 128-bit load for every four elements"
    assert all(".cg" in line and ".v4" in line for line in wide)


@pytest.mark.parametrize("capability", [80, 90])
def test_multiply_adds_are_nothing_else(capability):
    ptx = compiled("multiply_add", GPUTarget("cuda", capability, 32)).asm["ptx"]
    fused = re.findall(r"fma\.rn(?:\.ftz)?\.f32(x2)?", ptx)
    per_thread = gpu_bench.FMA_BLOCK // (4 * 32) * gpu_bench.FMA_UNROLL
    assert sum(2 if packed else 1 for packed in fused) == per_thread


def test_the_kernels_compile_for_amd_and_the_empty_one_is_empty():
    for kernel in KERNELS:
        assert compiled(kernel, GPUTarget("hip", "gfx942", 64)).asm["amdgcn"]
    ptx = compiled("empty", GPUTarget("cuda", 90, 32)).asm["ptx"]
    assert "ld.global" not in ptx
    assert "st.global" not in ptx


def test_the_kernels_compute_what_they_say():
    """In Triton's interpreter, which is chosen when the module is imported: so in a process of its own."""
    code = """
import torch
from egg.evaluator.calibrate import gpu_bench as g
source = torch.arange(3 * 64, dtype=torch.float32)
sums = torch.zeros(2 * 64)
g.read_kernel[(2,)](source, sums, 3, 3, BLOCK=64)
chunk = source.view(3, 64)
assert torch.equal(sums.view(2, 64), torch.stack([chunk.sum(0), chunk.sum(0)]))
g.multiply_add_kernel[(2,)](sums, 0.5, 1.0, 2, BLOCK=64, UNROLL=2)
value = torch.arange(128, dtype=torch.float32)
for _ in range(4):
    value = value * 0.5 + 1.0
assert torch.allclose(sums, value)
g.empty_kernel[(1,)](sums)
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
