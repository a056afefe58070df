"""Trusted clock: the oracle's own wall clock, against what the candidate's process claims.

Events are recorded in the candidate's process and could be forged there. So the oracle asks for K
calls, each on values of its own, and holds the clock itself: when they are done one of the input
sets is left out by lot, and the last outputs of the others are verified. There are ten such
requests: with two sets, a file that leaves one of them unanswered each time passes once in a
thousand, with three once in 59 thousand. The slope between few and many calls cancels the fixed
cost of asking. A claim may lie below what this clock saw by as much as launch overhead and copying
explain, and no more; the speedup by this clock is reported beside the other one.

The questions are those that timing left in the input sets: their values have moved with every call
since they were drawn, and move with every call here. What making the inputs of a call costs is
measured by itself and taken off both sides.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch

from egg.evaluator.gates.timing import catch_up, check_left, placed_questions, seeds_for
from egg.evaluator.reference.case import Case
from egg.evaluator.task.program import outputs_of
from egg.evaluator.task.written_inputs import answered
from egg.evaluator.timing.opponents import Opponent
from egg.evaluator.transport import protocol
from egg.evaluator.trial import deferred, in_step
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

ATTEMPTS, REFERENCE_ATTEMPTS = 5, 3
"""The reference's clock decides nothing: it is reported."""
MILLISECONDS = 60.0
SLOW_MILLISECONDS = 15.0
TOLERANCE = 0.75
"""A cold L2 and back-to-back calls are not the same load: a quarter of the time may be due to that."""
HOST_MILLISECONDS = 0.15
HOST_PER_LAUNCH_MILLISECONDS = 0.03
SLOWER = 1.5
"""The candidate's process may read the reserve through another process's memory."""


def run(trial: Trial) -> Notes:
    cases, trial.timed = trial.timed or placed_questions(trial), []
    measured = trial.measured
    assert measured is not None
    claimed = measured.milliseconds.median
    moving = _move_milliseconds(trial, cases)
    wall = _slope(lambda calls: _candidate_calls(trial, cases, calls), *_how_many(claimed, len(cases)))
    assert trial.opponents is not None
    eager = trial.opponents.ready["eager"]
    slow = next(b.milliseconds.median for b in measured.baselines if b.name == "eager")
    reference = _slope(
        lambda calls: _reference_calls(trial, eager, cases, calls),
        *_how_many(slow, len(cases)),
        attempts=REFERENCE_ATTEMPTS,
    )
    own, theirs = (_without(moving, milliseconds) for milliseconds in (wall, reference))
    trial.measured = replace(measured, wall_milliseconds=own, wall_speedup=theirs / own)

    launched = trial.provenance
    assert launched is not None
    launches = sum(launched.kernels.values()) + sum(launched.library_ops.values())
    host = HOST_MILLISECONDS + HOST_PER_LAUNCH_MILLISECONDS * (launches + trial.buffers.reserve.moves)
    trial.buffers.reserve.forget()
    copies = _copy_milliseconds(trial) + SLOWER * moving
    notes = {
        "claimed": claimed,
        "wall": wall,
        "wall_eager": reference,
        "allowed_host": host,
        "copies": copies,
        "moving": moving,
    }
    if contradicts(claimed, wall, host + copies):
        raise Refused(
            "clock.claimed",
            f"{claimed:.4f} ms claimed per call, {wall:.4f} ms by the oracle's own clock "
            f"({host:.3f} ms of launch overhead and {copies:.3f} ms of copying allowed for)",
            "work outside the timed window: another stream, a deferred computation, or a forged timer",
        )  # fmt: skip
    return notes


def contradicts(claimed: float, wall: float, explained: float) -> bool:
    """Whether a claimed time is too short for what the wall clock saw and nothing else explains."""
    return claimed < TOLERANCE * (wall - explained)


def _how_many(milliseconds: float, sets: int) -> tuple[int, int]:
    """Few calls and many, for a program that takes so long: many take a good part of a tenth of a second.

    Of slow calls fewer will do: what the clock cannot tell is small beside each of them.
    """
    few = 2 * sets
    least = 4 if milliseconds < SLOW_MILLISECONDS else 2
    return few, few * max(least, min(64, int(MILLISECONDS / max(milliseconds, 1e-3) / few)))


