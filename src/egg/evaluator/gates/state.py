"""State probes: does the candidate compute, or does it remember?

Inputs change in place at the same addresses, from another process, so that no version
counter moves: a cache keyed on pointers, ids, versions or a fingerprint of the first
elements answers with yesterday's result; a captured graph that does not copy its inputs
in, likewise. One that remembers rightly is found by what it launches: the same inputs take the
same work, whenever they come. Then there are many calls (:mod:`~egg.evaluator.gates.many`), and
what they leave behind is looked at (:mod:`~egg.evaluator.gates.left`), and what they could carry
in it to the next (:mod:`~egg.evaluator.gates.carried`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.gates import attributes, handed, left, many, remembered
from egg.evaluator.gates.correctness import meaningful
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.case import Case
from egg.evaluator.task.program import outputs_of
from egg.evaluator.tensors.reals import as_reals, narrowed
from egg.evaluator.transport.protocol import Forwarded, Options
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

TAIL = 64


Changes = list[tuple[torch.Tensor, torch.Tensor]]
"""Parts of inputs that were changed in place, each with what was there before."""


def _tail(size: int) -> slice:
    return slice(max(0, size - TAIL), size)


def _one_element(size: int) -> slice:
    index = secrets.randbelow(size)
    return slice(index, index + 1)


ONE_ELEMENT = (("one element somewhere in the inputs", _one_element),) * 3
"""More than once: a cache that looks at some of the elements may have looked at that one."""


def run(trial: Trial) -> Notes:
    """A, B, A again, A with a little changed, and then many more; and what forward leaves in the module.

    Inputs and answers may be gigabytes: of A its inputs are kept, and each of the other
    questions is gone before the next is drawn.
    """
    trial.level()
    each = _warm(trial)
    first = trial.reference.question("A")
    case, reply = _asked(trial, first, handed.OPTIONS)
    trial.check(case, reply)
    trial.checks.check_apart(case, reply.aliases)
    before, work = trial.buffers.snapshot(), reply.launched
    del case

    other = _expect(
        trial, trial.reference.question("B"), "state.stale", "the inputs were overwritten in place"
    )
    again = _expect(trial, first, "state.stale", "the first inputs came back (A-B-A)")
    if again.launched != work:
        raise Refused(
            "state.remembers",
            f"for inputs that it saw before it launches {_named(again.launched)}, "
            f"where it launched {_named(work)}",
            "do the same work on every call: timed calls never repeat their inputs",
        )
    notes = {
        "deterministic": _equal(before, trial.buffers.outputs()),
        "probed": _probe(trial, first, work),
    }
    left.untouched(trial)
    handed.check(trial, first, (reply, other, again))
    del first
    notes["kept"] = remembered.run(trial)
    return notes | many.run(trial, each) | left.run(trial) | {"attributes": attributes.run(trial)}


def _warm(trial: Trial) -> float:
    """One call that counts for nothing: weights were loaded, and some pack them at their next call.

    The reference makes it as well where it leaves something behind. Returns the seconds that it took.
    """
    question = trial.reference.question("before A")
    if trial.reference.moving or trial.follows:
        question = trial.reference.answer(question.label, question.inputs)
    trial.buffers.place(question)
    started = time.perf_counter()
    trial.ask(question)
    return time.perf_counter() - started


def _named(work: Mapping[str, int]) -> str:
    return ", ".join(f"{name} x{count}" for name, count in sorted(work.items())) or "nothing"


def _asked(trial: Trial, question: Case, options: Options | None = None) -> tuple[Case, Forwarded]:
    """The question with its answers, and the candidate's reply to it."""
    case = trial.reference.answer(question.label, question.inputs)
    trial.buffers.place(case)
    return case, trial.ask(case, options=options)


def _expect(trial: Trial, question: Case, reason: str, what: str) -> Forwarded:
    case, reply = _asked(trial, question, handed.OPTIONS)
    hint = "compute from the inputs' values on every call; nothing derived from inputs may be kept"
    trial.expect(case, reply, reason, what, hint)
    return reply


def _probe(trial: Trial, question: Case, work: Mapping[str, int]) -> int:
    """Change a few elements, and a few more, and expect the new answers; returns how often there was one.

    The changes are made in place, in the oracle's own copy, and taken back in the end: the
    task may hand out the same tensors every time.
    """
    probed, seen = 0, []
    changes: Changes = []
    try:
        for what, where in (("the end of the inputs", _tail), *ONE_ELEMENT):
            with _unmoved(trial):
                made = _changed(trial, question, where)
            if made:
                changes += made
                probed += 1
                changed = replace(question, label=f"A, {what} changed")
                seen.append(_expect(trial, changed, "state.partial", f"only {what} changed").launched)
    finally:
        _take_back(changes)
    if len(seen) > 1 and all(other != work for other in seen):
        raise Refused(
            "state.incremental",
            f"where little of the inputs changed since the last call it launches {_named(seen[0])}, "
            f"else {_named(work)}",
            "do the same work on every call: of timed calls all inputs change",
        )
    return probed


@contextmanager
def _unmoved(trial: Trial) -> Iterator[None]:
    """The reference is asked without the candidate: what it leaves in its module is taken back."""
    if not trial.reference.moving and not trial.follows:
        yield
        return
    with trial.reference.spared():
        yield


def _changed(trial: Trial, question: Case, where: Callable[[int], slice]) -> Changes:
    """Change some elements of each floating input; none, where that changes no answer or leaves none."""
    before = [
        (path, _apart(leaf, question)) for path, leaf in outputs_of(trial.reference.run(question.inputs))
    ]
    made = _change(question.tensors, where)
    try:
        after = outputs_of(trial.reference.run(question.inputs))
    except TaskError:
        _take_back(made)
        return []
    pairs = [(a, b) for (_, a), (_, b) in zip(before, after, strict=True)]
    same = all(
        torch.equal(a, b) for a, b in pairs if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    )
    if same or not meaningful(trial, after):
        _take_back(made)
        return []
    return made


def _apart(leaf: Any, question: Case) -> Any:
    """An output that will not change with the inputs: a copy, where the reference returns a view of one."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    theirs = {tensor.untyped_storage().data_ptr() for tensor in question.tensors}
    return leaf.clone() if leaf.untyped_storage().data_ptr() in theirs else leaf


@torch.no_grad()
def _change(tensors: list[torch.Tensor], where: Callable[[int], slice]) -> Changes:
    made = []
    for tensor in tensors:
        if tensor.is_floating_point() and tensor.is_contiguous() and tensor.numel():
            part = tensor.view(-1)[where(tensor.numel())]
            made.append((part, part.clone()))
            part.copy_(narrowed(as_reals(part) * -1.5 + 0.75, part.dtype))
    return made


@torch.no_grad()
def _take_back(changes: Changes) -> None:
    for part, before in reversed(changes):
        part.copy_(before)


def _equal(before: list[torch.Tensor | None], after: list[torch.Tensor | None]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(same_values(a, b) for a, b in pairs if a is not None and b is not None)
