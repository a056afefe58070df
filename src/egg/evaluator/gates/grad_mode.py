"""What a domain gate asks under grad mode: one backward after another, as callers go backwards.

The verdict's words say what came of it: right, raised, lost, of the first order alone, or not tried.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from egg.core.domain import Domain, Gradients
from egg.evaluator.gates import backward
from egg.evaluator.gates.claims import CLAIM_LESS, GUARD, Claims
from egg.evaluator.gates.gradients import Gradient, gradients
from egg.evaluator.reference.probes import Change
from egg.evaluator.task.gradient_ways import (
    ALL_WAYS,
    AS_CALLERS_DO,
    BETWEEN,
    FEW_WAYS,
    PLAIN,
    SECOND,
    Incoming,
    Overwritten,
    Way,
)
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

MOST_BACKWARDS, MOST_ALONE = 16, 6
"""Calls at which a right backward is asked again, and things that require a gradient alone."""


@dataclass
class GradMode:
    """Backwards of one candidate, at calls that it answered rightly."""

    trial: Trial
    domain: Domain | None
    claims: Claims
    whole: bool
    """Whether all ways are asked, as at level full."""
    until: float
    """After which nothing is asked but the first backward."""
    ready: Callable[[Change], None]
    """Makes the instance for a change."""
    right: Sequence[Change]
    chance: Sequence[Change]
    """Of them, calls whose answers are drawn: gradients cannot be compared there."""
    order: str = ""
    """Words on second derivatives."""
    unasked: int = 0
    """Backwards for which there was no time."""

    def found(self, smallest: Change, largest: Change) -> Gradient:
        """At the smallest call that was answered rightly, and at the largest.

        A backward that is right is asked again, as callers do: with a gradient that is not dense, and where
        only a part requires one; at level full at the task's own sizes, between other calls, with each thing
        alone requiring a gradient, and at the other layouts, modes, dtypes and arguments.
        """
        found = self._back(smallest, PLAIN, due=True)
        asked = [(smallest, way) for way in (ALL_WAYS if self.whole else FEW_WAYS)]
        if self.whole:
            asked += self._further(smallest, largest)
        for at, (change, way) in enumerate(asked if found is Gradient.RIGHT else ()):
            if time.perf_counter() > self.until:
                self.unasked = len(asked) - at
                break
            if self._back(change, way) is Gradient.LOST:
                return Gradient.LOST
        if self.whole and found is Gradient.RIGHT:
            self._second_order(smallest)
        if self.whole and found is Gradient.RIGHT and self.trial.offline is not None:
            self.ready(Change())
            backward.configurations(self.trial, lambda: gradients(self.trial, Change()))
            if warning := backward.compiled(self.trial):
                self.trial.warnings.append(warning)
        return found

    def _further(self, smallest: Change, largest: Change) -> list[tuple[Change, Way]]:
        """The task's own sizes and larger ones first; then each thing alone; then the other right calls."""
        floats = [t for t in self.claims.tensors.values() if t.is_floating_point()]
        named = [name for name, _ in self.trial.reference.module.named_parameters()]
        leaves = [*(f"input {at}" for at in range(len(floats))), *named]
        alone = leaves[:MOST_ALONE] if len(leaves) > 1 else []
        plain = (c for c in self.right if c not in self.chance and not c.degenerate)
        others = sorted((c for c in plain if c != largest), key=_weight)
        return [
            (Change(), PLAIN),
            (Change(), BETWEEN),
            (largest, PLAIN),
            *((smallest, way) for way in (*self._one_output(), *AS_CALLERS_DO)),
            *((smallest, Way(alone=name)) for name in alone),
            *((change, PLAIN) for change in others[:MOST_BACKWARDS]),
        ]

    def _one_output(self) -> list[Way]:
        """A loss on each of several outputs alone."""
        leaves = [leaf for _, leaf in self.trial.reference.sample.outputs]
        count = sum(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in leaves)
        return [Way(output=at) for at in range(min(count, MOST_ALONE))] if count > 1 else []

    def _second_order(self, smallest: Change) -> None:
        """Second derivatives may raise or be lost: the verdict says so. Wrong ones are refused."""
        found = self._back(smallest, SECOND)
        if found in (Gradient.LOST, Gradient.RAISED):
            words = "raise" if found is Gradient.RAISED else "are lost without an error"
            self.order = f", of the first order: second derivatives {words}"
            self.trial.warnings.append(f"gradients are of the first order: second derivatives {words}")
        elif found is Gradient.UNKNOWN:
            self.order = ", of the first order: second derivatives were not tried"

    def _back(self, change: Change, way: Way, *, due: bool = False) -> Gradient:
        """One backward; one that is ``due`` is asked whatever time the calls before it took."""
        if time.perf_counter() > self.until and not due:
            return Gradient.UNKNOWN
        self.ready(change)
        found, evidence = gradients(self.trial, change, way)
        what = self.claims.describe(change)
        where = (
            "under grad mode" + (f", {what}" if what else "") + (f", where {way.words}" if way.words else "")
        )
        if (
            found is Gradient.WRONG
            and way.incoming is Incoming.EXPANDED
            and not evidence.startswith("kernel.")
        ):
            dense, _ = gradients(self.trial, change, replace(way, incoming=Incoming.CONSTANT))
            found = Gradient.UNKNOWN if dense is Gradient.WRONG else found
        if found is Gradient.WRONG:
            raise Refused("domain.gradients", f"{where}: {evidence}"[:900], GUARD)
        if way.second:
            return found
        stated = self.domain is not None and self.domain.gradients is Gradients.BACKWARD
        stated = stated and way.overwritten is Overwritten.NOTHING
        if found is Gradient.RAISED and stated and not change.arguments and not self.claims.outside(change):
            raise Refused(
                "domain.raises", f"{where}: DOMAIN claims gradients, and {evidence}"[:900], CLAIM_LESS
            )
        if found is Gradient.LOST and self.domain is not None:
            raise Refused(
                "domain.gradients",
                f"{where}, gradients are lost without an error: {evidence}",
                "raise in backward: an autograd function whose backward says that there is none",
            )
        if found is Gradient.LOST:
            self.trial.warnings.append("forward only: gradients are lost without an error")
        return found


def _weight(change: Change) -> int:
    """Modes, dtypes, layouts and arguments come before sizes, of which some were asked at."""
    return 0 if change.training is not None or change.forms or change.builds else 1
