"""Timing: the candidate and every opponent, interleaved in random order, in one session on the same inputs.

A round gives each contestant a fixed number of calls, fixed by the reference's speed and not by the
candidate's; the candidate runs twice per round, so that an A/A comparison gives the noise floor.
Speedups are ratios within a round; what drifts between rounds cancels.

All of the inputs' values change before every call of the candidate (:mod:`egg.evaluator.transport.freshen`),
the weights are secret ones, and the output of a call that was chosen at random is delivered. Of
every second turn, unknown before the turn is over, it is kept for a deferred check with the inputs it
belongs to and checked when the measuring is done (:func:`settle`). Opponents run on the oracle's
private copies, which a candidate cannot touch.

A session is short at level quick (:attr:`~egg.evaluator.trial.levels.LevelSettings.retimed`): one in which
times lie far apart is held again there, and the calmest of up to three counts.

Only the rounds need a GPU that no other judge uses: questions are drawn, opponents compiled and
everybody warmed up before (:func:`prepare`).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from egg.core.errors import MachineError
from egg.core.evaluation import Baseline
from egg.core.policy import Precision
from egg.evaluator.reference.case import Case
from egg.evaluator.timing.opponents import DEFAULT
from egg.evaluator.timing.statistics import interval, noise_floor, speedup
from egg.evaluator.transport import protocol
from egg.evaluator.trial import deferred, in_step
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Measurement, Notes, Trial

MAX_REPEATS, MIN_REPEATS = 40, 3
SESSIONS = 3
UNREST = 0.15
"""Of a session that is held again."""


def prepare(trial: Trial) -> Notes:
    """Draw the questions, compile the opponents, and let everybody run once or twice."""
    trial.connection.other_weights()
    trial.timed = cases = placed_questions(trial)
    assert trial.opponents is not None
    trial.opponents.writes = trial.reference.writes
    trial.opponents.load(trial.reference.module.state_dict())
    opponents = trial.opponents.get(_contestants(trial), cases[0].inputs)
    if "eager" in trial.opponents.failed:
        raise MachineError(
            f"the reference cannot be timed: {trial.opponents.failed['eager']}",
            "use a GPU with more memory, or a smaller task",
        )
    for name, reason in trial.opponents.failed.items():
        trial.warnings.append(f"no baseline '{name}': {reason}")
    trial.level()
    turn(trial, cases, MIN_REPEATS)
    return {"opponents": [opponent.name for opponent in opponents], "input_sets": len(cases)}


def run(trial: Trial) -> Notes:
    """Run the rounds. Needs the GPU alone."""
    if not trial.timed:
        prepare(trial)
    cases = trial.timed
    sets = [case.inputs for case in cases]
    assert trial.opponents is not None
    opponents = trial.opponents.get(_contestants(trial), sets[0])
    probe = median(opponents[0].time(sets, 5, trial.device))
    repeats = calls_in(trial.settings.round_milliseconds, probe)
    turn(trial, cases, MIN_REPEATS)

    own_turn = partial(turn, trial, cases, repeats)
    turns = {"A": own_turn, "A'": own_turn}
    turns |= {o.name: partial(o.time, sets, repeats, trial.device) for o in opponents}
    sessions = [rounds(turns, trial.settings.rounds)]
    while trial.settings.retimed and len(sessions) < SESSIONS and unrest(sessions[-1]) > UNREST:
        sessions.append(rounds(turns, trial.settings.rounds))
    times = min(sessions, key=unrest)

    candidate = times["A"]
    trial.measured = Measurement(
        interval(candidate),
        tuple(
            Baseline(o.name, interval(times[o.name]), speedup(candidate, times[o.name])) for o in opponents
        ),
        noise_floor(candidate, times["A'"]),
    )
    return {
        "rounds": trial.settings.rounds,
        "sessions": len(sessions),
        "calls_per_round": repeats,
        "input_sets": len(cases),
        "fresh_values": trial.buffers.reserve.moving,
        "other_weights": trial.reference.reweighed,
        "times": times,
    }


def calls_in(milliseconds: float, each: float) -> int:
    """How many calls a turn has, where one takes so long."""
    return max(MIN_REPEATS, min(MAX_REPEATS, int(milliseconds / max(each, 1e-3))))


def unrest(times: Mapping[str, Sequence[float]]) -> float:
    """How wide the interval of a contestant's median is, beside that median: the widest of all.

    It has no direction and treats all contestants alike, so a further session favours none of them.
    """
    return max((found.high - found.low) / found.median for found in map(interval, times.values()))


def settle(trial: Trial) -> Notes:
    """Check the deferred answers, of this gate and of the clock's.

    The candidate's process may be gone by then: its successor gets the weights as built.
    """
    notes = deferred.settle(trial)
    if not trial.timed:
        trial.reference.restore()
    return notes


def placed_questions(trial: Trial) -> list[Case]:
    """One for every set of inputs, laid there; what is timed moves their values and keeps up with it."""
    cases = [
        trial.reference.question(f"timed set {i + 1}", alone=True) for i in range(len(trial.buffers.sets))
    ]
    for index, case in enumerate(cases):
        trial.buffers.place(case, index)
    return cases


def rounds(turns: Mapping[str, Callable[[], list[float]]], count: int) -> dict[str, list[float]]:
    """Milliseconds of every contestant in each round, one turn each in random order."""
    times: dict[str, list[float]] = {name: [] for name in turns}
    order = list(turns)
    for _ in range(count):
        random.shuffle(order)
        for name in order:
            times[name].append(median(turns[name]()))
    return times


def _contestants(trial: Trial) -> tuple[str, ...]:
    names = trial.settings.opponents
    if trial.policy.precision is Precision.MATCH:
        return names
    return (*names, f"eager {DEFAULT}", f"compile {DEFAULT}")


def turn(trial: Trial, cases: list[Case], repeats: int, contender: int | None = None) -> list[float]:
    """One turn of the candidate on inputs that change with every call; half the turns will be checked.

    None of a ``contender``'s is, by its number, nor of a candidate's that is only ranked.
    """
    moves = trial.buffers.reserve.for_calls([case.tensors for case in cases], repeats)
    seeds = seeds_for(trial, repeats)
    chosen = secrets.randbelow(repeats)
    trial.buffers.make_room()
    trial.buffers.poison(chosen % len(cases))
    reply = trial.connection.request(
        protocol.Time(
            trial.buffers.session(cases, moves, seeds),
            chosen,
            trial.buffers.sets[chosen % len(cases)].outputs,
            contender,
            keep_cache=trial.buffers.roomy(),
        )
    )
    checked = not trial.side_by_side.files and secrets.randbelow(2) == 0
    if trial.side_by_side.files:
        catch_up(trial, cases, moves)
    else:
        _follow(trial, cases, moves, seeds, chosen if checked else None)
        check_left(trial, cases, repeats)
    milliseconds = list(reply.milliseconds)
    if len(milliseconds) != repeats or min(milliseconds) <= 0:
        raise Refused("timing.forged", "the reported times cannot be times", "the timer was tampered with")
    return milliseconds


def seeds_for(trial: Trial, calls: int) -> list[int]:
    """For the generator, before each call; none where the task draws nothing in forward."""
    return [secrets.randbits(31) for _ in range(calls)] if trial.reference.stochastic else []


def _follow(trial: Trial, cases: list[Case], moves: list[Any], seeds: list[int], checked: int | None) -> None:
    """Bring the private copies to where the candidate's are; defer the call that is to be checked.

    Moves leave nothing of what was there before, so of every set only the last ones are made; all are where
    answers follow from earlier calls.
    """
    for call in in_step.walked(trial, cases, moves, seeds, () if checked is None else (checked,)):
        index = call % len(cases)
        case = replace(cases[index], seed=seeds[call]) if seeds else cases[index]
        deferred.put(trial, case, index, "a timed call")
    catch_up(trial, cases, moves)


def catch_up(trial: Trial, cases: list[Case], moves: list[Any]) -> None:
    """The private copies as the candidate's inputs are behind its last call of every set."""
    for call in range(max(0, len(moves) - len(cases)), len(moves)):
        trial.buffers.reserve.follow(cases[call % len(cases)].tensors, moves[call])


def check_left(trial: Trial, cases: list[Case], calls: int) -> None:
    """Behind so many calls: every set holds the inputs of its last one, as they were given."""
    for index, case in enumerate(cases[:calls]):
        trial.checks.check_inputs_unchanged(case, index)
