"""Kernels of a backward that is right: every configuration of theirs, and compiled for the target.

The gates before this one follow the forward alone. What a backward launches is looked at here, at level full,
on a machine without a GPU; on a GPU it was compiled when it ran, and its tuner took what it measured.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from egg.evaluator.gates.compile import AT_OWN_SIZE, HINTS, asked, capture_request, compiler
from egg.evaluator.gates.gradients import Gradient
from egg.evaluator.process.handle import Fault
from egg.evaluator.transport.protocol import Configure
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

MOST_CONFIGURATIONS = 8
EVERY = "every configuration given to triton.autotune must compute the same: a tuner may choose any of them"


def configurations(trial: Trial, back: Callable[[], tuple[Gradient, str]]) -> None:
    """Go back once with each configuration of the autotuners, or with some drawn by lot."""
    others = list(range(1, trial.connection.request(Configure(0)).most))
    secrets.SystemRandom().shuffle(others)
    try:
        for place in others[:MOST_CONFIGURATIONS]:
            trial.connection.request(Configure(place))
            found, evidence = back()
            if found is Gradient.WRONG:
                names = trial.connection.request(Configure(place)).names
                chosen = "; ".join(f"{kernel} configured as {config}" for kernel, config in names.items())
                raise Refused(
                    "correctness.configuration", f"under grad mode, with {chosen}: {evidence}"[:900], EVERY
                )
    finally:
        if trial.connection.process.alive:
            trial.connection.request(Configure(0))


def compiled(trial: Trial) -> str:
    """Compile what forward and backward launch at the task's own size; a warning where that cannot be."""
    worker = compiler(trial)
    try:
        reply = asked(trial, worker, replace(capture_request(trial), backward=True))
    except Fault as fault:
        raise Refused(
            fault.reason, f"under grad mode, at the task's own size: {fault.evidence}",
            "backward must compile for the target, and fit on it, or raise", facts=AT_OWN_SIZE,
        ) from fault  # fmt: skip
    finally:
        worker.end()
    for fault in reply.faults:
        raise Refused(
            fault.reason, f"under grad mode, at the task's own size: {fault.evidence}",
            HINTS.get(fault.reason, "see the evidence"), facts=AT_OWN_SIZE,
        )  # fmt: skip
    return f"the kernels of backward were not compiled: {reply.unsupported}" if reply.unsupported else ""
