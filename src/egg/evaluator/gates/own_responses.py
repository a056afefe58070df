"""At the task's own size: does the answer follow every weight and every input there, too?

A kernel may leave a small term out where sizes are large. Another answer of the candidate takes seconds of
interpreting, so first the reference alone answers with each thing changed: what the candidate's answer lacks
shows in its error (:func:`~egg.evaluator.gates.responses.suspected`). Only where it does are there two calls
more, whose difference decides as at the smaller size.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from egg.core.errors import MachineError, TaskError
from egg.evaluator.gates.responses import Answers, Thing, check, noise_of, suspected, things
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.snapshot import Snapshot
from egg.evaluator.trial.trial import Trial

LEFT = "some weights or inputs are changed alone"


@dataclass
class OwnResponses:
    """What was found about one answer, from the state in which its question ``began``."""

    trial: Trial
    began: Snapshot
    seconds: float
    doubtful: list[Thing] = field(default_factory=list)

    def suspect(self, case: Case, *, whole: bool) -> list[str]:
        """Look for what the answer to ``case``, which lies there, may lack; returns what was left out."""
        reference = self.trial.reference
        answered, written = Answers.of(case, self.trial.buffers.outputs(0)), self._written(case, whole=whole)
        inputs, others = case.inputs, reference.draw()
        until = time.perf_counter() + self.seconds
        asked = list(things(self.trial, inputs))
        secrets.SystemRandom().shuffle(asked)
        for thing in asked:
            if time.perf_counter() > until:
                return [LEFT]
            with reference.spared():
                self.began.put_back()
                try:
                    with thing.changed(reference.module, inputs, others) as given:
                        other = reference.answer("one thing changed", given, own=False, seed=case.seed)
                except (
                    TaskError,
                    MachineError,
                ):  # as at the smaller size, it may be none that the task takes
                    continue
            exact = Answers.of(other, [leaf for _, leaf in other.golden]).exact
            if suspected(answered.where(written), [t[w] for t, w in zip(exact, written, strict=True)]):
                self.doubtful.append(thing)
        return []

    def confirm(self, case: Case, ask: Callable[[Case], bool]) -> None:
        """Refuse a candidate that does not follow what is doubtful; ``ask`` says whether all programs ran."""
        reference, others = self.trial.reference, self.trial.reference.draw()
        for thing in self.doubtful:
            both: list[tuple[Answers, list[torch.Tensor]]] = []
            for changed in (False, True):
                self.trial.connection.restore_weights()
                self.trial.level()
                self.began.put_back()
                with (
                    thing.changed(reference.module, case.inputs, others)
                    if changed
                    else nullcontext() as given
                ):
                    self.trial.connection.share_weights()
                    given = case.inputs if given is None else given
                    asked = reference.answer("one thing changed", given, own=False, seed=case.seed)
                    whole = ask(asked)
                answers = Answers.of(asked, self.trial.buffers.outputs(0))
                both.append((answers, self._written(asked, whole=whole)))
            (before, first), (after, second) = both
            written = [one & other for one, other in zip(first, second, strict=True)]
            noise = noise_of(reference, case.inputs, case.seed)
            check(thing.name, before.where(written), after.where(written), noise)

    def _written(self, case: Case, *, whole: bool) -> list[torch.Tensor]:
        """Of each answer that is compared, which elements the programs that ran have stored."""
        masks = self.trial.buffers.outputs(1)
        every = [torch.ones_like(mask) if whole and mask is not None else mask for mask in masks]
        return [flags == 1 for flags in Answers.of(case, every).theirs]
