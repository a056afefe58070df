"""From facts to findings, purely: each finding names what is wrong and how to fix it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from egg.doctor.machine import Facts, GpuFacts
from egg.hardware.gpus import find

OLDEST = {"torch": (2, 9), "triton": (3, 5)}
NEWEST_TRIED = {"torch": (2, 13), "triton": (3, 9)}
GIB = 1 << 30


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One thing looked at. ``fix`` says what to do about it and is empty when nothing is wrong."""

    name: str
    status: Status
    detail: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """Schema ``egg.doctor/1`` calls the fix ``mend``."""
        return {"name": self.name, "status": self.status.value, "detail": self.detail, "mend": self.fix}


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    return tuple(
        finding
        for check in (_software, _known_trouble, _gpus, _toolchain, _profilers, _sandbox, _space)
        for finding in check(facts)
    )


def failed(findings: tuple[Finding, ...]) -> bool:
    return any(f.status is Status.FAIL for f in findings)


def _software(facts: Facts) -> Iterator[Finding]:
    shown = ".".join(map(str, facts.python))
    if facts.python < (3, 11):
        yield Finding("python", Status.FAIL, shown, "EGG needs Python 3.11 or newer")
    else:
        yield Finding("python", Status.OK, shown)
    for package, oldest in OLDEST.items():
        yield _version(package, facts.versions.get(package), oldest, NEWEST_TRIED[package])
    if facts.versions.get("numpy") is None:
        yield Finding(
            "numpy",
            Status.WARN if facts.gpus else Status.FAIL,
            "not installed; Triton's interpreter needs it",
            "pip install numpy",
        )
    else:
        yield Finding("numpy", Status.OK, str(facts.versions["numpy"]))


def _version(package: str, installed: str | None, oldest: tuple[int, int], tried: tuple[int, int]) -> Finding:
    wanted = f"{oldest[0]}.{oldest[1]}"
    if installed is None:
        return Finding(package, Status.FAIL, "not installed", f"pip install '{package}>={wanted}'")
    if _numbers(installed) < oldest:
        return Finding(
            package, Status.FAIL, f"{installed} is too old", f"pip install -U '{package}>={wanted}'"
        )
    if _numbers(installed)[:2] > tried:
        newest = f"{tried[0]}.{tried[1]}"
        return Finding(
            package,
            Status.WARN,
            f"{installed} is newer than any tried here",
            f"if odd, try {package} {newest}",
        )
    return Finding(package, Status.OK, installed)


def _known_trouble(facts: Facts) -> Iterator[Finding]:
    """Combinations known to misbehave: those EGG works around are reported, the others have a fix."""
    triton, numpy = facts.versions.get("triton"), facts.versions.get("numpy")
    if facts.torch_wants_triton and triton and triton != facts.torch_wants_triton:
        yield Finding(
            "torch and triton",
            Status.WARN,
            f"this torch was built for triton {facts.torch_wants_triton}, installed is {triton}; "
            "torch.compile baselines may fail",
            f"pip install triton=={facts.torch_wants_triton}",
        )
    if not facts.bytecode:
        yield Finding(
            "bytecode",
            Status.WARN,
            "torch is installed as text alone: each process of a judge compiles it anew, which takes as long "
            "as the rest of a verdict",
            "unset PYTHONDONTWRITEBYTECODE, and run `python -m compileall -q -j 0` on site-packages",
        )
    if triton and numpy and _numbers(triton) < (3, 9) and _numbers(numpy) >= (2, 4):
        yield Finding(
            "interpreter",
            Status.OK,
            f"triton {triton} with numpy {numpy} can break loops with a runtime bound; EGG works around it",
        )
    if triton and _numbers(triton) >= (3, 9):
        yield Finding(
            "language",
            Status.OK,
            f"triton {triton} no longer has make_block_ptr: kernels use pointers or tensor descriptors",
        )


def _gpus(facts: Facts) -> Iterator[Finding]:
    if facts.gpu_probe_fault:
        yield Finding(
            "gpu",
            Status.FAIL if facts.driver_present else Status.WARN,
            f"asking torch for GPUs failed: {facts.gpu_probe_fault}",
            "check `nvidia-smi` and that torch is a build for this driver",
        )
    elif not facts.gpus:
        yield _no_gpu(facts)
    for gpu in facts.gpus:
        yield _gpu(gpu)
        yield _calibration(gpu)


def _no_gpu(facts: Facts) -> Finding:
    if facts.driver_present:
        return Finding(
            "gpu",
            Status.FAIL,
            "a GPU driver is loaded but torch sees no GPU",
            "install a CUDA (or ROCm) build of torch, and check CUDA_VISIBLE_DEVICES",
        )
    return Finding(
        "gpu",
        Status.WARN,
        "none: kernels are compiled for a target GPU and judged in the interpreter; no time is measured",
        "run the same command, or `python -m egg.evaluator`, on a machine with a GPU to measure times",
    )


