"""Does every weight and every input count? How the answer follows each, where the answer itself hardly shows.

An error is allowed in proportion to the output. A term that is smaller than that could be left out whole, a
layer whose product is scaled by 1e-6 with its weight never read. So one weight, or one input, is changed
alone, and the *difference* of two answers is held to the reference's: rounding is not correlated with it, and
over many elements a share of the true difference shows that is far below the error allowed for one.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.yardstick import Yardstick
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

MOST_WEIGHTS, MOST_INPUTS = 4, 3
"""The largest weights, and as many of the others by lot; the first inputs."""
SECONDS = 20.0
"""After which nothing more is changed."""
CLEAR = 16.0
"""How many times the difference, over all elements, must exceed the error of one of the answers."""
WITHIN = 0.5
"""A candidate's share of the true difference is one, give or take this; the reference's half of it."""
MOST_ELEMENTS = 1 << 24
"""Of a weight that is changed, or an output that is compared."""
HINT = "no term may be left out because it is small: every weight and every input must reach the answer"


@dataclass(frozen=True)
class Answers:
    """Of one question: the candidate's, the reference's and the exact ones, as far as they are tensors."""

    theirs: list[torch.Tensor]
    ours: list[torch.Tensor]
    exact: list[torch.Tensor]


def run(trial: Trial) -> Notes:
    """One question, and again with each weight and each input changed alone, after one seed."""
    if trial.reference.stochastic and trial.reference.yardstick is Yardstick.ITSELF:
        return {"responses": "random"}
    seed = secrets.randbits(31)
    until = time.perf_counter() + SECONDS
    followed: list[str] = []
    unanswered: list[str] = []
    trial.connection.other_weights()
    try:
        inputs = trial.reference.draw()
        before = _answers(trial, inputs, seed)
        for name, changed in _questions(trial, inputs):
            if time.perf_counter() > until:
                break
            try:
                with changed as given:
                    _check(name, before, _answers(trial, given, seed))
            except TaskError:  # a part of one draw beside a part of another may be none that it takes
                unanswered.append(name)
            else:
                followed.append(name)
    except Fault as fault:
        if fault.reason != "candidate.error" or not trial.connection.process.alive:
            raise
        return {"responses": "raises"}
    finally:
        if trial.connection.process.alive:
            trial.connection.restore_weights()
    return {"responses": followed, "without_answer": unanswered}


def _questions(trial: Trial, inputs: list[Any]) -> Iterator[tuple[str, Any]]:
    weights = sorted(trial.reference.module.named_parameters(), key=lambda pair: -pair[1].numel())
    floating = [pair for pair in weights if pair[1].is_floating_point()]
    rest = floating[MOST_WEIGHTS:]
    drawn = secrets.SystemRandom().sample(rest, min(len(rest), MOST_WEIGHTS))
    for name, weight in floating[:MOST_WEIGHTS] + drawn:
        if name in trial.connection.names.values() and 1 < weight.numel() <= MOST_ELEMENTS:
            yield name, _weight_changed(trial, weight, inputs)
    others = trial.reference.draw()
    floats = [at for at, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.is_floating_point()]
    for at in floats[:MOST_INPUTS] if len(floats) > 1 else ():
        yield f"input {at}", _input_changed(inputs, others, at)


@contextmanager
def _weight_changed(trial: Trial, weight: torch.Tensor, inputs: list[Any]) -> Iterator[list[Any]]:
    """Meanwhile its values stand in another order."""
    held = weight.detach().clone()
    generator = torch.Generator().manual_seed(secrets.randbits(48))
    order = torch.randperm(weight.numel(), generator=generator).to(weight.device)
    with torch.no_grad():
        weight.copy_(held.reshape(-1)[order].reshape(held.shape))
    trial.connection.share_weights()
    try:
        yield inputs
    finally:
        with torch.no_grad():
            weight.copy_(held)
        if trial.connection.process.alive:
            trial.connection.share_weights()


@contextmanager
def _input_changed(inputs: list[Any], others: list[Any], at: int) -> Iterator[list[Any]]:
    yield [*inputs[:at], others[at], *inputs[at + 1 :]]


def _answers(trial: Trial, inputs: list[Any], seed: int) -> Answers:
    case: Case = trial.reference.answer("one thing changed", inputs, own=False, seed=seed)
    trial.buffers.place(case)
    reply = trial.ask(case)
    trial.check(case, reply)
    places = [
        at
        for at, (_, leaf) in enumerate(case.outputs)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and 1 < leaf.numel() <= MOST_ELEMENTS
    ]
    delivered = trial.buffers.outputs()
    return Answers(
        [got.clone() for at in places if (got := delivered[at]) is not None],
        [case.outputs[at][1] for at in places],
        [case.golden[at][1] for at in places],
    )


def _check(name: str, before: Answers, after: Answers) -> None:
    for place, exact in enumerate(after.exact):
        true = exact.double() - before.exact[place].double()
        scale, size = _rms(exact), _rms(true)
        both = (before, after)
        rounding = max(
            _rms(a.exact[place].double() - t[place].double()) for a in both for t in (a.ours, a.theirs)
        )
        if not math.isfinite(size) or size * math.sqrt(true.numel()) < CLEAR * rounding or size == 0.0:
            continue
        ours = _share(after.ours[place], before.ours[place], true)
        theirs = _share(after.theirs[place], before.theirs[place], true)
        if abs(ours - 1.0) <= WITHIN / 2 and not abs(theirs - 1.0) <= WITHIN:
            raise Refused(
                "correctness.response",
                f"{name} alone was changed, and the answer follows by {theirs:.2f} of what it must "
                f"(the reference by {ours:.2f}; the change is {size / (scale or 1.0):.1e} of the output)",
                HINT,
            )


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


def _share(after: torch.Tensor, before: torch.Tensor, true: torch.Tensor) -> float:
    """How much of the true difference is in that of two answers."""
    return float(((after.double() - before.double()) * true).sum() / true.square().sum())
