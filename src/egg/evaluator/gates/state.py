"""State probes: does the candidate compute, or does it remember?

Inputs change in place at the same addresses, from another process, so that no version
counter moves: a cache keyed on pointers, ids, versions or a fingerprint of the first
elements answers with yesterday's result; a captured graph that does not copy its inputs
in, likewise. An output that was handed over must not change when the next one is computed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import torch

from egg.evaluator.exam import Exam, Refused
from egg.evaluator.gates.correctness import meaningful
from egg.evaluator.reference import Case, same_values
from egg.evaluator.task.program import map_tensors

TAIL = 64
RING = 3
"""Further calls before a handed-over output is looked at again: buffers may be used in turn."""


def _tail(size: int) -> slice:
    return slice(max(0, size - TAIL), size)


def _one_element(size: int) -> slice:
    index = secrets.randbelow(size)
    return slice(index, index + 1)


ONE_ELEMENT = (("one element somewhere in the inputs", _one_element),) * 3
"""More than once: a cache that looks at some of the elements may have looked at that one."""


def run(exam: Exam) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    first, second = exam.reference.case("A"), exam.reference.case("B")

    exam.place(first)
    exam.check(first, exam.ask(first, keep=True))
    handed_over = exam.snapshot()

    exam.place(second)
    _expect(exam, second, exam.ask(second), "state.stale", "the inputs were overwritten in place")

    exam.place(first)
    _expect(exam, first, exam.ask(first), "state.stale", "the first inputs came back (A-B-A)")
    notes["deterministic"] = _equal(handed_over, exam.outputs())

    case, notes["probed"] = first, 0
    for what, where in (("the end of the inputs", _tail), *ONE_ELEMENT):
        changed = _changed(exam, case, what, where)
        if changed is not None:
            exam.place(changed)
            _expect(exam, changed, exam.ask(changed), "state.partial", f"only {what} changed")
            case, notes["probed"] = changed, notes["probed"] + 1

    exam.place(second)
    for _ in range(RING):
        exam.ask(second)
    exam.poison(0)
    exam.request("recheck", outputs=exam.output_slots(0))
    if not _equal(handed_over, exam.outputs()):
        raise Refused(
            "state.aliased", "the first output changed while later ones were computed",
            "return a new tensor from every call, not a reused buffer",
        )  # fmt: skip
    return notes


def _expect(exam: Exam, case: Case, reply: dict[str, Any], reason: str, what: str) -> None:
    try:
        exam.check(case, reply)
    except Refused as wrong:
        raise Refused(
            reason, f"{what}, and the answer was wrong: {wrong.evidence}",
            "compute from the inputs' values on every call; nothing derived from inputs may be kept",
        ) from None  # fmt: skip


def _changed(exam: Exam, case: Case, what: str, where: Callable[[int], slice]) -> Case | None:
    """The same question with some elements of each floating input replaced, if that changes the answer."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or not tensor.is_contiguous() or tensor.numel() == 0:
            return tensor
        changed = tensor.clone()
        part = changed.view(-1)[where(tensor.numel())]
        part.copy_(part * -1.5 + 0.75)
        return changed

    changed = exam.reference.answer(f"A, {what} changed", map_tensors(case.inputs, change))
    same = all(
        not isinstance(a, torch.Tensor) or torch.equal(a, b)
        for (_, a), (_, b) in zip(case.outputs, changed.outputs, strict=True)
    )
    return None if same or not meaningful(changed) else changed


def _equal(before: list[torch.Tensor | None], after: list[torch.Tensor | None]) -> bool:
    pairs = zip(before, after, strict=True)
    return all(same_values(a, b) for a, b in pairs if a is not None and b is not None)
