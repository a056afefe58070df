"""A heat: other files timed beside the candidate, in its process, to find the fastest of them soon.

A sweep asks which of a dozen files that differ in a few constants is the fastest. Judging each of
them takes a process, two compiled opponents and a good many questions; most of that says nothing
about the order. Here all of them are loaded into one process with the candidate's weights, compiled
side by side, and take turns in the same rounds. Nothing is checked, so nothing is accepted by it:
whoever wins a heat is judged before it counts.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from egg.core.evaluation import Contender
from egg.core.source import Candidate
from egg.evaluator import static
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.gates.timing import MIN_REPEATS, calls_in, placed_questions, rounds, turn
from egg.evaluator.process.child import Fault
from egg.evaluator.reference import FORWARD_SEED
from egg.evaluator.statistics import interval, noise_floor, speedup

ROUNDS = 6
"""Enough for a rank; a verdict takes more."""
THREADS = 8
"""Triton compiles for the most part outside of Python's lock."""
ALONE = ("autotune", "cuda.graph", "CUDAGraph", "CudaGraph")
LOAD_SECONDS = 30.0
"""For each file to be compiled, beside what building the candidate may take."""


def prepare(exam: Exam) -> dict[str, Any]:
    """Have the candidate and its rivals loaded and compiled; one that does not run is out."""
    exam.timed = cases = placed_questions(exam)
    heat = exam.heat
    refused = [_refused(exam, file) for file in heat.files]
    asked = exam.set_request(cases[0], 0)
    with exam.yielding():
        reply = exam.request(
            "rivals",
            exam.care.build_seconds + LOAD_SECONDS * len(refused),
            sources=[None if why else file.source for file, why in zip(heat.files, refused, strict=True)],
            inputs=asked["inputs"],
            slots=asked["slots"],
            seed=FORWARD_SEED,
            threads=_threads(exam),
        )
    if len(reply["unfit"]) != len(refused):
        raise Refused(
            "timing.forged", "other files were reported than were asked for", "leave the judge alone"
        )
    heat.unfit = [why or said for why, said in zip(refused, reply["unfit"], strict=True)]
    return {"rivals": len(heat.files), "unfit": sum(map(bool, heat.unfit))}


def run(exam: Exam) -> dict[str, Any]:
    """The rounds. Nobody else must use the GPU meanwhile."""
    cases, heat = exam.timed, exam.heat
    repeats = calls_in(exam.care.round_milliseconds, median(turn(exam, cases, MIN_REPEATS)))
    own_turn = partial(turn, exam, cases, repeats)
    turns = {"A": own_turn, "A'": own_turn}
    for number in [number for number, why in enumerate(heat.unfit) if not why]:
        try:
            turn(exam, cases, MIN_REPEATS, number)
        except Fault as fault:
            if not exam.process.alive:
                raise
            heat.unfit[number] = fault.evidence or fault.reason
        else:
            turns[str(number)] = partial(turn, exam, cases, repeats, number)
    times = rounds(turns, ROUNDS)
    own = times["A"]
    heat.ranked = tuple(
        Contender(file.hash, None, None, why[:500])
        if why
        else Contender(file.hash, interval(times[str(at)]), speedup(times[str(at)], own))
        for at, (file, why) in enumerate(zip(heat.files, heat.unfit, strict=True))
    )
    return {
        "rounds": ROUNDS,
        "calls_per_round": repeats,
        "noise_floor": noise_floor(own, times["A'"]),
        "times": times,
    }


def _threads(exam: Exam) -> int:
    """How many files may run for the first time at once: one, where memory is short, or where another's
    launches would get into what a file times by itself or records as a CUDA graph."""
    files = (exam.candidate, *exam.heat.files)
    disturbed = any(word in file.source for file in files for word in ALONE)
    return 1 if disturbed or not exam.roomy() else THREADS


def _refused(exam: Exam, file: Candidate) -> str:
    refusal = static.check(file, exam.policy.library_calls)
    return f"{refusal.reason}: {refusal.evidence}" if refusal is not None else ""
