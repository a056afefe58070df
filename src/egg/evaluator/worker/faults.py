"""From an exception in candidate code to a fault the oracle can name."""

from __future__ import annotations

import traceback

import torch

from egg.evaluator.restrict.names import CANDIDATE_FILE, RestrictedError
from egg.evaluator.transport.protocol import Complaint
from egg.evaluator.worker.settings import LeftChanged

ILLEGAL = ("illegal memory access", "misaligned address", "unspecified launch failure", "device-side assert")


class Reported(Exception):
    """A finding of our own code in a worker, with its reason code: reported as it is."""

    def __init__(self, reason: str, evidence: str) -> None:
        super().__init__(evidence)
        self.reason = reason


def ordinary(error: Exception) -> bool:
    """Whether a caller sees it as an exception of Python's, on a GPU as well."""
    return not describe(error).reason.startswith("kernel.")


def describe(error: BaseException) -> Complaint:
    """Reason code and evidence for whatever the candidate raised."""
    if isinstance(error, Reported):
        return Complaint(error.reason, str(error))
    text = f"{type(error).__name__}: {error}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(CANDIDATE_FILE)]
    line, function = (frames[-1].lineno, frames[-1].name) if frames else (None, "")
    place = f"line {line} in {function}: " if frames else ""
    return Complaint(_reason(error, text), f"{place}{_trimmed(text)}", line, function, "captur" in text)


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


def _trimmed(text: str, limit: int = 1500) -> str:
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
