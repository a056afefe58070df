"""Sanitizer: compute-sanitizer's memcheck, initcheck and racecheck on a small shape, no caching allocator."""

from __future__ import annotations

import sys
from typing import Any

import torch

from egg.evaluator import exchange
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.process.confined import Cell
from egg.evaluator.process.sandbox import Limits
from egg.evaluator.reference import BUILD_SEED
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import CannotRescale, rescale
from egg.hardware.detect import cuda_tool

TOOLS = ("memcheck", "initcheck", "racecheck")
TOOL_SECONDS = 120.0
FOUND = 86
LIMITS = Limits(address_space=None, resident=1 << 40, processes=512)


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
    inputs = small.inputs(7, torch.device("cpu"), exam.policy.precision)
    with Cell(LIMITS, "egg-sanitizer-") as cell:
        cell.put("candidate.py", exam.candidate.source)
        cell.put(
            "work", exchange.whole((small.init_arguments(), inputs, BUILD_SEED, exam.policy.precision.value))
        )
        command = [
            sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all",
            sys.executable, "-m", "egg.evaluator.worker.sanitized", str(cell.folder),
        ]  # fmt: skip
        ended = cell.run(
            command, TOOL_SECONDS, watched=True, environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        )
    if ended.code == FOUND:
        lines = [line for line in ended.output.splitlines() if line.startswith("=========")]
        raise Refused(
            f"sanitizer.{tool}", f"{tool}: {' '.join(lines[1:6])[:600]}",
            "an invalid or uninitialised access, or a race, on the device",
        )  # fmt: skip
    if ended.code != 0:
        how = f"cut off after {TOOL_SECONDS:.0f} s" if ended.cut == "time" else f"exit {ended.code}"
        exam.warnings.append(f"{tool} did not finish ({how}): {ended.output.strip()[-200:]}")