def _slope(run_calls: Any, few: int, many: int, attempts: int = ATTEMPTS) -> float:
    """Milliseconds per call beyond the first few, the median of several attempts.

    How many calls there are is drawn anew each time: any of them may be the last, whose
    output is checked.
    """
    slopes = []
    for _ in range(attempts):
        less, more = few - secrets.randbelow(few // 2), many - secrets.randbelow(few)
        slopes.append((run_calls(more) - run_calls(less)) / (more - less) * 1e3)
    return max(median(slopes), 1e-6)


def _candidate_calls(trial: Trial, cases: list[Case], calls: int) -> float:
    """Seconds for ``calls`` calls, each on values of its own; the last output of all sets but one is checked.

    Which one is left out is drawn when all of them have been delivered; a single set is always checked.
    """
    moves = trial.buffers.reserve.for_calls([case.tensors for case in cases], calls)
    seeds = seeds_for(trial, calls)
    trial.buffers.make_room()
    for index in range(len(cases)):
        trial.buffers.poison(index)
    session = trial.buffers.session(cases, moves, seeds)
    request = protocol.Calls(session, keep_cache=trial.buffers.roomy())
    start = time.perf_counter()
    trial.connection.request(request)
    seconds = time.perf_counter() - start
    spared = secrets.randbelow(len(cases))
    checked = [
        max(call for call in range(calls) if call % len(cases) == index)
        for index in range(len(cases))
        if index != spared or len(cases) == 1
    ]
    for call in in_step.walked(trial, cases, moves, seeds, checked):
        case = cases[call % len(cases)]
        answered = replace(case, seed=seeds[call]) if seeds else case
        deferred.put(trial, answered, call % len(cases), "a clocked call")
    catch_up(trial, cases, moves)
    check_left(trial, cases, calls)
    return seconds


def _reference_calls(trial: Trial, eager: Opponent, cases: list[Case], calls: int) -> float:
    """The same for the reference: its outputs are copied too, but to memory only the oracle sees."""
    moves = trial.buffers.reserve.for_calls([case.tensors for case in cases], calls)
    spare = [torch.empty_like(t) for t in trial.buffers.outputs(0) if t is not None]
    start = time.perf_counter()
    with eager.scope():
        for call, change in enumerate(moves):
            case = cases[call % len(cases)]
            trial.buffers.reserve.follow(case.tensors, change)
            returned = eager.call(*case.inputs)
            _copy(answered(returned, case.inputs, trial.reference.writes), spare)
        torch.cuda.synchronize(trial.device)
    return time.perf_counter() - start


def _copy(result: Any, destinations: list[torch.Tensor]) -> None:
    """As the candidate's outputs are delivered; nothing of the result is kept while the next is computed."""
    leaves = (leaf for _, leaf in outputs_of(result) if isinstance(leaf, torch.Tensor))
    for destination, leaf in zip(destinations, leaves, strict=True):
        destination.copy_(leaf)


def _without(moving: float, milliseconds: float) -> float:
    """What is left of a call's time when making its inputs is taken off: at least a tenth of it."""
    return max(milliseconds - moving, 0.1 * milliseconds)


def _copy_milliseconds(trial: Trial) -> float:
    """What delivering one call's outputs costs, measured on the oracle's side."""
    outputs = [t for t in trial.buffers.outputs(0) if t is not None]
    spare = [torch.empty_like(t) for t in outputs]

    def copy() -> None:
        for source, destination in zip(outputs, spare, strict=True):
            destination.copy_(source)

    return _device_milliseconds(trial, [copy] * 2)


def _move_milliseconds(trial: Trial, cases: list[Case]) -> float:
    """What making the inputs of one call costs, measured on the oracle's side: the median of a few."""
    moves = trial.buffers.reserve.for_calls([case.tensors for case in cases], 3)
    times = []
    for call, change in enumerate(moves):
        tensors = cases[call % len(cases)].tensors
        times.append(
            _device_milliseconds(trial, [partial(trial.buffers.reserve.follow, tensors, change)] * 2)
        )
    for index, case in enumerate(cases):
        trial.buffers.place(case, index)
    return median(times)


def _device_milliseconds(trial: Trial, steps: list[Callable[[], None]]) -> float:
    """Device time of the last of ``steps``; those before it warm up."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for step in steps:
        start.record()
        step()
        end.record()
    torch.cuda.synchronize(trial.device)
    return start.elapsed_time(end)
