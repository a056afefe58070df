"""What the doctor sees of a machine.

What runs here are our own probes, in child processes with time limits, so that a wedged driver
cannot hang the doctor. Candidate code never runs here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from egg.core.errors import UsageError
from egg.hardware.calibration import default_folder, load
from egg.hardware.detect import cuda_tool

PROBE_SECONDS = 90


@dataclass(frozen=True)
class GpuFacts:
    """One visible GPU: ``fault`` is why it cannot be used, empty when a trivial kernel ran on it."""

    index: int
    name: str
    fault: str = ""
    busy_percent: int | None = None
    used_bytes: int | None = None
    calibrated: str = ""
    """When its calibration was measured; empty where there is none."""
    calibration_fault: str = ""
    """Why the calibration that is there cannot be used."""


@dataclass(frozen=True)
class Facts:
    """What was seen of the machine."""

    python: tuple[int, int]
    versions: Mapping[str, str | None]
    """Installed version of torch, triton and numpy; ``None`` where it is missing."""
    torch_wants_triton: str | None = None
    """The Triton version torch's own metadata pins, where it pins one."""
    bytecode: bool = True
    """Whether torch is there as bytecode: without it every process compiles what it imports of it."""
    gpus: tuple[GpuFacts, ...] = ()
    gpu_probe_fault: str = ""
    driver_present: bool = False
    compiler: str | None = None
    python_headers: bool = True
    ncu: str | None = None
    counters_admin_only: bool = False
    compute_sanitizer: str | None = None
    bundled_tools: Mapping[str, bool] = field(default_factory=dict)
    """The tools of the Triton wheel that offline compilation needs."""
    root: bool = False
    sandbox: tuple[str, ...] | None = ()
    """The means that confined a probe process; ``None`` where confining failed."""
    sandbox_fault: str = ""
    shm_bytes: int | None = None
    scratch: str = ""
    scratch_bytes: int = 0
    memory_bytes: int | None = None


def gather() -> Facts:
    """Look at this machine; takes a few seconds, most of them torch's import in a child process."""
    gpus, fault = _probe_gpus()
    means, sandbox_fault = _probe_sandbox()
    scratch = tempfile.gettempdir()
    return Facts(
        python=sys.version_info[:2],
        versions={name: _installed(name) for name in ("torch", "triton", "numpy")},
        torch_wants_triton=_torch_wants_triton(),
        bytecode=_has_bytecode("torch"),
        gpus=gpus,
        gpu_probe_fault=fault,
        driver_present=Path("/proc/driver/nvidia/version").exists() or Path("/dev/kfd").exists(),
        compiler=next(filter(None, map(shutil.which, (os.environ.get("CC") or "cc", "gcc", "clang"))), None),
        python_headers=Path(sysconfig.get_path("include"), "Python.h").exists(),
        ncu=cuda_tool("ncu"),
        counters_admin_only=_counters_admin_only(),
        compute_sanitizer=cuda_tool("compute-sanitizer"),
        bundled_tools=_bundled_tools(),
        root=os.geteuid() == 0,
        sandbox=means,
        sandbox_fault=sandbox_fault,
        shm_bytes=shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None,
        scratch=scratch,
        scratch_bytes=shutil.disk_usage(scratch).free,
        memory_bytes=_available_memory(),
    )


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _has_bytecode(package: str) -> bool:
    """Whether the package's first module was compiled to where this Python looks for it."""
    spec = importlib.util.find_spec(package)
    return spec is None or spec.cached is None or Path(spec.cached).exists()


def _torch_wants_triton() -> str | None:
    try:
        wanted = importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    pins = (re.match(r"triton\s*==\s*([\d.]+)", line) for line in wanted)
    return next((pin[1] for pin in pins if pin), None)


_GPU_PROBE = """
import json, torch
seen = []
for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
    fault = ""
    try:
        name = torch.cuda.get_device_name(i)
        total = (torch.arange(1024, device=f"cuda:{i}") * 2).sum().item()
        fault = "" if total == 1047552 else f"a sum came out as {total}"
    except Exception as error:
        name, fault = f"GPU {i}", f"{type(error).__name__}: {error}".splitlines()[0]
    seen.append({"index": i, "name": name, "fault": fault})
print("probe:" + json.dumps(seen))
"""

_SANDBOX_PROBE = """
import json, sys
from egg.evaluator.process.sandbox import Limits, confine, free_uid
means = confine(sys.argv[1], free_uid(), Limits(address_space=None, resident=1 << 30))
print("probe:" + json.dumps(means))
"""


def _probe(code: str, *arguments: str) -> tuple[Any, str]:
    """Run our own ``code`` in a child and return what it printed after ``probe:``, or why it did not."""
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {PROBE_SECONDS} s"
    for line in done.stdout.splitlines():
        if line.startswith("probe:"):
            return json.loads(line.removeprefix("probe:")), ""
    lines = done.stderr.strip().splitlines()
    return None, lines[-1] if lines else f"exit code {done.returncode}"


def _probe_gpus() -> tuple[tuple[GpuFacts, ...], str]:
    if _installed("torch") is None:
        return (), ""
    busy = _load_by_index()
    seen, fault = _probe(_GPU_PROBE)
    return tuple(_gpu_facts(row, *busy.get(row["index"], (None, None))) for row in seen or ()), fault


def _gpu_facts(row: dict[str, Any], busy: int | None, used: int | None) -> GpuFacts:
    when, fault = _calibrated(row["name"], default_folder(os.environ))
    return GpuFacts(**row, busy_percent=busy, used_bytes=used, calibrated=when, calibration_fault=fault)


def _calibrated(gpu_name: str, folder: Path) -> tuple[str, str]:
    """When a GPU's calibration was measured, and what is wrong with it."""
    try:
        calibration = load(gpu_name, folder)
    except UsageError as error:
        return "", error.message
    return (calibration.when if calibration else ""), ""


def _load_by_index() -> dict[int, tuple[int, int]]:
    """Percent busy and bytes used of each GPU, before our own probe touches it; empty where torch's
    order may differ from the driver's."""
    smi = shutil.which("nvidia-smi")
    if smi is None or os.environ.get("CUDA_VISIBLE_DEVICES"):
        return {}
    query = [smi, "--query-gpu=index,utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
    try:
        output = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout
    except (subprocess.TimeoutExpired, OSError):
        return {}
    rows = re.findall(r"^(\d+), (\d+), (\d+)$", output, flags=re.MULTILINE)
    return {int(index): (int(busy), int(used) << 20) for index, busy, used in rows}


def _probe_sandbox() -> tuple[tuple[str, ...] | None, str]:
    with tempfile.TemporaryDirectory(prefix="egg-doctor-") as scratch:
        means, fault = _probe(_SANDBOX_PROBE, scratch)
    return (None if means is None else tuple(means)), fault


def _counters_admin_only() -> bool:
    try:
        return "RmProfilingAdminOnly: 1" in Path("/proc/driver/nvidia/params").read_text()
    except OSError:
        return False


def _bundled_tools() -> dict[str, bool]:
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return {}
    folder = Path(spec.origin).parent / "backends" / "nvidia" / "bin"
    return {name: (folder / name).exists() for name in ("ptxas", "cuobjdump", "nvdisasm")}


def _available_memory() -> int | None:
    try:
        line = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        return None
    return int(line[1]) * 1024 if line else None
