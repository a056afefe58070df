"""Correctness whatever a GPU makes of what the language leaves open.

An interpreter answers in one way what a GPU answers in any: in which order programs reach their atomics,
in which order a reduction combines, which of two equal extremes has the index that is returned, whether a
product and a sum become one instruction with one rounding. Here these are drawn by lot for a few questions,
under the ordinary rule: an order that changes no more than rounding does not matter.
"""

from __future__ import annotations

import secrets

from egg.evaluator.transport.protocol import Options
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

LOTS = 2
"""Questions; at level quick one."""


def run(trial: Trial) -> Notes:
    lots = LOTS if trial.settings.domain is Probes.ALL else 1
    for number in range(lots):
        ask(trial, f"order by lot {number + 1}")
    return {"lots": lots}


def ask(trial: Trial, label: str) -> None:
    """One question, of which every program runs, in turns where they meet at atomics."""
    case = trial.reference.case(label)
    trial.buffers.place(case)
    reply = trial.ask(case, options=Options(traced=True, lot=secrets.randbits(31)))
    try:
        trial.check(case, reply)
    except Refused as wrong:
        raise Refused("correctness.order", f"{SEEN}: {wrong.evidence}", WRONG, facts=wrong.facts) from None


SEEN = "with orders by lot (of programs at their atomics, of reductions, of ties) and contracted products"
WRONG = (
    "rely on no order that Triton does not promise: programs run in any order, an atomic returns what "
    "it makes of it, a combine function must commute, ties break to the left only where asked, and a * b - c "
    "may round once"
)
