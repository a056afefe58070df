"""How one call of a kernel file may end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from egg.evaluator.interpreter import KernelFault

Report = Callable[[dict[str, Any]], None]
MEMORY_FAULTS = ("illegal memory access", "misaligned address", "CUDA error", "device-side assert")


class Outcome(StrEnum):
    RIGHT = "right"
    INEXACT = "inexact"
    ERROR = "error"
    """An ordinary exception."""
    WRONG = "wrong"
    """Another answer than the reference's, and no exception."""
    CRASH = "crash"
    """Memory that is not the kernel's, a race, a dead process, or no end."""
    SKIPPED = "skipped"
    """The reference itself refuses, or cannot be judged here."""


@dataclass(frozen=True)
class Tried:
    """How one call ended."""

    kind: str
    name: str
    outcome: Outcome
    detail: str = ""
    outside: str | None = None
    """Why the file's domain leaves the call out; empty where it claims it, ``None`` where it states none."""
    layout: bool = True
    """Whether outputs have the reference's strides, as far as the file does not leave them unstated. Where a
    call is right in all else, :attr:`detail` names both."""
    seconds: float = 0.0
    error: str = ""
    """The exception's type."""

    @property
    def claimed(self) -> bool:
        """An error at a call inside the file's domain."""
        return self.outcome is Outcome.ERROR and self.outside == ""

    def to_json(self) -> dict[str, Any]:
        held = {name: value for name, value in vars(self).items() if value not in ("", None)}
        return held | {"outcome": self.outcome.value, "seconds": round(self.seconds, 3)} | self._outside()

    def _outside(self) -> dict[str, str]:
        return {} if self.outside is None else {"outside": self.outside}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> Tried:
        return cls(**{**data, "outcome": Outcome(data["outcome"])})


def unreported(_: dict[str, Any]) -> None:
    """A report that goes nowhere."""


def failed(error: Exception) -> Tried:
    """The file's own exception: an ordinary error, a memory fault, or what an interpreter cannot judge."""
    text = brief(error)
    if isinstance(error, KernelFault) and error.reason == "unsupported":
        return ended(Outcome.SKIPPED, f"the interpreter cannot judge it: {text}")
    if isinstance(error, KernelFault) or is_memory(error):
        return ended(Outcome.CRASH, text)
    return replace(ended(Outcome.ERROR, text), error=type(error).__name__)


def is_memory(error: BaseException) -> bool:
    if isinstance(error, KernelFault):
        return error.reason != "unsupported"
    return any(words in str(error) for words in MEMORY_FAULTS)


def brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:260]


def ended(outcome: Outcome, detail: str = "") -> Tried:
    return Tried("", "", outcome, detail)
