"""Trusted clock: the oracle's own wall clock, against what the candidate's process claims.

Events are recorded in the candidate's process and could be forged there. So the oracle asks
for K calls, each on values of its own, and holds the clock itself: the last output of every
input set is verified, and the slope between few and many calls cancels the fixed cost of
asking. A claim may lie below what this clock saw by as much as launch overhead and copying
explain, and no more; the speedup by this clock is reported beside the other one.
"""

from __future__ import annotations

import random
import secrets
import time
from statistics import median
from typing import Any

import torch

from egg.evaluator import freshen
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.opponents import Opponent
from egg.evaluator.reference import FORWARD_SEED, Case
from egg.evaluator.task.program import outputs_of

TRIALS = 5
MILLISECONDS = 60.0
TOLERANCE = 0.75
"""A cold L2 and back-to-back calls are not the same load: a quarter of the time may be due to that."""
HOST_MILLISECONDS = 0.15
HOST_PER_LAUNCH_MILLISECONDS = 0.03


def run(exam: Exam) -> dict[str, Any]:
    cases = [exam.reference.question(f"clocked set {index + 1}") for index in range(len(exam.sets))]
    for index, case in enumerate(cases):
        exam.place(case, index)
    claimed = exam.measured["milliseconds"].median
    few = 2 * len(cases)
    many = few * max(4, min(64, int(MILLISECONDS / max(claimed, 1e-3) / few)))
    wall = _slope(lambda calls: _candidate_calls(exam, cases, calls), few, many)
    assert exam.opponents is not None
    eager = exam.opponents.ready["eager"]
    reference = _slope(lambda calls: _reference_calls(exam, eager, cases, calls), few, many)
    exam.measured |= {"wall_milliseconds": wall, "wall_speedup": reference / max(wall, 1e-9)}

    launches = sum(exam.provenance["kernels"].values()) + sum(exam.provenance["library_ops"].values())
    moves = len(freshen.draw(cases[0].tensors, random.Random(0)))
    host = HOST_MILLISECONDS + HOST_PER_LAUNCH_MILLISECONDS * (launches + moves)
    copies = _copy_milliseconds(exam)
    notes = {
        "claimed": claimed,
        "wall": wall,
        "wall_eager": reference,
        "allowed_host": host,
        "copies": copies,
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


def _slope(run_calls: Any, few: int, many: int) -> float:
    """Milliseconds per call beyond the first few, the median of several trials.

    How many calls there are is drawn anew each time: any of them may be the last, whose
    output is checked.
    """
    slopes = []
    for _ in range(TRIALS):
        less, more = few - secrets.randbelow(few // 2), many - secrets.randbelow(few)
        slopes.append((run_calls(more) - run_calls(less)) / (more - less) * 1e3)
    return max(median(slopes), 1e-6)


def _candidate_calls(exam: Exam, cases: list[Case], calls: int) -> float:
    """Seconds for ``calls`` calls, each on values of its own; the last output of every set is checked."""
    moves = _moves(cases, calls)
    exam.make_room()
    for index in range(len(cases)):
        exam.poison(index)
    sets = [exam.set_request(case, index) for index, case in enumerate(cases)]
    reseed = exam.reference.stochastic
    start = time.perf_counter()
    exam.request("calls", sets=sets, moves=moves, seed=FORWARD_SEED, reseed=reseed)
    seconds = time.perf_counter() - start
    for call, change in enumerate(moves):
        freshen.apply(cases[call % len(cases)].tensors, change)
    for index, case in enumerate(cases):
        exam.check(exam.reference.answer(case.label, case.inputs), None, index)
    return seconds


def _reference_calls(exam: Exam, eager: Opponent, cases: list[Case], calls: int) -> float:
    """The same for the reference: its outputs are copied too, but to memory only the oracle sees."""
    moves = _moves(cases, calls)
    spare = [torch.empty_like(t) for t in exam.outputs(0) if t is not None]
    start = time.perf_counter()
    with eager.scope():
        for call, change in enumerate(moves):
            case = cases[call % len(cases)]
            freshen.apply(case.tensors, change)
            _copy(eager.call(*case.inputs), spare)
        torch.cuda.synchronize(exam.device)
    return time.perf_counter() - start


def _moves(cases: list[Case], calls: int) -> list[list[freshen.Move]]:
    generator = random.Random(secrets.randbits(64))
    return [freshen.draw(cases[call % len(cases)].tensors, generator) for call in range(calls)]


def _copy(result: Any, destinations: list[torch.Tensor]) -> None:
    """As the candidate's outputs are delivered; nothing of the result is kept while the next is computed."""
    leaves = (leaf for _, leaf in outputs_of(result) if isinstance(leaf, torch.Tensor))
    for destination, leaf in zip(destinations, leaves, strict=True):
        destination.copy_(leaf)


def _copy_milliseconds(exam: Exam) -> float:
    """What delivering one call's outputs costs, measured on the oracle's side."""
    outputs = [t for t in exam.outputs(0) if t is not None]
    spare = [torch.empty_like(t) for t in outputs]
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(2):
        start.record()
        for source, destination in zip(outputs, spare, strict=True):
            destination.copy_(source)
        end.record()
    torch.cuda.synchronize(exam.device)
    return start.elapsed_time(end)
