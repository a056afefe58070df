"""Sanitizer: compute-sanitizer's memcheck, initcheck and racecheck on a small shape, no caching allocator."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import egg
from egg.evaluator import exchange
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.process import sandbox
from egg.evaluator.process.child import ENVIRONMENT
from egg.evaluator.reference import BUILD_SEED
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import CannotRescale, rescale
from egg.hardware.detect import cuda_tool

TOOLS = ("memcheck", "initcheck", "racecheck")
TOOL_SECONDS = 120.0
FOUND = 86


def run(exam: Exam) -> dict[str, Any]:
    sanitizer = cuda_tool("compute-sanitizer")
    if sanitizer is None:
        exam.warnings.append("compute-sanitizer is not installed: the sanitizer gate was left out")
        return {"tools": []}
    try:
        small = rescale(exam.reference.program.task, max_flops=1e9, max_elements=1 << 22).task
    except CannotRescale:
        small = exam.reference.program.task
    with Program.load(small) as program:
        for tool in TOOLS:
            _run_tool(exam, sanitizer, tool, program)
    return {"tools": list(TOOLS)}


def _run_tool(exam: Exam, sanitizer: str, tool: str, small: Program) -> None:
    folder = Path(tempfile.mkdtemp(prefix="egg-sanitizer-"))
    try:
        inputs = small.inputs(7, torch.device("cpu"), exam.policy.precision)
        (folder / "candidate.py").write_text(exam.candidate.source)
        (folder / "work").write_text(
            exchange.whole((small.init_arguments(), inputs, BUILD_SEED, exam.policy.precision.value))
        )
        command = [
            sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all",
            sys.executable, "-m", "egg.evaluator.worker.sanitized", str(folder),
        ]  # fmt: skip
        code, output = _confined(command, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if code == FOUND:
        lines = [line for line in output.splitlines() if line.startswith("=========")]
        raise Refused(
            f"sanitizer.{tool}", f"{tool}: {' '.join(lines[1:6])[:600]}",
            "an invalid or uninitialised access, or a race, on the device",
        )  # fmt: skip
    if code != 0:
        exam.warnings.append(f"{tool} did not finish (exit {code}): {output.strip()[-200:]}")


def _confined(command: list[str], folder: Path) -> tuple[int, str]:
    """Run candidate code under the sanitizer with the candidate's own confinement and a hard deadline."""
    uid = sandbox.free_uid()
    if uid is not None:
        for path in (folder, *folder.iterdir()):
            os.chown(path, uid, uid)
    environment = {
        "HOME": str(folder), "USER": "egg", "TMPDIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "PYTHONPATH": str(Path(egg.__file__).resolve().parent.parent),
        **{name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }  # fmt: skip
    limits = sandbox.Limits(address_space=None, resident=1 << 40, processes=512)
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        preexec_fn=lambda: sandbox.confine(str(folder), uid, limits, watched=True) and None,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=TOOL_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return 124, output or ""
    return process.returncode, output
