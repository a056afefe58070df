"""What a repair depends on of a refusal.

The judge hands it over as facts. Logs of versions that had only sentences are still replayed: for those, and
for those alone, the facts are read off the sentence.
"""

from __future__ import annotations

import re

from egg.core.evaluation import Refusal, RefusalFacts

INEXACT = 5e-3
"""Relative error up to which a result is inexact; beyond it, it is wrong."""
_ERROR = re.compile(r"relative rms error ([\d.e+-]+)")
_EXCESS = re.compile(r"([\d.]+)x the allowed")
_PLACE = re.compile(r"line (\d+) in (\w+)")
_WORD = re.compile(r"\w+")


def facts_of(refusal: Refusal) -> RefusalFacts:
    return refusal.facts if refusal.facts is not None else _from_sentence(refusal.evidence)


def remembers(refusal: Refusal) -> bool:
    """Whether a call saw something of an earlier one, or could not be recorded."""
    return refusal.reason.startswith("state.") or facts_of(refusal).capturing


def inexact(refusal: Refusal) -> bool:
    """Whether a result was compared and found near, but not near enough."""
    error = facts_of(refusal).relative_error
    compared = refusal.reason.startswith(("correctness.", "state."))
    return compared and error is not None and error <= INEXACT


def _from_sentence(text: str) -> RefusalFacts:
    error, place = _ERROR.search(text), _PLACE.match(text)
    times = [float(number) for number in _EXCESS.findall(text)]
    return RefusalFacts(
        relative_error=float(error[1].rstrip(".")) if error else None,
        excess=max(times, default=None),
        line=int(place[1]) if place else None,
        function=place[2] if place else "",
        functions=tuple(dict.fromkeys(_WORD.findall(text))),
        capturing="captur" in text,
    )
