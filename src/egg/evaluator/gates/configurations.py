"""Correctness of every configuration that an autotuner may choose.

Without a GPU nothing is timed, and a tuner takes what it is asked to take. On a GPU it may take any
of its configurations, on another GPU another one: a result holds for all of them or for none. Each is
asked for at one question; at level quick one of them, by lot.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from egg.evaluator.gates.correctness import examine
from egg.evaluator.process.handle import Fault
from egg.evaluator.transport.protocol import Configure
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

MOST_SECONDS = 40.0
"""After which no further configuration is tried; which ones were, is by lot."""


def run(trial: Trial) -> dict[str, Any]:
    offered = trial.connection.request(Configure(0)).most
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
            trial.connection.request(Configure(place))
            _examined(trial, place)
            tried += 1
    finally:
        if trial.connection.process.alive:
            trial.connection.request(Configure(0))
    return {"configurations": offered, "tried": tried + 1}


def _examined(trial: Trial, place: int) -> None:
    try:
        examine(trial, trial.reference.case(f"configuration {place + 1} of the autotuner"))
    except Fault as fault:
        if not trial.connection.process.alive:
            raise
        names = trial.connection.request(Configure(place)).names
        raise Refused(
            fault.reason, f"with {_listed(names)}: {fault.evidence}", WRONG, facts=fault.facts
        ) from fault
    except Refused as wrong:
        names = trial.connection.request(Configure(place)).names
        raise Refused(
            "correctness.configuration", f"with {_listed(names)}: {wrong.evidence}", WRONG, facts=wrong.facts
        ) from None


WRONG = "every configuration given to triton.autotune must compute the same: a tuner may choose any of them"


def _listed(names: Mapping[str, str]) -> str:
    return "; ".join(f"{kernel} configured as {config}" for kernel, config in names.items())[:400]
