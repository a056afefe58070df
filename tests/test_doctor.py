from __future__ import annotations

import dataclasses
import json
import py_compile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from egg.cli.app import app
from egg.core.errors import MachineError
from egg.doctor import Facts, GpuFacts, Status, calibrate, calibrating, diagnose, failed, gather
from egg.doctor.machine import _calibrated, _has_bytecode, _probe
from egg.hardware.calibration import Calibration, load, save
from tests import samples

GIB = 1 << 30
H200 = GpuFacts(0, "NVIDIA H200", busy_percent=0, used_bytes=1 << 20)
HEALTHY = Facts(
    python=(3, 12),
    versions={"torch": "2.11.0+cu130", "triton": "3.6.0", "numpy": "2.3.0"},
    gpus=(H200,),
    driver_present=True,
    compiler="/usr/bin/cc",
    ncu="/usr/local/cuda/bin/ncu",
    compute_sanitizer="/usr/local/cuda/bin/compute-sanitizer",
    bundled_tools={"ptxas": True, "cuobjdump": True, "nvdisasm": True},
    root=True,
    sandbox=("network namespace", "own user", "rlimits", "no new privileges", "landlock"),
    shm_bytes=8 * GIB,
    scratch="/tmp",
    scratch_bytes=50 * GIB,
    memory_bytes=100 * GIB,
)


def findings(**changes):
    return {f.name: f for f in diagnose(dataclasses.replace(HEALTHY, **changes))}


def test_a_healthy_gpu_machine_has_nothing_to_fix():
    found = diagnose(HEALTHY)
    assert {f.status for f in found} == {Status.OK}
    assert not failed(found)
    assert not any(f.fix for f in found)


@pytest.mark.parametrize(
    ("changes", "name", "status", "fix"),
    [
        ({"python": (3, 10)}, "python", Status.FAIL, "3.11"),
        ({"bytecode": False}, "bytecode", Status.WARN, "compileall"),
        (
            {"versions": {"torch": "2.8.1", "triton": "3.6.0", "numpy": "2"}},
            "torch",
            Status.FAIL,
            "torch>=2.9",
        ),
        (
            {"versions": {"torch": "2.10.0", "triton": "3.4.0", "numpy": "2"}},
            "triton",
            Status.FAIL,
            "triton>=3.5",
        ),
        (
            {"versions": {"torch": "2.10.0", "triton": None, "numpy": "2"}},
            "triton",
            Status.FAIL,
            "pip install",
        ),
        ({"versions": {"torch": "2.99.0", "triton": "3.6.0", "numpy": "2"}}, "torch", Status.WARN, "2.13"),
        ({"versions": {"torch": "2.11.0", "triton": "3.6.0", "numpy": None}}, "numpy", Status.WARN, "numpy"),
        ({"torch_wants_triton": "3.7.1"}, "torch and triton", Status.WARN, "triton==3.7.1"),
        ({"gpus": ()}, "gpu", Status.FAIL, "CUDA_VISIBLE_DEVICES"),
        ({"gpus": (), "driver_present": False}, "gpu", Status.WARN, "egg.evaluator"),
        ({"gpus": (), "gpu_probe_fault": "no answer within 90 s"}, "gpu", Status.FAIL, "nvidia-smi"),
        ({"gpus": (GpuFacts(0, "NVIDIA H200", "illegal access"),)}, "gpu 0", Status.FAIL, "nvidia-smi"),
        ({"gpus": (GpuFacts(0, "NVIDIA H200", "", 97, GIB),)}, "gpu 0", Status.WARN, "--device"),
        ({"gpus": (GpuFacts(0, "NVIDIA H200", "", 0, 30 * GIB),)}, "gpu 0", Status.WARN, "--device"),
        ({"gpus": (GpuFacts(0, "NVIDIA Z9"),)}, "gpu 0", Status.WARN, "gpus.toml"),
        (
            {"gpus": (dataclasses.replace(H200, calibration_fault="unusable calibration x.json: no"),)},
            "calibration 0",
            Status.WARN,
            "--calibrate",
        ),
        ({"compiler": None}, "c compiler", Status.FAIL, "gcc"),
        ({"python_headers": False}, "c compiler", Status.FAIL, "python3-dev"),
        ({"bundled_tools": {"ptxas": True, "nvdisasm": False}}, "offline compile", Status.WARN, "wheel"),
        ({"ncu": None}, "ncu", Status.WARN, "Nsight"),
        ({"counters_admin_only": True, "root": False}, "ncu", Status.WARN, "NVreg"),
        ({"compute_sanitizer": None}, "compute-sanitizer", Status.WARN, "sanitizer"),
        ({"sandbox": ("rlimits",)}, "sandbox: landlock", Status.WARN, "Landlock"),
        ({"sandbox": ("rlimits",)}, "sandbox: own user", Status.WARN, "root"),
        ({"sandbox": None, "sandbox_fault": "EPERM"}, "sandbox", Status.FAIL, "unconfined"),
        ({"shm_bytes": None}, "/dev/shm", Status.WARN, "tmpfs"),
        ({"shm_bytes": 300 << 20}, "/dev/shm", Status.WARN, "shm-size"),
        ({"shm_bytes": 1 << 20}, "/dev/shm", Status.FAIL, "shm-size"),
        ({"scratch_bytes": 1 << 20}, "disk", Status.FAIL, "TMPDIR"),
        ({"memory_bytes": GIB}, "memory", Status.FAIL, "stop"),
    ],
)
def test_each_fault_is_named_with_its_fix(changes, name, status, fix):
    found = findings(**changes)
    assert found[name].status is status
    assert fix in found[name].fix
    assert failed(tuple(found.values())) is (status is Status.FAIL)


