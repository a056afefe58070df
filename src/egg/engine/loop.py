"""The loop: structure first, hardware second, every change judged, and the best judged once more.

It reads like the work of one expert because everything around it is elsewhere: the stages are
a table (:mod:`egg.engine.stages`), a step's own business is in :mod:`egg.engine.work`, and
resuming, replaying and waiting are the journal's.
"""

from __future__ import annotations

from egg.core.evaluation import Rejected
from egg.core.events import RunClosed
from egg.core.policy import Level
from egg.core.step import Kernel, Score
from egg.engine.effects import BudgetEnded, Effects
from egg.engine.stages import REGRADE, StageRow, refused_start, search
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
            effects.record()
            while not (done := row.done(effects.state)):
                take_step(effects, row)
                effects.record()
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
    for kernel in finalists:
        (evaluation,) = effects.evaluate([kernel.candidate], Level.FULL)
        if isinstance(evaluation.verdict, Rejected):
            reason = f"no accepted kernel: full care refused it at {evaluation.verdict.refusal.gate.value}"
            continue
        verdict, reason = _standing(effects.state.kernels[kernel.candidate.hash].score)
        winner = None if verdict == "reference" else kernel.candidate.hash
        break
    effects.journal.decide(RunClosed(winner, verdict, reason, stopped))


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
