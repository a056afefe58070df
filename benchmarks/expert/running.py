"""One task from its text to its row: a run of the engine with the built-in team, in a folder of its own.

Every kernel of the loop is timed against eager, ``torch.compile`` and ``reduce-overhead`` in one session;
the engine compares by eager alone. What a row reports:

- ``quick``: one more evaluation of the winner at the level of the loop, since the fastest of several was
  lucky, too; where there was only one kernel to choose, its own. The run is left where it would be regraded,
  so that the same command with another level goes on from there.
- ``full``: the engine's own regrade.
- ``audit``: the regrade, and the winner once more at level ``audit``.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from record import ACCEPTED, blank, row_of
from rows import MACHINE, Row
from tasks import key_of

from egg.api.optimizing import begin, carry_on
from egg.api.runs import state_of
from egg.api.watching import Watcher
from egg.core.errors import EggError, MachineError, TaskError, UsageError
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.policy import Level, LibraryCalls, Policy
from egg.core.settings import Caps, Settings
from egg.core.source import Candidate, Task
from egg.core.step import Kernel
from egg.engine.budgets import find_budget
from egg.engine.journal import Diverged, Judge
from egg.engine.log import LOG, read_log
from egg.engine.loop import FINALISTS
from egg.engine.state import RunState
from egg.engine.waiting import WaitingForEvaluations
from egg.evaluator.care import CARE
from egg.evaluator.pool import Job
from egg.evaluator.question import Question

OPPONENTS = ("eager", "compile", "reduce-overhead")
SEARCHING = replace(CARE[Level.QUICK], opponents=OPPONENTS)
TRIES = 2
"""Of a run that the machine failed: it goes on from its log."""
LOCKED_SECONDS = 20.0
"""For a process that was left behind by a killed batch to end."""


@dataclass(frozen=True)
class Terms:
    """How every task of a batch is run."""

    device: str
    budget: str
    library_calls: LibraryCalls
    level: Level
    runs: Path
    minutes: float | None = None
    skills: bool = False
    """Whether the built-in skills are offered, which plans may name."""

    def settings(self) -> Settings:
        return Settings(
            "expert",
            find_budget(self.budget),
            library_calls=self.library_calls,
            device=self.device,
            caps=Caps(minutes=self.minutes),
            skills=() if self.skills else None,
        )


def run_task(task: Task, terms: Terms, judge: Judge) -> Row:
    """Never raises for what a task, a kernel or this machine may do: that is the row."""
    started = time.perf_counter()
    level, problem = key_of(task)
    place = terms.runs / f"{level}_{problem}"
    spent, trouble, trace = 0.0, "", ""
    try:
        state = opened(task, place / "run", terms)
        spent = state.ledger.seconds
        trouble, trace = _searched(place / "run", terms, judge)
        row = _row(place, terms, judge)
    except TaskError as error:
        row = blank(task, f"no file: {error.message}")
    except EggError as error:
        row = blank(task, f"{MACHINE}{error.message}")
    except Exception as error:  # ours: the batch goes on, and the row says what to mend
        trouble, trace = f"{MACHINE}{type(error).__name__}: {error}", traceback.format_exc()
        row = blank(task, trouble)
    if trouble:
        if row["verdict"] != ACCEPTED:
            row["verdict"] = (trouble if trouble.startswith(MACHINE) else f"no file: {trouble}")[:300]
        row |= {"trouble": trouble[:500], "trace": trace[-1500:]}
    whole = spent + time.perf_counter() - started
    row["seconds"] = {"all": round(whole, 2), **row.get("seconds", {})}
    return row


# -- the run -----------------------------------------------------------------------------------------


def opened(task: Task, folder: Path, terms: Terms) -> RunState:
    """The run of a task as it stands, begun where there is none; other terms need another folder."""
    log = folder / LOG
    if not (log.exists() and b"\n" in log.read_bytes()):
        begin(task, terms.settings(), folder, {})
        return state_of(folder)
    state = state_of(folder)
    was, now = state.started.settings, terms.settings()
    same = (was.budget, was.library_calls, was.team) == (now.budget, now.library_calls, now.team)
    if not same or state.started.task.hash != task.hash:
        raise UsageError(f"{folder} is a run under other terms", "use another folder with --runs")
    return state


def _searched(folder: Path, terms: Terms, judge: Judge) -> tuple[str, str]:
    """Go on with the run as far as it gets; why it broke off, with a trace, or nothing."""
    search = SearchJudge(judge, regrade=terms.level is not Level.QUICK)
    trouble = trace = ""
    begun = time.monotonic()
    tries = 0
    while tries < TRIES:
        try:
            carry_on(folder, state_of(folder), Watcher(), {}, judge=search)
            return "", ""
        except Diverged as error:
            return f"{MACHINE}the log is another program's: {error.message}; remove {folder}", ""
        except UsageError as error:
            if time.monotonic() - begun > LOCKED_SECONDS:
                return f"{MACHINE}{error.message}", ""
            time.sleep(1.0)
            continue
        except MachineError as error:
            trouble = f"{MACHINE}{error.message}"
        except Exception as error:  # a fault of the team's: what was accepted before it stands
            return f"{type(error).__name__}: {error}", traceback.format_exc()
        tries += 1
    return trouble, trace


class SearchJudge:
    """The loop's questions with every opponent; without ``regrade`` the run waits for that."""

    def __init__(self, judge: Judge, *, regrade: bool) -> None:
        self._judge = judge
        self._regrade = regrade

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        regraded = tuple(job for job in jobs if job.question.policy.level is not Level.QUICK)
        if regraded and not self._regrade:
            raise WaitingForEvaluations(regraded)
        yield from self._judge.judge([job if job in regraded else _against_all(job) for job in jobs])