def test_counters_kept_to_the_administrator_are_open_to_root():
    assert findings(counters_admin_only=True)["ncu"].status is Status.OK


def test_a_machine_without_a_gpu_is_able_and_needs_no_profiler():
    found = findings(gpus=(), driver_present=False, compiler=None, ncu=None, compute_sanitizer=None)
    assert not failed(tuple(found.values()))
    assert "ncu" not in found
    assert "compute-sanitizer" not in found


def test_without_a_gpu_the_interpreter_needs_numpy():
    versions = {"torch": "2.13.0", "triton": "3.9.0", "numpy": None}
    assert findings(gpus=(), driver_present=False, versions=versions)["numpy"].status is Status.FAIL


def test_troubles_that_are_mended_here_are_told():
    versions = {"torch": "2.11.0", "triton": "3.6.0", "numpy": "2.4.1"}
    assert "works around" in findings(versions=versions)["interpreter"].detail


def test_a_probe_that_dies_or_says_nothing_is_a_fault_not_an_exception():
    assert _probe("raise RuntimeError('wedged')") == (None, "RuntimeError: wedged")
    assert _probe("import os; os._exit(7)") == (None, "exit code 7")
    assert _probe("print('noise'); print('probe:[1]')") == ([1], "")


def test_this_machine_can_be_looked_at():
    facts = gather()
    assert facts.versions["torch"]
    assert facts.scratch_bytes > 0
    assert facts.gpu_probe_fault == ""
    assert facts.sandbox_fault == ""
    assert facts.sandbox is not None
    assert "rlimits" in facts.sandbox
    assert {f.name for f in diagnose(facts)} >= {"python", "torch", "triton", "disk"}


# -- calibration -------------------------------------------------------------------------------------

MEASURED = samples.CALIBRATION


def pretended(tmp_path: Path, body: str) -> tuple[str, ...]:
    """A measuring program that behaves as ``body`` says; ``out`` is where its result belongs."""
    program = tmp_path / "measure.py"
    program.write_text(f"import sys, time\nout = sys.argv[sys.argv.index('--out') + 1]\n{body}\n")
    return (str(program),)


def writes(calibration: Calibration) -> str:
    return f"open(out, 'w').write({json.dumps(calibration.to_json())!r})"


