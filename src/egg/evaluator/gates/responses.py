"""Does every weight and every input count? How the answer follows each, where the answer itself hardly shows.

An error is allowed in proportion to the output. A term that is smaller than that could be left out whole, a
layer whose product is scaled by 1e-6 with its weight never read. So one thing is changed alone (a weight, a
buffer, an input), and the *difference* of two answers is held to the reference's: rounding is not correlated
with it, and over many elements a share of the true difference shows that is far below the error allowed for
one. Complex numbers are two elements each.

At the task's own size without a GPU another answer of the candidate costs seconds. There
(:func:`suspects`) only the reference answers with each thing changed: what a candidate leaves out is missing
in its error, which then follows that difference, as no rounding does. What is suspected is asked.
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
from torch import nn

from egg.core.errors import TaskError
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.answers import same_bytes
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Rounded, Yardstick, converted, perturb, unit_of
from egg.evaluator.task.distributions import kept_by_generic_weights, rises
from egg.evaluator.task.program import outputs_of
from egg.evaluator.tensors.reals import as_reals, scaled
from egg.evaluator.transport.exchange import pack, unpack
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

MOST = 4
"""The largest weights, the largest buffers and the first inputs; as many of the others of each by lot."""
SECONDS = 20.0
"""After which nothing more is changed."""
CLEAR = 16.0
"""How many times the difference, over all elements, must exceed the error of one of the answers."""
WITHIN = 0.5
"""A candidate's share of the true difference is one, give or take this; the reference's half of it."""
MISSING = 0.15
"""The part of a difference that is missing in an answer which is suspected to lack the whole."""
ABOVE_NOISE = 4.0
"""How many times what rounding does to the reference, where no exacter run tells the two apart."""
MOST_ELEMENTS = 1 << 24
"""Of a weight that is changed, or an output that is compared whole; of a larger one, :data:`DRAWN` are."""
DRAWN = 1 << 20
LARGER = 1.25
"""By which a single number is changed."""
HINT = "no term may be left out because it is small: every weight and every input must reach the answer"


@dataclass(frozen=True)
class Answers:
    """Of one question: the candidate's, the reference's and the exact ones, as far as they are inexact."""

    theirs: list[torch.Tensor]
    ours: list[torch.Tensor]
    exact: list[torch.Tensor]

    @classmethod
    def of(cls, case: Case, delivered: list[torch.Tensor | None]) -> Answers:
        places = [
            at
            for at, (_, leaf) in enumerate(case.outputs)
            if isinstance(leaf, torch.Tensor)
            and (leaf.is_floating_point() or leaf.is_complex())
            and leaf.numel() > 1
            and isinstance(delivered[at], torch.Tensor)
        ]
        return cls(
            [_drawn(got, case.seed).clone() for at in places if (got := delivered[at]) is not None],
            [_drawn(case.outputs[at][1], case.seed) for at in places],
            [_drawn(case.golden[at][1], case.seed) for at in places],
        )

    def where(self, written: list[torch.Tensor]) -> Answers:
        """Of each answer the elements that were written."""
        return Answers(
            *(
                [values[marks] for values, marks in zip(kept, written, strict=True)]
                for kept in (self.theirs, self.ours, self.exact)
            )
        )


@dataclass(frozen=True)
class Thing:
    """A weight, a buffer or an input that can be changed alone."""

    name: str
    place: int | str
    """Among the tensors of the inputs, or the name in the ``state_dict``."""

    @contextmanager
    def changed(self, module: nn.Module, inputs: list[Any], others: list[Any]) -> Iterator[list[Any]]:
        """Meanwhile the module holds its values in another order; an input is that of another draw."""
        if isinstance(self.place, int):
            structure, tensors = pack(inputs)
            yield unpack(
                structure, [*tensors[: self.place], pack(others)[1][self.place], *tensors[self.place + 1 :]]
            )
            return
        value = module.state_dict()[self.place]
        held = value.clone()
        value.copy_(_otherwise(held))
        try:
            yield inputs
        finally:
            value.copy_(held)


def run(trial: Trial) -> Notes:
    """One question, and again with each thing changed alone, after one seed."""
    seed = secrets.randbits(31)
    until = time.perf_counter() + SECONDS
    followed: list[str] = []
    unanswered: list[str] = []
    trial.connection.other_weights()
    trial.level()
    try:
        inputs, others = trial.reference.draw(), trial.reference.draw()
        before = _answers(trial, inputs, seed)
        noise = noise_of(trial.reference, inputs, seed)
        for thing in things(trial, inputs, buffers=trial.reference.reweighed):
            if time.perf_counter() > until:
                break
            try:
                with _changed(trial, thing, inputs, others) as given:
                    check(thing.name, before, _answers(trial, given, seed), noise)
            except TaskError:  # a part of one draw beside a part of another may be none that it takes
                unanswered.append(thing.name)
            else:
                followed.append(thing.name)
    except Fault as fault:
        if fault.reason != "candidate.error" or not trial.connection.process.alive:
            raise
        return {"responses": "raises"}
    finally:
        if trial.connection.process.alive:
            trial.connection.restore_weights()
    return {"responses": followed, "without_answer": unanswered}


@contextmanager
def _changed(trial: Trial, thing: Thing, inputs: list[Any], others: list[Any]) -> Iterator[list[Any]]:
    """On both sides."""
    learned = isinstance(thing.place, str)
    try:
        with thing.changed(trial.reference.module, inputs, others) as given:
            if learned or trial.follows:
                trial.connection.share_weights()
            yield given
    finally:
        if learned and trial.connection.process.alive:
            trial.connection.share_weights()


def things(trial: Trial, inputs: list[Any], *, buffers: bool = True) -> Iterator[Thing]:
    """What is changed: floats and complex numbers, and integers that the task draws one by one.

    A buffer in another order is as legal as the other numbers that all of it has under other weights.
    """
    module, initial = trial.reference.module, trial.reference.initial
    known = set(trial.connection.names.values())
    saved = {name: value for name, value in module.state_dict().items() if name in known and _inexact(value)}
    learned = {name for name, _ in module.named_parameters()}
    kept = set(kept_by_generic_weights(module))
    drawn = [n for n, v in saved.items() if n not in kept or not same_bytes(v, initial[n])]
    drawn = [n for n in drawn if n not in learned] if buffers else []
    for names in ([name for name in saved if name in learned], drawn):
        large = sorted(names, key=lambda name: -saved[name].numel())
        yield from (Thing(n, n) for n in _some(large) if saved[n].numel() <= MOST_ELEMENTS)
    tensors = pack(inputs)[1]
    loose = [kind is Kind.LOOSE for kind in trial.reference.kinds]
    places = [at for at, t in enumerate(tensors) if _inexact(t) or loose[at]]
    yield from (Thing(f"input {at}", at) for at in (_some(places) if len(tensors) > 1 else ()))


def _some(items: list[Any]) -> list[Any]:
    rest = items[MOST:]
    return items[:MOST] + secrets.SystemRandom().sample(rest, min(len(rest), MOST))


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _otherwise(value: torch.Tensor) -> torch.Tensor:
    """In another order; a single number, or what is in order, larger."""
    if value.numel() == 1 or rises(value):
        return scaled(value, LARGER)
    generator = torch.Generator().manual_seed(secrets.randbits(48))
    order = torch.randperm(value.numel(), generator=generator).to(value.device)
    return value.reshape(-1)[order].reshape(value.shape)


def _answers(trial: Trial, inputs: list[Any], seed: int) -> Answers:
    case: Case = trial.reference.answer("one thing changed", inputs, own=False, seed=seed)
    trial.buffers.place(case)
    reply = trial.ask(case)
    return Answers.of(trial.check(case, reply), trial.buffers.outputs())


def noise_of(reference: Reference, inputs: list[Any], seed: int) -> list[float]:
    """What one rounding of inputs and operations does to each answer, where the reference itself stands for
    the exact one; nothing where there is an exacter run."""
    if reference.yardstick is not Yardstick.ITSELF:
        return []
    with reference.spared():
        usual = [_drawn(t, seed).clone() for t in _compared(reference.run(inputs, seed))]
    _, copies = converted(nn.Module(), inputs, Yardstick.ITSELF)
    moved = perturb(nn.Module(), copies, (nn.Module(), inputs), 1.0, seed)
    with reference.spared(), Rounded(unit_of(inputs, reference.module), 1.0, seed):
        other = _compared(reference.measured(reference.module, moved, Yardstick.ITSELF, None, seed))
        return [_rms(_drawn(a, seed).double() - b.double()) for a, b in zip(other, usual, strict=True)]


def _compared(result: Any) -> list[torch.Tensor]:
    leaves = (leaf for _, leaf in outputs_of(result))
    return [t for t in leaves if isinstance(t, torch.Tensor) and _inexact(t) and t.numel() > 1]


def check(name: str, before: Answers, after: Answers, noise: list[float]) -> None:
    """Refuse a candidate whose answers differ by another share of the true difference."""
    for place, exact in enumerate(after.exact):
        true = exact.double() - before.exact[place].double()
        scale, size = _rms(exact), _rms(true)
        both = (before, after)
        rounding = max(
            _rms(a.exact[place].double() - t[place].double()) for a in both for t in (a.ours, a.theirs)
        )
        if not math.isfinite(size) or size * math.sqrt(true.numel()) < CLEAR * rounding or size == 0.0:
            continue
        if noise and not size >= ABOVE_NOISE * noise[place]:
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


def suspected(answered: Answers, others: list[torch.Tensor]) -> bool:
    """Whether an answer may lack what sets the exact one apart from ``others``, those with one thing changed.

    Its error then holds a part of that difference. An error in proportion to the answer does as well, so what
    is in proportion to that is taken off both.
    """
    for theirs, exact, other in zip(answered.theirs, answered.exact, others, strict=True):
        wide = exact.double()
        error, true = (_apart(t, wide) for t in (theirs.double() - wide, wide - other.double()))
        product, size = float(error @ true), float(true.norm())
        clear = abs(product) * math.sqrt(true.numel()) >= CLEAR / 2 * float(error.norm()) * size
        if math.isfinite(product) and size > 0.0 and clear and product <= -MISSING * size * size:
            return True
    return False


def _apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    square = float(other @ other)
    return one - (float(one @ other) / square) * other if square > 0.0 else one


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return as_reals(tensor.resolve_conj()).reshape(-1)


def _drawn(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """All elements; of many some, at the same places in all answers that have one size and ``seed``."""
    flat = _flat(tensor)
    if flat.numel() <= MOST_ELEMENTS:
        return flat
    places = torch.randint(flat.numel(), (DRAWN,), generator=torch.Generator().manual_seed(seed))
    return flat[places.to(flat.device)]


def _rms(tensor: torch.Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


def _share(after: torch.Tensor, before: torch.Tensor, true: torch.Tensor) -> float:
    """How much of the true difference is in that of two answers."""
    return float(((after.double() - before.double()) * true).sum() / true.square().sum())
