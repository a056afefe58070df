"""What a refusal says, as values.

The judge's evidence is a sentence for people. Whatever a repair depends on is read off it here and nowhere
else, so that a refusal that carries the same as data needs one change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from egg.core.evaluation import Refusal

INEXACT = 5e-3
"""Relative error up to which a result is inexact; beyond it, it is wrong."""
_ERROR = re.compile(r"relative rms error ([\d.e+-]+)")
_EXCESS = re.compile(r"([\d.]+)x the allowed")
_PLACE = re.compile(r"line (\d+) in (\w+)")


@dataclass(frozen=True)
class Evidence:
    relative_error: float | None
    """Of a result that was compared with the reference."""
    excess: float | None
    """How many times the allowed error the worst result has."""
    kept: bool
    """Whether a call saw something of an earlier one, or could not be recorded."""
    line: int | None
    """Of the file, where the refusal names the place."""
    function: str
    text: str

    @classmethod
    def of(cls, refusal: Refusal) -> Evidence:
        text = refusal.evidence
        error, place = _ERROR.search(text), _PLACE.match(text)
        times = [float(number) for number in _EXCESS.findall(text)]
        return cls(
            relative_error=float(error[1].rstrip(".")) if error else None,
            excess=max(times, default=None),
            kept=refusal.reason.startswith("state.") or "captur" in text,
            line=int(place[1]) if place else None,
            function=place[2] if place else "",
            text=text,
        )

    def names(self, function: str) -> bool:
        """Whether the refusal mentions a function of the file."""
        return re.search(rf"\b{function}\b", self.text) is not None


def inexact(refusal: Refusal) -> bool:
    """Whether a result was compared and found near, but not near enough."""
    error = Evidence.of(refusal).relative_error
    compared = refusal.reason.startswith(("correctness.", "state."))
    return compared and error is not None and error <= INEXACT