def _gpu(gpu: GpuFacts) -> Finding:
    name = f"gpu {gpu.index}"
    if gpu.fault:
        return Finding(
            name, Status.FAIL, f"{gpu.name}: {gpu.fault}", "check `nvidia-smi`; reset or leave it out"
        )
    busy = (gpu.busy_percent or 0) >= 10 or (gpu.used_bytes or 0) > 2 * GIB
    if busy:
        used = f"{(gpu.used_bytes or 0) / GIB:.1f} GiB in use, {gpu.busy_percent or 0}% busy"
        return Finding(
            name,
            Status.WARN,
            f"{gpu.name}: {used}; times will be noisy",
            "stop the other work, or choose --device",
        )
    if find(gpu.name) is None:
        return Finding(
            name,
            Status.WARN,
            f"{gpu.name}: usable, but not in the GPU table: no plausibility gate, and facts and predictions "
            "take a row derived from the driver's figures",
            "add its row to egg/hardware/gpus.toml (docs/hardware.md says how)",
        )
    return Finding(name, Status.OK, f"{gpu.name}: usable, idle")


def _calibration(gpu: GpuFacts) -> Finding:
    name = f"calibration {gpu.index}"
    if gpu.calibration_fault:
        return Finding(name, Status.WARN, gpu.calibration_fault, "egg doctor --calibrate")
    if gpu.calibrated:
        return Finding(name, Status.OK, f"measured {gpu.calibrated}")
    return Finding(
        name,
        Status.OK,
        "none: predictions take the usual shares of the data sheet; `egg doctor --calibrate` measures them",
    )


def _toolchain(facts: Facts) -> Iterator[Finding]:
    """Triton compiles its launcher with a C compiler; without a GPU only its bundled tools matter."""
    need = Status.FAIL if facts.gpus else Status.WARN
    if facts.compiler is None:
        yield Finding(
            "c compiler", need, "none found; Triton builds its launcher with one", "install gcc, or set CC"
        )
    elif not facts.python_headers:
        yield Finding(
            "c compiler", need, "Python.h is missing; Triton's launcher needs it", "install python3-dev"
        )
    else:
        yield Finding("c compiler", Status.OK, facts.compiler)
    missing = sorted(name for name, there in facts.bundled_tools.items() if not there)
    if missing:
        yield Finding(
            "offline compile",
            Status.WARN if facts.gpus else Status.FAIL,
            f"the Triton installation lacks {', '.join(missing)}",
            "install the Triton wheel from PyPI: it bundles them",
        )
    elif facts.bundled_tools:
        yield Finding("offline compile", Status.OK, ", ".join(sorted(facts.bundled_tools)))


def _profilers(facts: Facts) -> Iterator[Finding]:
    """Wanted on GPU machines only: a machine without one has nothing to profile."""
    if not facts.gpus:
        return
    if facts.ncu is None:
        yield Finding("ncu", Status.WARN, "not found; no hardware counters", "install Nsight Compute")
    elif facts.counters_admin_only and not facts.root:
        yield Finding(
            "ncu",
            Status.WARN,
            f"{facts.ncu}, but the driver keeps counters to the administrator",
            "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0",
        )
    else:
        yield Finding("ncu", Status.OK, f"{facts.ncu}, counters permitted")
    if facts.compute_sanitizer is None:
        yield Finding(
            "compute-sanitizer",
            Status.WARN,
            "not found; `--level audit` cannot check memory",
            "install the CUDA toolkit's sanitizer",
        )
    else:
        yield Finding("compute-sanitizer", Status.OK, facts.compute_sanitizer)


_MEANS = {
    "network namespace": "allow user namespaces (kernel.unprivileged_userns_clone=1), or run as root",
    "own user": "run as root so that each candidate gets a user id of its own",
    "landlock": "a kernel with Landlock (5.13 or newer, listed in /sys/kernel/security/lsm)",
}


def _sandbox(facts: Facts) -> Iterator[Finding]:
    if facts.sandbox is None:
        yield Finding(
            "sandbox",
            Status.FAIL,
            f"a probe process could not be confined: {facts.sandbox_fault}",
            "candidates are not run unconfined: fix the cause first",
        )
        return
    for means, fix in _MEANS.items():
        if means in facts.sandbox:
            yield Finding(f"sandbox: {means}", Status.OK, "takes hold")
        else:
            yield Finding(
                f"sandbox: {means}", Status.WARN, "not available; candidates are confined less", fix
            )


def _space(facts: Facts) -> Iterator[Finding]:
    if facts.shm_bytes is None:
        yield Finding("/dev/shm", Status.WARN, "missing", "mount a tmpfs there")
    else:
        yield _room("/dev/shm", facts.shm_bytes, GIB, 64 << 20, "enlarge it (docker: --shm-size=8g)")
    yield _room(
        "disk", facts.scratch_bytes, 4 * GIB, GIB // 4, f"free space in {facts.scratch}, or set TMPDIR"
    )
    if facts.memory_bytes is not None:
        yield _room("memory", facts.memory_bytes, 6 * GIB, 2 * GIB, "stop other programs")


def _room(name: str, free: int, enough: int, least: int, fix: str) -> Finding:
    shown = f"{free / GIB:.1f} GiB free"
    if free >= enough:
        return Finding(name, Status.OK, shown)
    return Finding(name, Status.FAIL if free < least else Status.WARN, shown, fix)


def _numbers(version: str) -> tuple[int, ...]:
    """``2.11.0+cu130`` -> (2, 11, 0): the leading numbers, for comparing."""
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(n) for n in leading[0].split(".")) if leading else (0,)