def test_the_doctor_says_whether_there_is_a_calibration(tmp_path):
    assert _calibrated("NVIDIA H200", tmp_path) == ("", "")
    assert "none" in findings()["calibration 0"].detail
    save(MEASURED, tmp_path)
    when, fault = _calibrated("NVIDIA H200", tmp_path)
    assert (when, fault) == (MEASURED.when, "")
    found = findings(gpus=(dataclasses.replace(H200, calibrated=when),))
    assert MEASURED.when in found["calibration 0"].detail
    (tmp_path / "h200.json").write_text("{")
    assert "h200.json" in _calibrated("NVIDIA H200", tmp_path)[1]


def test_what_was_measured_is_kept_and_held_against_the_table(tmp_path):
    folder = tmp_path / "kept"
    made = calibrate(folder, program=pretended(tmp_path, writes(MEASURED)))
    assert made.calibration == MEASURED == load("h200", folder)
    shown = {f.name: f for f in made.findings}
    assert shown["copy"].status is Status.OK
    assert "88%" in shown["copy"].detail
    assert "4,800" in shown["copy"].detail
    assert "matrix bf16" in shown
    assert "matrix fp8" not in shown
    assert str(folder) in shown["calibration"].detail
    assert json.loads(json.dumps(made.to_json()))["calibration"]["copy_bandwidth"] == 4.2e12


@pytest.mark.parametrize(("rate", "fix"), [(1e12, "clocks"), (6e12, "gpus.toml")])
def test_a_figure_far_from_the_data_sheet_is_told(tmp_path, rate, fix):
    odd = dataclasses.replace(MEASURED, copy_bandwidth=rate)
    made = calibrate(tmp_path / "kept", program=pretended(tmp_path, writes(odd)))
    (copy,) = (f for f in made.findings if f.name == "copy")
    assert copy.status is Status.WARN
    assert fix in copy.fix


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print('error: no GPU here', file=sys.stderr); sys.exit(3)", "no GPU here"),
        ("raise RuntimeError('CUDA error: wedged')", "wedged"),
        ("sys.exit(7)", "7"),
        ("time.sleep(60)", "within"),
    ],
)
def test_a_measurement_that_fails_keeps_nothing(tmp_path, monkeypatch, body, message):
    monkeypatch.setattr(calibrating, "CALIBRATE_SECONDS", 2)
    with pytest.raises(MachineError) as caught:
        calibrate(tmp_path / "kept", program=pretended(tmp_path, body))
    assert message in caught.value.message
    assert caught.value.exit_code == 3
    assert not (tmp_path / "kept").exists()


def test_the_childs_own_hint_is_passed_on(tmp_path):
    body = "print('noise\\nerror: no GPU here\\n  hint: buy one', file=sys.stderr); sys.exit(3)"
    with pytest.raises(MachineError) as caught:
        calibrate(tmp_path, program=pretended(tmp_path, body))
    assert (caught.value.message, caught.value.hint) == ("no GPU here", "buy one")


def test_calibrating_a_machine_without_a_gpu_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    result = CliRunner().invoke(app, ["doctor", "--calibrate", "--json"])
    assert result.exit_code == 3
    assert "no GPU here to calibrate" in result.output
    assert not list(tmp_path.iterdir())


def test_a_calibration_is_shown_by_the_command(monkeypatch, tmp_path):
    program = pretended(tmp_path, writes(MEASURED))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(calibrating.calibrate, "__defaults__", ("auto", program))
    shown = CliRunner().invoke(app, ["doctor", "--calibrate"])
    assert shown.exit_code == 0
    assert "88%" in shown.output
    assert (tmp_path / "config" / "egg" / "calibration" / "h200.json").exists()
    printed = json.loads(CliRunner().invoke(app, ["doctor", "--calibrate", "--json"]).stdout)
    assert printed["schema"] == "egg.calibrated/1"
    assert {row["name"] for row in printed["compared"]} >= {"copy", "matrix bf16", "launch"}


def test_a_package_without_bytecode_is_seen(tmp_path, monkeypatch):
    (tmp_path / "only_text.py").write_text("number = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not _has_bytecode("only_text")
    py_compile.compile(str(tmp_path / "only_text.py"))
    assert _has_bytecode("only_text")
    assert _has_bytecode("a_package_that_is_not_there")
