"""Correctness of every configuration that an autotuner may choose.

Without a GPU nothing is timed, and a tuner takes what it is asked to take. On a GPU it may take any
of its configurations, on another GPU another one: a result holds for all of them or for none. Each is
asked for at one question; at level quick one of them, by lot.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

from egg.evaluator.gates.correctness import examine
from egg.evaluator.process.handle import Fault
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.trial import Refused, Trial

MOST_SECONDS = 40.0
"""After which no further configuration is tried; which ones were, is by lot."""


def run(trial: Trial) -> dict[str, Any]:
    offered = trial.request("configure", place=0)["most"]
    others = list(range(1, offered))
    secrets.SystemRandom().shuffle(others)
    if trial.settings.domain is not Probes.ALL:
        others = others[:1]
    until, tried = time.perf_counter() + MOST_SECONDS, 0
    try:
        for place in others:
            if time.perf_counter() > until:
                trial.warnings.append(f"{len(others) - tried} configurations of autotuners were not tried")
                break
            trial.request("configure", place=place)
            _examined(trial, place)
            tried += 1
    finally:
        if trial.process.alive:
            trial.request("configure", place=0)
    return {"configurations": offered, "tried": tried + 1}


def _examined(trial: Trial, place: int) -> None:
    try:
        examine(trial, trial.reference.case(f"configuration {place + 1} of the autotuner"))
    except Fault as fault:
        if not trial.process.alive:
            raise
        names = trial.request("configure", place=place)["names"]
        raise Refused(fault.reason, f"with {_said(names)}: {fault.evidence}", WRONG) from fault
    except Refused as wrong:
        names = trial.request("configure", place=place)["names"]
        raise Refused("correctness.configuration", f"with {_said(names)}: {wrong.evidence}", WRONG) from None


WRONG = "every configuration given to triton.autotune must compute the same: a tuner may choose any of them"


def _said(names: dict[str, str]) -> str:
    return "; ".join(f"{kernel} configured as {config}" for kernel, config in names.items())[:400]
