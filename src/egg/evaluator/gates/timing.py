"""Timing: the candidate and every opponent, interleaved in random order, in one session on the same inputs.

A round gives each contestant a fixed number of calls, fixed by the reference's speed and
not by the candidate's; the candidate runs twice per round, so that an A/A comparison gives
the noise floor. Speedups are ratios within a round; what drifts between rounds cancels.
"""

from __future__ import annotations

import random
import secrets
from statistics import median
from typing import Any

from egg.core.evaluation import Baseline
from egg.core.policy import Precision
from egg.evaluator import exchange
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.opponents import DEFAULT
from egg.evaluator.reference import FORWARD_SEED, Case
from egg.evaluator.statistics import interval, noise_floor, speedup

MAX_REPEATS, MIN_REPEATS = 40, 3


def run(exam: Exam) -> dict[str, Any]:
    cases = [exam.reference.case(f"timed set {i + 1}") for i in range(len(exam.sets))]
    for index, case in enumerate(cases):
        exam.place(case, index)
    sets = [_bound(exam, case, index) for index, case in enumerate(cases)]
    assert exam.opponents is not None
    opponents = exam.opponents.get(_contestants(exam), sets[0])
    for name, reason in exam.opponents.failed.items():
        exam.warnings.append(f"no baseline '{name}': {reason}")

    probe = median(opponents[0].time(sets, 5, exam.device))
    repeats = max(MIN_REPEATS, min(MAX_REPEATS, int(exam.care.round_milliseconds / max(probe, 1e-3))))
    for _ in range(2):
        _time_candidate(exam, cases, MIN_REPEATS)

    times: dict[str, list[float]] = {name: [] for name in ("A", "A'", *(o.name for o in opponents))}
    order = list(times)
    for _ in range(exam.care.rounds):
        random.shuffle(order)
        for name in order:
            if name in ("A", "A'"):
                times[name].append(median(_time_candidate(exam, cases, repeats)))
            else:
                opponent = next(o for o in opponents if o.name == name)
                times[name].append(median(opponent.time(sets, repeats, exam.device)))

    candidate = times["A"]
    exam.measured = {
        "milliseconds": interval(candidate),
        "baselines": tuple(
            Baseline(o.name, interval(times[o.name]), speedup(candidate, times[o.name])) for o in opponents
        ),
        "noise_floor": noise_floor(candidate, times["A'"]),
        "cases": cases,
        "sets": sets,
    }
    return {"rounds": exam.care.rounds, "calls_per_round": repeats, "input_sets": len(cases), "times": times}


def _contestants(exam: Exam) -> tuple[str, ...]:
    names = exam.care.opponents
    if exam.policy.precision is Precision.MATCH:
        return names
    return (*names, f"eager {DEFAULT}", f"compile {DEFAULT}")


def _bound(exam: Exam, case: Case, index: int) -> list[Any]:
    """A case's inputs as they lie in shared memory: reference and candidate read the same bytes."""
    return exchange.unpack(case.structure, [exam.view(s) for s in exam.sets[index].inputs])


def _time_candidate(exam: Exam, cases: list[Case], repeats: int) -> list[float]:
    """One round of the candidate; the output of one call, chosen at random, is checked."""
    chosen = secrets.randbelow(repeats)
    index = chosen % len(cases)
    exam.poison(index)
    reply = exam.request(
        "time",
        sets=[exam.set_request(case, i) for i, case in enumerate(cases)],
        repeats=repeats,
        recheck=chosen,
        outputs=exam.output_slots(index),
        seed=FORWARD_SEED,
    )
    if not exam.reference.stochastic:
        exam.check(cases[index], None, index)
    milliseconds = [float(t) for t in reply["milliseconds"]]
    if len(milliseconds) != repeats or min(milliseconds) <= 0:
        raise Refused("timing.forged", "the reported times cannot be times", "the timer was tampered with")
    return milliseconds
