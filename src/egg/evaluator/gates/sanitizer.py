"""Sanitizer: compute-sanitizer's memcheck, initcheck and racecheck on a small shape, no caching allocator.

The tools run side by side: each starts the candidate anew and compiles its kernels under a tool that slows
everything down, which for a network takes minutes; none of them measures anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from egg.evaluator.process.confined import Cell, Ended
from egg.evaluator.process.sandbox import Limits
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import CannotRescale, rescale
from egg.evaluator.task.seeds import BUILD_SEED
from egg.evaluator.transport import exchange
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.hardware.detect import cuda_tool

TOOLS = ("memcheck", "initcheck", "racecheck")
TOOL_SECONDS = 120.0
FOUND = 86
LIMITS = Limits(address_space=None, resident=1 << 40, processes=512)


def run(trial: Trial) -> dict[str, Any]:
    sanitizer = cuda_tool("compute-sanitizer")
    if sanitizer is None:
        trial.warnings.append("compute-sanitizer is not installed: the sanitizer gate was left out")
        return {"tools": []}
    watch = _watching(trial, sanitizer)
    with ThreadPoolExecutor(len(TOOLS)) as threads:
        for tool, ended in zip(TOOLS, threads.map(watch, TOOLS), strict=True):
            _weigh(trial, tool, ended)
    return {"tools": list(TOOLS)}


def _watching(trial: Trial, sanitizer: str) -> Callable[[str], Ended]:
    """One forward at a small shape under a tool, which is named."""
    try:
        small = rescale(trial.reference.program.task, max_flops=1e9, max_elements=1 << 22).task
    except CannotRescale:
        small = trial.reference.program.task
    with Program.load(small) as program:
        inputs = program.inputs(7, torch.device("cpu"), trial.policy.precision)
        work = (program.init_arguments(), inputs, BUILD_SEED, trial.policy.precision.value)
        written = exchange.whole(work)

    def watch(tool: str) -> Ended:
        with Cell(LIMITS, "egg-sanitizer-") as cell:
            cell.put("candidate.py", trial.candidate.source)
            cell.put("work", written)
            command = [
                sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all",
                sys.executable, "-m", "egg.evaluator.worker.sanitized", str(cell.folder),
            ]  # fmt: skip
            return cell.run(
                command, TOOL_SECONDS, watched=True, environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
            )

    return watch


def _weigh(trial: Trial, tool: str, ended: Ended) -> None:
    if ended.code == FOUND:
        lines = [line for line in ended.output.splitlines() if line.startswith("=========")]
        raise Refused(
            f"sanitizer.{tool}", f"{tool}: {' '.join(lines[1:6])[:600]}",
            "an invalid or uninitialised access, or a race, on the device",
        )  # fmt: skip
    if ended.code != 0:
        how = f"cut off after {TOOL_SECONDS:.0f} s" if ended.cut == "time" else f"exit {ended.code}"
        trial.warnings.append(f"{tool} did not finish ({how}): {ended.output.strip()[-200:]}")
