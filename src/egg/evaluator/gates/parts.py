"""A part of the module in the other mode, as callers freeze the norms of a network that they train.

A file that keeps the part and asks for the mode of the whole computes what the caller did not ask for. One
that has no such part raises where a caller reaches for it, and is not asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import torch
from torch import nn

from egg.evaluator.gates.beside import Answer, ask_as_it_is
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.probes import Change
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import outputs_of
from egg.evaluator.transport.protocol import Switch
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

MOST_PARTS, MOST_LOOKS = 4, 16
"""Parts that are asked, and parts of which it is found out whether their mode matters."""
HINT = "ask the part for its mode (self.norm.training), or raise where it is not that of the whole"


def run(trial: Trial, until: float) -> list[str]:
    """Switch one part after the other until there is no time left; returns those that were answered rightly.

    Weights are drawn anew before each call, so that both sides start from the same statistics. The instance
    must not be used afterwards.
    """
    right: list[str] = []
    for name, part in islice(_that_matter(trial.reference, until), MOST_PARTS):
        trial.connection.fresh()
        trial.connection.reweigh()
        if not trial.connection.request(Switch(name)).found:
            continue
        with _switched(part):
            outcome = ask_as_it_is(trial, Change())
        if outcome.answer is Answer.WRONG:
            mode, whole = ("train", "eval") if not part.training else ("eval", "train")
            raise Refused(
                "domain.wrong",
                f"self.{name} in {mode} mode in a module in {whole} mode: {outcome.evidence}"[:900],
                HINT,
            )
        if outcome.answer is Answer.RIGHT:
            right.append(name)
        if not trial.connection.process.alive:
            break
    return right


def _that_matter(reference: Reference, until: float) -> Iterator[tuple[str, nn.Module]]:
    """Parts whose mode changes the answer; none where the reference draws random numbers."""
    if reference.stochastic:
        return
    inputs = reference.draw()
    with reference.spared():
        usual = outputs_of(reference.run(inputs))
    for name, part in islice(reference.module.named_modules(), 1, MOST_LOOKS + 1):
        if time.perf_counter() > until:
            return
        with reference.spared(), _switched(part):
            other = outputs_of(reference.run(inputs))
        pairs = zip(usual, other, strict=True)
        if any(
            isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and not same_values(a, b)
            for (_, a), (_, b) in pairs
        ):
            yield name, part


@contextmanager
def _switched(part: nn.Module) -> Iterator[None]:
    """Meanwhile in the other mode, with all that is in it."""
    before = {inner: inner.training for inner in part.modules()}
    part.train(not part.training)
    try:
        yield
    finally:
        for inner, training in before.items():
            inner.training = training
