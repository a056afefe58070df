"""The end of an evaluation: the candidate did not pass a gate."""

from __future__ import annotations

import math

from egg.core.evaluation import Gate, Refusal, RefusalFacts

NO_FACTS = RefusalFacts()


class Refused(Exception):
    """Ends an evaluation: the candidate did not pass a gate.

    ``evidence`` and ``hint`` are for people; ``reason`` and ``facts`` are for programs. A gate that puts a
    refusal into other words hands its facts on.
    """

    def __init__(
        self,
        reason: str,
        evidence: str,
        hint: str,
        relative: float = math.inf,
        facts: RefusalFacts = NO_FACTS,
    ) -> None:
        super().__init__(evidence)
        self.reason, self.evidence, self.hint, self.facts = reason, evidence, hint, facts
        self.relative = relative
        """The relative rms error, where every value was merely inaccurate."""

    def at(self, gate: Gate) -> Refusal:
        """As a refusal of the gate its reason names, else of ``gate``: a wrong shape is one anywhere."""
        family = self.reason.split(".")[0]
        named = Gate(family) if family in Gate.__members__.values() else gate
        return Refusal(named, self.reason, self.evidence, self.hint, self.facts)
