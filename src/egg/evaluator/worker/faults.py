"""From an exception in candidate code to a fault the oracle can name."""

from __future__ import annotations

import traceback
from typing import Any

import torch

from egg.evaluator.restrict.names import CANDIDATE_FILE, RestrictedError
from egg.evaluator.worker.settings import LeftChanged

ILLEGAL = ("illegal memory access", "misaligned address", "unspecified launch failure", "device-side assert")


def describe(error: BaseException) -> dict[str, Any]:
    """Reason code and evidence for whatever the candidate raised."""
    text = f"{type(error).__name__}: {error}"
    return {"reason": _reason(error, text), "evidence": f"{_place(error)}{_trimmed(text)}"}


def _reason(error: BaseException, text: str) -> str:
    given = getattr(error, "reason", None)
    name = type(error).__name__
    if name == "KernelFault" and isinstance(given, str):
        return f"kernel.{given}"
    if isinstance(error, RestrictedError | LeftChanged):
        return error.reason
    if any(mark in text for mark in ILLEGAL):
        return "kernel.illegal_access"
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in text:
        return "limits.memory"
    if name in (
        "CompilationError",
        "CompileFailed",
        "CompileTimeAssertionFailure",
        "OutOfResources",
        "PTXASError",
    ):
        return "build.compile"
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return "limits.died"
    if isinstance(error, RecursionError):
        return "limits.recursion"
    if isinstance(error, SyntaxError | ImportError):
        return "build.import"
    return "candidate.error"


def _place(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(CANDIDATE_FILE)]
    return f"line {frames[-1].lineno} in {frames[-1].name}: " if frames else ""


def _trimmed(text: str, limit: int = 1500) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
