"""Further calls at a size at which otherwise one question is asked: what does the first call leave behind?

A file may keep its first answer, use one output buffer for all calls or pack weights once only where sizes
are large. So the same instance is called again: other inputs at the same addresses (B) while the caller holds
the first answer, the first inputs behind weights that were changed in place, and those once more. Where there
is no time for all of it, the caller lists what was left out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from egg.core.errors import TaskError
from egg.evaluator.gates.weights import KEY
from egg.evaluator.reference.answers import finite_share, same_bytes
from egg.evaluator.reference.case import Case
from egg.evaluator.transport.protocol import Recheck, Written
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial
from egg.evaluator.worker.outputs import handed_back

COMPUTE = "compute from the inputs' values on every call; nothing derived from inputs may be kept"
NEW = "return a new tensor from every call, not a reused buffer"


class Ask(Protocol):
    """Puts a question to the first set of inputs, checks everything about the answer, and returns how often
    each kernel was launched."""

    def __call__(self, case: Case, *, keep: bool = False) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class _Step:
    """A further call."""

    what: str
    reason: str
    hint: str
    question: Callable[[], Case]
    behind: Callable[[], None] = lambda: None
    """What is looked at when the answer was right."""


def run(trial: Trial, first: Case, ask: Ask, each: float, seconds: float) -> list[str]:
    """Repeat the call that answered ``first`` and took ``each`` seconds; returns what was left out.

    The first output must have been kept in the process. A call behind which neither weights nor anything else
    is new must launch what the first of these launched.
    """
    began, left, launched = time.perf_counter(), [], []
    for step in _steps(trial, first):
        started = time.perf_counter()
        if started + each > began + seconds:
            left.append(step.what)
            continue
        try:
            launched.append(ask(step.question()))
        except Refused as wrong:
            if not wrong.reason.startswith("correctness."):
                raise
            evidence = f"{step.what}, and the answer was wrong: {wrong.evidence}"
            raise Refused(step.reason, evidence, step.hint, facts=wrong.facts) from None
        step.behind()
        each = time.perf_counter() - started
    if not left and launched[0] != launched[-1]:
        evidence = f"for inputs that it saw before it launches {dict(launched[-1])}, else {dict(launched[0])}"
        raise Refused("state.remembers", evidence, "do the same work on every call")
    return left


def _steps(trial: Trial, first: Case) -> Iterator[_Step]:
    """A's answer is copied before B is asked for, and compared behind it."""
    held = trial.buffers.snapshot()

    def still() -> None:
        trial.buffers.poison(0)
        trial.connection.request(Recheck(trial.buffers.sets[0].outputs))
        moved = handed_back(first.outputs, first.inputs)
        found = zip(first.outputs, held, trial.buffers.outputs(0), strict=True)
        pairs = [(a, b) for (path, _), a, b in found if path not in moved]
        if not all(same_bytes(a, b) for a, b in pairs if a is not None and b is not None):
            evidence = "a later call changes what an earlier one returned, which the caller holds"
            raise Refused("state.aliased", evidence, NEW)

    def again() -> Case:
        return trial.reference.answer(first.label, first.inputs, own=not trial.reference.reweighed)

    def reweighed() -> Case:
        trial.connection.reweigh(Written.IN_PLACE)
        with contextlib.suppress(TaskError):
            case = again()
            if 2 * finite_share(case.outputs) >= trial.reference.finite_share:
                return case
        trial.reference.restore()
        trial.connection.share_weights(Written.IN_PLACE)
        return again()

    yield _Step(
        "the inputs were overwritten in place", "state.stale", COMPUTE,
        lambda: trial.reference.case("other inputs"), still,
    )  # fmt: skip
    held.clear()
    if trial.connection.names:
        yield _Step("weights were changed in place", "state.weights", KEY, reweighed)
    yield _Step("the first inputs came back (A-B-A)", "state.stale", COMPUTE, again)
