"""Side-by-side timing: contenders timed in turn with the candidate, in its process, to rank them soon.

A sweep asks which of a dozen files that differ in a few constants is the fastest. Judging each of
them takes a process, two compiled opponents and a good many questions; most of that says nothing
about the order. Here all of them are loaded into one process with the candidate's weights, compiled
side by side, and take turns in the same rounds. Nothing is checked, so nothing is accepted by it:
the fastest file is judged before it counts.
"""

from __future__ import annotations

from functools import partial
from statistics import median

from egg.core.evaluation import Contender
from egg.core.source import Candidate
from egg.evaluator import static
from egg.evaluator.gates.timing import MIN_REPEATS, calls_in, placed_questions, rounds, turn
from egg.evaluator.process.handle import Fault
from egg.evaluator.task.seeds import FORWARD_SEED
from egg.evaluator.timing.statistics import interval, noise_floor, speedup
from egg.evaluator.transport import protocol
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

ROUNDS = 6
"""Enough for a rank; a verdict takes more."""
THREADS = 8
"""Triton compiles for the most part outside of Python's lock."""
ALONE = ("autotune", "cuda.graph", "CUDAGraph", "CudaGraph")
LOAD_SECONDS = 30.0
"""For each file to be compiled, beside what building the candidate may take."""


def prepare(trial: Trial) -> Notes:
    """Have the candidate and its contenders loaded and compiled; one that does not run is out."""
    trial.timed = cases = placed_questions(trial)
    entered = trial.side_by_side
    refused = [_refused(trial, file) for file in entered.files]
    call = trial.buffers.call_set(cases[0], 0)
    files = zip(entered.files, refused, strict=True)
    sources = tuple(None if why else file.source for file, why in files)
    reply = trial.connection.request(
        protocol.Contenders(sources, call.inputs, call.slots, FORWARD_SEED, _threads(trial)),
        trial.settings.build_seconds + LOAD_SECONDS * len(refused),
    )
    if len(reply.unfit) != len(refused):
        raise Refused(
            "timing.forged", "other files were reported than were asked for", "leave the judge alone"
        )
    entered.unfit = [why or found for why, found in zip(refused, reply.unfit, strict=True)]
    return {"contenders": len(entered.files), "unfit": sum(map(bool, entered.unfit))}


def run(trial: Trial) -> Notes:
    """Run the rounds. Needs the GPU alone."""
    cases, entered = trial.timed, trial.side_by_side
    repeats = calls_in(trial.settings.round_milliseconds, median(turn(trial, cases, MIN_REPEATS)))
    own_turn = partial(turn, trial, cases, repeats)
    turns = {"A": own_turn, "A'": own_turn}
    for number in [number for number, why in enumerate(entered.unfit) if not why]:
        try:
            turn(trial, cases, MIN_REPEATS, number)
        except Fault as fault:
            if not trial.connection.process.alive:
                raise
            entered.unfit[number] = fault.evidence or fault.reason
        else:
            turns[str(number)] = partial(turn, trial, cases, repeats, number)
    times = rounds(turns, ROUNDS)
    own = times["A"]
    entered.ranked = tuple(
        Contender(file.hash, None, None, why[:500])
        if why
        else Contender(file.hash, interval(times[str(at)]), speedup(times[str(at)], own))
        for at, (file, why) in enumerate(zip(entered.files, entered.unfit, strict=True))
    )
    return {
        "rounds": ROUNDS,
        "calls_per_round": repeats,
        "noise_floor": noise_floor(own, times["A'"]),
        "times": times,
    }


def _threads(trial: Trial) -> int:
    """How many files may run for the first time at once: one, where memory is short, or where another's
    launches would get into what a file times by itself or records as a CUDA graph."""
    files = (trial.candidate, *trial.side_by_side.files)
    disturbed = any(word in file.source for file in files for word in ALONE)
    return 1 if disturbed or not trial.buffers.roomy() else THREADS


def _refused(trial: Trial, file: Candidate) -> str:
    refusal = static.check(file, trial.policy.library_calls)
    return f"{refusal.reason}: {refusal.evidence}" if refusal is not None else ""
