"""Timing: the candidate and every opponent, interleaved in random order, in one session on the same inputs.

A round gives each contestant a fixed number of calls, fixed by the reference's speed and
not by the candidate's; the candidate runs twice per round, so that an A/A comparison gives
the noise floor. Speedups are ratios within a round; what drifts between rounds cancels.

The inputs' values change before every call of the candidate, and the output of a call that
was chosen at random is delivered. Of every second turn, which ones nobody knows before they are
over, it is put aside with the inputs it belongs to and checked when the measuring is done
(:func:`settle`). Opponents run on the oracle's private copies, which a candidate cannot touch.

Where others compile beside this judge (:attr:`~egg.evaluator.care.Care.yields`) a session may be disturbed:
it is then held again, and the calmest of up to three counts.

Only the rounds need a GPU that nobody else uses: questions are drawn, opponents compiled and
everybody warmed up before (:func:`prepare`).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from egg.core.errors import MachineError
from egg.core.evaluation import Baseline
from egg.core.policy import Precision
from egg.evaluator import aside, freshen
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.opponents import DEFAULT
from egg.evaluator.reference import FORWARD_SEED, Case
from egg.evaluator.statistics import interval, noise_floor, speedup

MAX_REPEATS, MIN_REPEATS = 40, 3
SESSIONS = 3
UNREST = 0.15
"""Of a session that is held again where others may have disturbed it."""


def prepare(exam: Exam) -> dict[str, Any]:
    """Draw the questions, compile the opponents, and let everybody run once or twice."""
    exam.timed = cases = placed_questions(exam)
    assert exam.opponents is not None
    with exam.yielding():
        opponents = exam.opponents.get(_contestants(exam), cases[0].inputs)
    if "eager" in exam.opponents.failed:
        raise MachineError(
            f"the reference cannot be timed: {exam.opponents.failed['eager']}",
            "use a GPU with more memory, or a smaller task",
        )
    for name, reason in exam.opponents.failed.items():
        exam.warnings.append(f"no baseline '{name}': {reason}")
    turn(exam, cases, MIN_REPEATS)
    return {"opponents": [opponent.name for opponent in opponents], "input_sets": len(cases)}


def run(exam: Exam) -> dict[str, Any]:
    """The rounds. Nobody else must use the GPU meanwhile."""
    if not exam.timed:
        prepare(exam)
    cases = exam.timed
    sets = [case.inputs for case in cases]
    assert exam.opponents is not None
    opponents = exam.opponents.get(_contestants(exam), sets[0])
    probe = median(opponents[0].time(sets, 5, exam.device))
    repeats = calls_in(exam.care.round_milliseconds, probe)
    turn(exam, cases, MIN_REPEATS)

    own_turn = partial(turn, exam, cases, repeats)
    turns = {"A": own_turn, "A'": own_turn}
    turns |= {o.name: partial(o.time, sets, repeats, exam.device) for o in opponents}
    sessions = [rounds(turns, exam.care.rounds)]
    while exam.care.yields and len(sessions) < SESSIONS and unrest(sessions[-1]) > UNREST:
        sessions.append(rounds(turns, exam.care.rounds))
    times = min(sessions, key=unrest)

    candidate = times["A"]
    exam.measured = {
        "milliseconds": interval(candidate),
        "baselines": tuple(
            Baseline(o.name, interval(times[o.name]), speedup(candidate, times[o.name])) for o in opponents
        ),
        "noise_floor": noise_floor(candidate, times["A'"]),
    }
    return {
        "rounds": exam.care.rounds,
        "sessions": len(sessions),
        "calls_per_round": repeats,
        "input_sets": len(cases),
        "fresh_values": bool(freshen.draw(cases[0].tensors, random.Random(0))),
        "times": times,
    }


def calls_in(milliseconds: float, each: float) -> int:
    """How many calls a turn has, where one takes so long."""
    return max(MIN_REPEATS, min(MAX_REPEATS, int(milliseconds / max(each, 1e-3))))


def unrest(times: Mapping[str, Sequence[float]]) -> float:
    """How wide the interval of a contestant's median is, beside that median: the widest of all.

    It knows no direction and treats all alike, so whom it helps to be asked again nobody can say.
    """
    return max((found.high - found.low) / found.median for found in map(interval, times.values()))


def settle(exam: Exam) -> dict[str, Any]:
    """Check the answers that were put aside, of this gate and of the clock's."""
    return aside.settle(exam)


def placed_questions(exam: Exam) -> list[Case]:
    """One for every set of inputs, laid there; what is timed moves their values and keeps up with it."""
    cases = [exam.reference.question(f"timed set {i + 1}") for i in range(len(exam.sets))]
    for index, case in enumerate(cases):
        exam.place(case, index)
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


def _contestants(exam: Exam) -> tuple[str, ...]:
    names = exam.care.opponents
    if exam.policy.precision is Precision.MATCH:
        return names
    return (*names, f"eager {DEFAULT}", f"compile {DEFAULT}")


def turn(exam: Exam, cases: list[Case], repeats: int, rival: int | None = None) -> list[float]:
    """One turn of the candidate on inputs that change with every call; half the turns will be checked.

    None of a ``rival``'s is, by its number, nor of a candidate's that is only ranked.
    """
    generator = random.Random(secrets.randbits(64))
    moves = [freshen.draw(cases[call % len(cases)].tensors, generator) for call in range(repeats)]
    chosen = generator.randrange(repeats)
    exam.make_room()
    exam.poison(chosen % len(cases))
    reply = exam.request(
        "time",
        sets=[exam.set_request(case, i) for i, case in enumerate(cases)],
        moves=moves,
        recheck=chosen,
        outputs=exam.output_slots(chosen % len(cases)),
        seed=FORWARD_SEED,
        reseed=exam.reference.stochastic,
        keep_cache=exam.roomy(),
        rival=rival,
    )
    checked = not exam.heat.files and generator.random() < 0.5
    _follow(exam, cases, moves, chosen if checked else None)
    milliseconds = [float(t) for t in reply["milliseconds"]]
    if len(milliseconds) != repeats or min(milliseconds) <= 0:
        raise Refused("timing.forged", "the reported times cannot be times", "the timer was tampered with")
    return milliseconds


def _follow(exam: Exam, cases: list[Case], moves: list[Any], checked: int | None) -> None:
    """Make the same moves on the private copies; put the call that is to be checked aside."""
    for call, change in enumerate(moves):
        index = call % len(cases)
        freshen.apply(cases[index].tensors, change)
        if call == checked:
            aside.put(exam, cases[index], index, "a timed call")
