"""Correctness of every configuration that an autotuner may choose.

Without a GPU nothing is timed, and a tuner takes what it is asked to take. On a GPU it may take any
of its configurations, on another GPU another one: a result holds for all of them or for none. Each is
asked for at one question; at level quick one of them, by lot. At level full each also answers at another
size, and where several choices are made (several tuners, several keys of one) some are drawn independently.
Configurations that there is no time to try are refused: none of them was seen to be right.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from egg.evaluator.gates.beside import Answer, ask
from egg.evaluator.gates.calls import Calls
from egg.evaluator.gates.claims import Claims
from egg.evaluator.gates.compile import FEWER
from egg.evaluator.gates.correctness import examine
from egg.evaluator.gates.domain import stated
from egg.evaluator.process.handle import Fault
from egg.evaluator.reference.probes import Change, Given
from egg.evaluator.transport.protocol import Configure
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

MOST_SECONDS = 60.0
"""In which every configuration must have been tried, at the task's own size, and again at another."""
MIXED = 8
"""Draws of independent choices: of two tuners with two configurations each all pairs, but once in 250."""
SIZES = 4
"""Changes of size that are tried for one at which the first configuration is right."""


def run(trial: Trial) -> Notes:
    first = trial.connection.request(Configure(0))
    places = [Configure(place) for place in range(1, first.most)]
    secrets.SystemRandom().shuffle(places)
    whole = trial.settings.domain is Probes.ALL
    mixed = [Configure(0, _lot()) for _ in range(MIXED)] if first.choices > 1 and places else []
    asked = [*places, *mixed] if whole else [*mixed, *places][:1]
    if not asked:
        return {"configurations": first.most, "tried": 1}
    try:
        _each(trial, asked, lambda configure: _examined(trial, configure))
        at = _other_size(trial) if whole else None
        if at is not None:
            claims, change = at
            _each(trial, asked, lambda configure: _right_at(trial, configure, claims, change))
    finally:
        if trial.connection.process.alive:
            trial.connection.request(Configure(0))
    described = {} if at is None else {"also_at": at[0].describe(at[1])}
    return {"configurations": first.most, "tried": len(places if whole else asked) + 1, **described}


def _lot() -> int:
    return 1 + secrets.randbits(40)


def _each(trial: Trial, asked: Sequence[Configure], question: Callable[[Configure], None]) -> None:
    """Put a question under each configuration, within the time for it; independent draws may be dropped."""
    until = time.perf_counter() + MOST_SECONDS
    for at, configure in enumerate(asked):
        if time.perf_counter() > until and not configure.lot:
            left = sum(not other.lot for other in asked[at:])
            evidence = f"{left} configurations of autotuners were not tried within {MOST_SECONDS:g} s"
            raise Refused("correctness.configuration", evidence, FEWER)
        if time.perf_counter() > until:
            trial.warnings.append("few independent choices of the autotuners were tried")
            return
        trial.connection.request(configure)
        question(configure)


def _examined(trial: Trial, configure: Configure) -> None:
    try:
        examine(trial, trial.reference.case(_words(configure)))
    except Fault as fault:
        if not trial.connection.process.alive:
            raise
        names = trial.connection.request(configure).names
        raise Refused(
            fault.reason, f"with {listed(names)}: {fault.evidence}", WRONG, facts=fault.facts
        ) from fault
    except Refused as wrong:
        names = trial.connection.request(configure).names
        raise Refused(
            "correctness.configuration", f"with {listed(names)}: {wrong.evidence}", WRONG, facts=wrong.facts
        ) from None


def _other_size(trial: Trial) -> tuple[Claims, Change] | None:
    """A call of other sizes at which the first configuration is right, if there is one to be had."""
    trial.connection.request(Configure(0))
    inputs = trial.reference.program.inputs(0, trial.device, trial.policy.precision)
    claims = Claims(trial, stated(trial.candidate.source), Given.of(inputs))
    calls = Calls(claims)
    joint = (Change(sizes=calls.joint()), Change(sizes=calls.joint(alike=True)))
    for change in [c for c in (*joint, *calls.sizes()) if c.sizes][:SIZES]:
        answer = ask(trial, change).answer
        if not trial.connection.process.alive:
            trial.connection.restart()
        if answer is Answer.RIGHT:
            return claims, change
    return None


def _right_at(trial: Trial, configure: Configure, claims: Claims, change: Change) -> None:
    """Where the first configuration is right, another must not be wrong, nor raise inside the domain."""
    outcome = ask(trial, change)
    claimed = claims.domain is not None and not claims.outside(change)
    if outcome.answer is Answer.WRONG or (outcome.answer is Answer.RAISED and claimed):
        alive = trial.connection.process.alive
        names = trial.connection.request(configure).names if alive else {}
        where = f"{claims.describe(change)}, with {listed(names) or _words(configure)}"
        raise Refused("correctness.configuration", f"{where}: {outcome.evidence}"[:900], WRONG)


WRONG = "every configuration given to triton.autotune must compute the same: a tuner may choose any of them"


def _words(configure: Configure) -> str:
    if configure.lot:
        return "configurations of the autotuners drawn independently"
    return f"configuration {configure.place + 1} of the autotuner"


def listed(names: Mapping[str, str]) -> str:
    return "; ".join(f"{kernel} configured as {config}" for kernel, config in names.items())[:400]
