"""The end of an evaluation: the candidate did not pass a gate."""

from __future__ import annotations

import math

from egg.core.evaluation import Gate, Refusal


class Refused(Exception):
    """Ends an evaluation: the candidate did not pass a gate."""

    def __init__(self, reason: str, evidence: str, hint: str, relative: float = math.inf) -> None:
        super().__init__(evidence)
        self.reason, self.evidence, self.hint = reason, evidence, hint
        self.relative = relative
        """The relative rms error, where every value was merely inaccurate."""

    def at(self, gate: Gate) -> Refusal:
        """As a refusal of the gate its reason names, else of ``gate``: a wrong shape is one anywhere."""
        family = self.reason.split(".")[0]
        named = Gate(family) if family in Gate.__members__.values() else gate
        return Refusal(named, self.reason, self.evidence, self.hint)