def _against_all(job: Job) -> Job:
    return Job(job.id, replace(job.question, care=SEARCHING))


# -- what counts -------------------------------------------------------------------------------------


def _row(place: Path, terms: Terms, judge: Judge) -> Row:
    state = state_of(place / "run")
    final = final_of(state, place / "final.json", terms, judge)
    if final is not None and final.accepted:
        (place / "kernel.py").write_text(state.sources[final.candidate_hash], encoding="utf-8")
    row = row_of(state, [entry.event for entry in read_log(place / "run")], final)
    if final is not None and final not in state.evaluations.values():
        row["seconds"]["final"] = round(final.seconds, 2)
    return row


def final_of(state: RunState, path: Path, terms: Terms, judge: Judge) -> Evaluation | None:
    """The evaluation a row reports; ``None`` where no kernel was ever accepted.

    It is kept beside the run, so that a batch that is killed before the row is written asks only once.
    """
    regraded = [e for e in state.evaluations.values() if e.policy.level is not Level.QUICK]
    if terms.level is not Level.QUICK and (not state.kernels or terms.level is Level.FULL):
        accepted = [e for e in regraded if e.accepted]
        return (accepted or regraded)[-1] if regraded else None
    finalists = _finalists(state)
    chosen = len(state.kernels) > 1 or terms.level is not Level.QUICK
    if not finalists or not (_was_measured(finalists[0]) and chosen):
        return finalists[0].evaluation if finalists else None
    verdict: Evaluation | None = None
    for kernel in finalists:
        verdict = _kept(path, kernel.candidate, terms.level) or _asked(state, kernel, terms.level, judge)
        path.write_text(json.dumps(verdict.to_json()), encoding="utf-8")
        if verdict.accepted:
            break
    return verdict


def _finalists(state: RunState) -> list[Kernel]:
    """The best first, then the fastest of the others."""
    stand = list(state.kernels.values())
    stand.sort(key=lambda kernel: (kernel.candidate.hash != state.best, kernel.score.milliseconds.median))
    return stand[:FINALISTS]


def _was_measured(kernel: Kernel) -> bool:
    return kernel.score.measured


def _kept(path: Path, candidate: Candidate, level: Level) -> Evaluation | None:
    if not path.exists():
        return None
    try:
        kept = Evaluation.from_json(json.loads(path.read_text(encoding="utf-8")))
    except ValueError:  # torn by a kill
        return None
    return kept if (kept.candidate_hash, kept.policy.level) == (candidate.hash, level) else None


def _asked(state: RunState, kernel: Kernel, level: Level, judge: Judge) -> Evaluation:
    settings = state.started.settings
    policy = Policy(settings.precision, settings.library_calls, level)
    verdict = kernel.evaluation.verdict
    assert isinstance(verdict, Accepted)
    assert isinstance(verdict.performance, Measured)
    shared = bool(verdict.provenance.library_ops)
    care = replace(CARE[level], opponents=OPPONENTS, profile=CARE[level].profile or shared)
    question = Question(state.started.task, kernel.candidate, policy, settings.target, care=care)
    ((_, evaluation),) = list(judge.judge([Job(f"{state.started.run}/final", question)]))
    return evaluation
