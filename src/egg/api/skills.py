"""Skills joined with everything else: the catalogue of a run, its offers in the log, and why a skill fits.

A run's offers are part of its log (:class:`egg.core.events.Advised`), like a model's replies: a plan
may follow only what was offered, so a replay must offer the same, whatever became of the skills and
of what memory says of them since. So nothing here is asked while a log is read back, and a log from
before there were skills reads as one in which nothing was offered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from egg.api.lessons import recall
from egg.api.profiling import Failure, ProfileOptions, report_on
from egg.core.bottleneck import Value
from egg.core.errors import UsageError
from egg.core.events import RunStarted
from egg.core.facts import Facts, GpuFacts
from egg.core.places import config_folder
from egg.core.policy import LibraryCalls, Policy
from egg.core.roles import Advisor, Brief, Skill
from egg.core.settings import SKILL_SHARE, Settings
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.engine.journal import Journal
from egg.knowledge.advisor import KnowledgeAdvisor, open_refusal
from egg.knowledge.catalogue import Catalogue, load
from egg.knowledge.context import context_of
from egg.knowledge.select import TOKENS
from egg.knowledge.skill import SkillStage
from egg.knowledge.why import STAGES, Answer, answer_json, context_used, explain
from egg.memory.standing import Standings, from_record

WHY_SCHEMA = "egg.skills-why/1"


# -- where skills are ------------------------------------------------------------------------------


def default_folder(environment: Mapping[str, str]) -> Path:
    """Where a user keeps skills for every run: ``$XDG_CONFIG_HOME/egg/skills``, or under ``~/.config``."""
    return config_folder(environment) / "skills"


def folders_for(named: Sequence[Path], environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The user's folders, absolute, the later overriding the earlier: their own where there is one, then
    those that were named, which must be there."""
    own = default_folder(environment)
    for folder in named:
        if not folder.expanduser().is_dir():
            raise UsageError(
                f"no such folder of skills: {folder}", "it holds a folder with a SKILL.md for every skill"
            )
    every = (*([own] if own.is_dir() else []), *named)
    return tuple(dict.fromkeys(folder.expanduser().resolve() for folder in every))


# -- a run's offers --------------------------------------------------------------------------------


def advisor_for(settings: Settings, lessons: Mapping[Stage, Standings] | None = None) -> Advisor | None:
    """The advisor of a run with these settings; ``None`` for one that is offered nothing.

    ``lessons`` is the standing of each skill in memory, stage by stage, when the run began.
    """
    if settings.skills is None:
        return None
    return LateAdvisor(
        tuple(Path(folder) for folder in settings.skills),
        int(settings.budget.prompt_tokens * SKILL_SHARE),
        lessons or {},
    )


def advisor_of(started: RunStarted) -> Advisor | None:
    """The advisor of a run as it began: with its settings, and the standings of skills then."""
    return advisor_for(started.settings, from_record(started.standings))


@dataclass
class LateAdvisor:
    """Reads its catalogue when it is first asked: reading a log needs none."""

    folders: tuple[Path, ...]
    tokens: int
    lessons: Mapping[Stage, Standings] = field(default_factory=dict)
    _advisor: KnowledgeAdvisor | None = None

    def advise(self, brief: Brief) -> tuple[Skill, ...]:
        if self._advisor is None:
            self._advisor = KnowledgeAdvisor(load(self.folders), self.tokens, self.lessons)
        return self._advisor.advise(brief)


class JournaledAdvisor:
    """Every offer goes through the run's journal: a recorded one is read back, a new one is recorded.

    One offer holds for a whole step, however often its roles are briefed, and one for every kind of
    refusal that is repaired within it.
    """

    def __init__(self, advisor: Advisor | None, journal: Journal) -> None:
        self._advisor = advisor
        self._journal = journal
        self._standing: dict[tuple[int, str], tuple[Skill, ...]] = {}

    def advise(self, brief: Brief) -> tuple[Skill, ...]:
        step = len(self._journal.state.steps) + 1
        refusal = open_refusal(brief)
        failure = refusal.reason if refusal is not None else ""
        if (step, failure) not in self._standing:
            advisor = self._advisor
            ask = None if advisor is None else lambda: advisor.advise(brief)
            self._standing[step, failure] = self._journal.advice(step, failure, ask)
        return self._standing[step, failure]


# -- why -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WhyReport:
    """Every skill of every asked stage, with the number that decided, for one task and perhaps a kernel."""

    task: str
    candidate: str | None
    gpu: GpuFacts
    answers: tuple[Answer, ...]
    context: Mapping[str, Value]
    """What the conditions look at."""
    unknown: str
    """Why nothing is known of the program; empty where something is."""
    failure: Failure | None
    """Why the kernel could not be looked at."""

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": WHY_SCHEMA,
            "task": self.task,
            "candidate": self.candidate,
            "gpu": self.gpu.name,
            "stages": [answer_json(answer) for answer in self.answers],
            "context": dict(self.context),
            "unknown": self.unknown or None,
            "failure": None if self.failure is None else self.failure.reason,
        }


def why(
    task: Task,
    candidate: Candidate | None,
    catalogue: Catalogue,
    options: ProfileOptions,
    *,
    library_calls: LibraryCalls = LibraryCalls.ALLOW,
    stages: Sequence[SkillStage] = STAGES,
    failure: str = "",
    tokens: int = TOKENS,
    store: Path | None = None,
) -> WhyReport:
    """The skills on offer for the first kernel of ``task``, or for a change of ``candidate``.

    ``failure`` is the refusal to repair, for the debugging skills; a kernel that cannot be run says its own.
    ``store`` holds the lessons that sway the ranks; without one only the skills and the facts decide.
    """
    report = report_on(task, candidate, options)
    reason = failure or (report.failure.reason if report.failure is not None else "")
    if reason and SkillStage.DEBUGGING not in stages:
        stages = (*stages, SkillStage.DEBUGGING)
    facts = Facts(report.gpu, report.facts)
    lessons = recall(store, facts) if store is not None else {}
    context = context_of(
        facts,
        report.diagnosis,
        candidate.source if candidate is not None else None,
        report.row,
        Policy(options.precision, library_calls),
    )
    return WhyReport(
        task=task.name,
        candidate=candidate.name if candidate is not None else None,
        gpu=report.gpu,
        answers=explain(catalogue, context, stages, tokens=tokens, lessons=lessons, failure=reason),
        context=context_used(context, catalogue),
        unknown=report.unknown,
        failure=report.failure,
    )
