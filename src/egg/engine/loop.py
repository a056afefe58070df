"""The loop: structure first, hardware second, every change judged, and the best judged once more.

It reads like the work of one expert because everything around it is elsewhere: the stages are
a table (:mod:`egg.engine.stages`), a step's own business is in :mod:`egg.engine.work`, and
resuming, replaying and waiting are the journal's.
"""

from __future__ import annotations

from egg.core.evaluation import Refusal, Rejected
from egg.core.events import RunClosed
from egg.core.policy import Level
from egg.core.source import Candidate
from egg.core.stage import Stage
from egg.core.step import Kernel, Score
from egg.engine.effects import BudgetEnded, Effects
from egg.engine.stages import REGRADE, SEARCH, StageRow, refused_start, search
from egg.engine.state import RunState
from egg.engine.work import StepInProgress

FINALISTS = 3
"""How many of the fastest kernels may be regraded before the reference is returned."""


def optimize(effects: Effects) -> RunState:
    """Seed, design the structure, tune for the hardware; end when there is no more to win or to spend."""
    stopped = "every stage is done"
    try:
        for row in search(effects.state.started.settings):
            if barred := row.barred(effects.state):
                effects.skip(row, barred)
                continue
            effects.open(row)
            while not (done := row.done(effects.state)):
                take_step(effects, row)
            effects.close(row, done)
    except BudgetEnded as end:
        stopped = end.reason
        effects.close_open_stage(stopped)
    regrade(effects, stopped)
    return effects.state


def take_step(effects: Effects, row: StageRow) -> None:
    """One change: plan it, write it, repair what fails, sweep what is left open; keep it beyond the noise."""
    step = StepInProgress(effects, row)
    try:
        if step.plan():
            step.write()
            while step.failed and step.may_repair:
                step.repair()
            if step.accepted and row.sweeps:
                step.sweep()
    except BudgetEnded:
        step.close()
        raise
    step.close()


def regrade(effects: Effects, stopped: str) -> None:
    """Judge the fastest with full care; it is returned if it beats the reference beyond the noise."""
    verdict, winner, reason = "reference", None, refused_start(effects.state) or "no accepted kernel"
    finalists = _finalists(effects.state)
    if finalists:
        effects.open(REGRADE)
    accepted, refusal = None, None
    for kernel in finalists:
        refusal = _full_care(effects, kernel.candidate)
        if refusal is None:
            accepted = kernel.candidate
            break
    if accepted is None and refusal is not None:
        accepted = _repaired(effects)
        reason = f"no accepted kernel: full care refused it at {refusal.gate.value}"
    if accepted is not None:
        verdict, reason = _standing(effects.state.kernels[accepted.hash].score)
        winner = None if verdict == "reference" else accepted.hash
    effects.journal.decide(RunClosed(winner, verdict, reason, stopped))


def _full_care(effects: Effects, candidate: Candidate) -> Refusal | None:
    (evaluation,) = effects.evaluate([candidate], Level.FULL)
    return evaluation.verdict.refusal if isinstance(evaluation.verdict, Rejected) else None


def _repaired(effects: Effects) -> Candidate | None:
    """What the team writes instead of a seed that full care refuses, once full care accepts it.

    The budget's repairs are made one after another, each judged quickly and then with full care. A file that
    the user gave is not repaired.
    """
    seeds = [step.candidate for step in effects.state.steps_in(Stage.SEED) if step.candidate is not None]
    if not seeds or effects.state.started.start is not None:
        return None
    candidate = Candidate(effects.state.sources[seeds[-1]], seeds[-1])
    refusal = _full_care(effects, candidate)
    try:
        step = StepInProgress(effects, SEARCH[0]) if refusal is not None else None
    except BudgetEnded:
        return None
    if step is None:
        return candidate
    try:
        while refusal is not None:
            step.refuse(candidate, refusal)
            while step.failed and step.may_repair:
                step.repair()
            if not step.accepted or step.file is None:
                break
            candidate = step.file
            refusal = _full_care(effects, candidate)
    except BudgetEnded:
        pass
    step.close()
    return candidate if refusal is None else None


def _finalists(state: RunState) -> list[Kernel]:
    """The best first, then what other steps ended with, by their time; the points of one sweep are one."""
    ended = {step.candidate for step in state.steps} | {state.best}
    stand = [kernel for name, kernel in state.kernels.items() if name in ended]
    stand.sort(key=lambda kernel: (kernel.candidate.hash != state.best, kernel.score.milliseconds.median))
    return stand[:FINALISTS]


def _standing(score: Score) -> tuple[str, str]:
    """What a regraded kernel is worth against the reference, and in which words."""
    if score.speedup is None:
        return "unmeasured", "accepted; no GPU measured it, so nothing is said of its speed"
    times = f"{score.speedup.median:.2f} times the speed of eager PyTorch"
    if score.faster:
        return "faster", f"{times} ({score.speedup.low:.2f} to {score.speedup.high:.2f})"
    return "reference", f"nothing beats the reference beyond the noise: the best kernel has {times}"
