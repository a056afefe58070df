"""The evaluation that a row reports, by the level that was asked for.

- ``quick``: one more evaluation of the winner at the level of the search where another kernel came close:
  the fastest of several is partly luck. The winner's own evaluation counts where side-by-side timing chose
  it, since it is a second measurement then, or where every other kernel is slower by far. The run stops
  before its regrade, so that the same run under another level goes on from there.
- ``full``: the engine's own regrade.
- ``audit``: the regrade, and the winner once more at level ``audit``.

A search that broke off (its team has a fault) was not regraded; what it had accepted is judged here instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from egg.api.benching.folder import write_whole
from egg.core.evaluation import Evaluation
from egg.core.policy import Level, Policy
from egg.core.recording import Recording
from egg.core.source import Candidate
from egg.core.step import Kernel
from egg.engine.journal import Judge, Recorder
from egg.engine.loop import FINALISTS
from egg.engine.scoring import gain
from egg.engine.state import RunState
from egg.engine.waiting import WaitingForEvaluations
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.question import Question, RecordRequest
from egg.evaluator.trial.levels import LEVELS, Profile

OPPONENTS = ("eager", "compile", "reduce-overhead")
FAR = 1.05
"""A lead that luck does not give, once it is beyond the noise."""
SEARCHING = replace(LEVELS[Level.QUICK], opponents=OPPONENTS, profile=Profile.SHARED)


class SearchJudge:
    """A run's judge, for a row at ``level``: at ``quick`` the run waits instead of being regraded.

    ``all_opponents`` has every kernel of the search timed against all of them, and not against those alone
    that the engine compares by: needed where an evaluation of the search may become the row's.
    """

    def __init__(
        self,
        judge: Judge,
        level: Level,
        *,
        all_opponents: bool,
        on_jobs: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._judge = judge
        self._level = level
        self._all = all_opponents
        self._on_jobs = on_jobs

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        regraded = tuple(job for job in jobs if job.question.policy.level is not Level.QUICK)
        if regraded and self._level is Level.QUICK:
            raise WaitingForEvaluations(regraded)
        self._on_jobs(len(jobs))
        asked = [_against_all(job) if self._all and job not in regraded else job for job in jobs]
        yield from self._judge.judge(asked)

    def record(self, request: RecordRequest) -> Recording | None:
        return self._judge.record(request) if isinstance(self._judge, Recorder) else None


def _against_all(job: Job) -> Job:
    return Job(job.id, replace(job.question, settings=SEARCHING))


def final_of(state: RunState, kept: Path, level: Level, judge: Judge) -> Evaluation | None:
    """The evaluation a row reports: of the winner, or the refusal that left none; ``None`` where no kernel
    was ever accepted.

    One that is asked for here is kept in the file ``kept``, so that a bench that is killed before the row is
    written asks only once.
    """
    regraded = [e for e in state.evaluations.values() if e.policy.level is not Level.QUICK]
    if regraded and (level is Level.FULL or (level is Level.AUDIT and not state.kernels)):
        return ([e for e in regraded if e.accepted] or regraded)[-1]
    finalists = finalists_of(state)
    if not finalists:
        return None
    if level is Level.QUICK and _stands(state, finalists[0]):
        return finalists[0].evaluation
    verdict: Evaluation | None = None
    for kernel in finalists:
        verdict = _read(kept, kernel.candidate, level)
        if verdict is None:
            verdict = _asked(state, kernel, level, judge)
            write_whole(kept, json.dumps(verdict.to_json()))
        if verdict.accepted:
            break
    return verdict


def _stands(state: RunState, winner: Kernel) -> bool:
    """Whether the winner's own evaluation says how fast it is, and not how lucky."""
    timed = {found.candidate_hash for e in state.evaluations.values() for found in e.contenders}
    others = (kernel for name, kernel in state.kernels.items() if name != winner.candidate.hash)
    return (
        not winner.score.measured
        or winner.candidate.hash in timed
        or all(_far_behind(other, winner) for other in others)
    )


def _far_behind(other: Kernel, winner: Kernel) -> bool:
    ahead = gain(winner.score, other.score)
    return ahead.beyond_noise and ahead.ratio > FAR


def finalists_of(state: RunState) -> list[Kernel]:
    """The best first, then the fastest of the others."""
    stand = list(state.kernels.values())
    stand.sort(key=lambda kernel: (kernel.candidate.hash != state.best, kernel.score.milliseconds.median))
    return stand[:FINALISTS]


def _asked(state: RunState, kernel: Kernel, level: Level, judge: Judge) -> Evaluation:
    settings = state.started.settings
    policy = Policy(settings.precision, settings.library_calls, level)
    spent = SEARCHING if level is Level.QUICK else replace(LEVELS[level], opponents=OPPONENTS)
    question = Question(state.started.task, kernel.candidate, policy, settings.target, settings=spent)
    ((_, evaluation),) = list(judge.judge([Job(f"{state.started.run}/final", question)]))
    return evaluation


def _read(path: Path, candidate: Candidate, level: Level) -> Evaluation | None:
    try:
        kept = Evaluation.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # none yet, or not ours
        return None
    return kept if (kept.candidate_sha256, kept.policy.level) == (candidate.sha256, level) else None
