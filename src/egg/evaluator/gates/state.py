"""State probes: does the candidate compute, or does it remember?

Inputs change in place at the same addresses, from another process, so that no version
counter moves: a cache keyed on pointers, ids, versions or a fingerprint of the first
elements answers with yesterday's result; a captured graph that does not copy its inputs
in, likewise. An output that was handed over must not change when the next one is computed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from egg.evaluator.exam import Exam, Refused
from egg.evaluator.gates.correctness import meaningful
from egg.evaluator.reference import Case, same_values
from egg.evaluator.task.program import outputs_of

TAIL = 64
RING = 3
"""Further calls before a handed-over output is looked at again: buffers may be used in turn."""


Changes = list[tuple[torch.Tensor, torch.Tensor]]
"""Parts of inputs that were changed in place, each with what was there before."""


def _tail(size: int) -> slice:
    return slice(max(0, size - TAIL), size)


def _one_element(size: int) -> slice:
    index = secrets.randbelow(size)
    return slice(index, index + 1)


ONE_ELEMENT = (("one element somewhere in the inputs", _one_element),) * 3
"""More than once: a cache that looks at some of the elements may have looked at that one."""


def run(exam: Exam) -> dict[str, Any]:
    """A, B, A again, A with a little changed, and then the first answer once more.

    Inputs and answers may be gigabytes: of A its inputs and what was handed over are kept,
    and each of the other questions is gone before the next is drawn.
    """
    first = exam.reference.question("A")
    exam.check(*_asked(exam, first, keep=True))
    handed_over = exam.snapshot()

    _expect(exam, exam.reference.question("B"), "state.stale", "the inputs were overwritten in place")
    _expect(exam, first, "state.stale", "the first inputs came back (A-B-A)")
    notes = {"deterministic": _equal(handed_over, exam.outputs()), "probed": _probe(exam, first)}

    del first
    last = exam.reference.question("C")
    exam.place(last)
    for _ in range(RING):
        exam.ask(last)
    exam.poison(0)
    exam.request("recheck", outputs=exam.output_slots(0))
    if not _equal(handed_over, exam.outputs()):
        raise Refused(
            "state.aliased", "the first output changed while later ones were computed",
            "return a new tensor from every call, not a reused buffer",
        )  # fmt: skip
    return notes


def _asked(exam: Exam, question: Case, **options: Any) -> tuple[Case, dict[str, Any]]:
    """The question with its answers, and what the candidate says to it."""
    case = exam.reference.answer(question.label, question.inputs)
    exam.place(case)
    return case, exam.ask(case, **options)


def _expect(exam: Exam, question: Case, reason: str, what: str) -> None:
    try:
        exam.check(*_asked(exam, question))
    except Refused as wrong:
        if wrong.reason.startswith("provenance."):
            raise
        raise Refused(
            reason, f"{what}, and the answer was wrong: {wrong.evidence}",
            "compute from the inputs' values on every call; nothing derived from inputs may be kept",
        ) from None  # fmt: skip


def _probe(exam: Exam, question: Case) -> int:
    """Change a few elements, and a few more, and expect the new answers; returns how often there was one.

    The changes are made in place, in the oracle's own copy, and taken back in the end: the
    task may hand out the same tensors every time.
    """
    probed = 0
    changes: Changes = []
    try:
        for what, where in (("the end of the inputs", _tail), *ONE_ELEMENT):
            made = _changed(exam, question, where)
            if made:
                changes += made
                probed += 1
                changed = replace(question, label=f"A, {what} changed")
                _expect(exam, changed, "state.partial", f"only {what} changed")
    finally:
        _take_back(changes)
    return probed


def _changed(exam: Exam, question: Case, where: Callable[[int], slice]) -> Changes:
    """Change some elements of each floating input; none, if that does not change the answer."""
    before = [
        (path, _apart(leaf, question)) for path, leaf in outputs_of(exam.reference.run(question.inputs))
    ]
    made = _change(question.tensors, where)
    after = outputs_of(exam.reference.run(question.inputs))
    pairs = [(a, b) for (_, a), (_, b) in zip(before, after, strict=True)]
    same = all(
        torch.equal(a, b) for a, b in pairs if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    )
    if same or not meaningful(exam, after):
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
            part.copy_(part * -1.5 + 0.75)
    return made


@torch.no_grad()
def _take_back(changes: Changes) -> None:
    for part, before in reversed(changes):
        part.copy_(before)


def _equal(before: list[torch.Tensor | None], after: list[torch.Tensor | None]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(same_values(a, b) for a, b in pairs if a is not None and b is not None)
