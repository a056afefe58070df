"""Drafts of skills from what won repeatedly.

A change that was promoted in several runs, on different programs, and that followed no skill is something the
skills do not know yet. Changes are grouped by stage, category and the family that most of the program's time
goes to; a group with enough programs becomes a draft: a folder in the form of a skill, with the changes as
the plans stated them, the gains that were seen, how often the same kind of change was tried in vain, and the
best kernel as a pattern. Whether the changes are one technique, and what its condition is, a person decides:
the draft says so.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from egg.core.exemplar import Won
from egg.core.source import content_hash
from egg.memory.exemplars import Kept
from egg.memory.lessons import Lesson, Verdict

LEAST_PROGRAMS = 2
SMALLEST_GAIN = 1.01
CHANGES_SHOWN = 12
_FUTURE = re.compile(r"^from __future__ import .*\n", re.MULTILINE)


@dataclass(frozen=True)
class SkillDraft:
    """A folder to be: its name, the text of ``SKILL.md`` and of one pattern."""

    name: str
    text: str
    pattern: str
    programs: int
    gain: float
    """Geometric mean of the gains."""


@dataclass(frozen=True)
class _Case:
    kept: Kept
    won: Won


def drafts(kept: Iterable[Kept], lessons: Sequence[Lesson], least: int = LEAST_PROGRAMS) -> list[SkillDraft]:
    """One draft for each kind of change that won on at least so many programs, the largest gain first."""
    groups: dict[tuple[str, str, str], list[_Case]] = defaultdict(list)
    for one in kept:
        family = max(one.signature.families.items(), key=lambda f: f[1], default=("", 0.0))[0]
        for won in one.exemplar.won:
            gained = won.gain is not None and won.gain > SMALLEST_GAIN
            if family and won.category is not None and won.skill is None and gained:
                groups[won.stage.value, won.category.value, family].append(_Case(one, won))
    found = [
        _draft(*kind, cases, lessons) for kind, cases in sorted(groups.items()) if _programs(cases) >= least
    ]
    return sorted(found, key=lambda draft: (-draft.gain, draft.name))


def _programs(cases: Sequence[_Case]) -> int:
    return len({content_hash(case.kept.program) for case in cases})


def _draft(
    stage: str, category: str, family: str, cases: Sequence[_Case], lessons: Sequence[Lesson]
) -> SkillDraft:
    gains = [case.won.gain for case in cases if case.won.gain is not None]
    best = max(cases, key=lambda case: case.won.gain or 0.0)
    name = f"draft-{category}-{family}".replace("_", "-")
    middle = math.exp(sum(map(math.log, gains)) / len(gains))
    text = "\n".join(
        [
            *_head(name, stage, category, family, cases, gains),
            *_body(category, family, cases, gains, _tries(stage, category, lessons)),
        ]
    )
    return SkillDraft(name, text, _pattern(best.kept), _programs(cases), middle)


def _head(
    name: str, stage: str, category: str, family: str, cases: Sequence[_Case], gains: Sequence[float]
) -> list[str]:
    archs = {case.kept.exemplar.arch for case in cases}
    hardware = next(iter(archs)) if len(archs) == 1 else "any"
    words = category.replace("_", " ")
    return [
        "---",
        f"name: {name}",
        f"description: Draft, to be edited. A change of the kind {words} that won on {_programs(cases)} "
        f"programs whose time goes to {family}.",
        "metadata:",
        f"  stage: {stage}",
        f"  categories: {category}",
        f"  families: {family}",
        f"  hardware: {hardware}",
        f"  gate: has_base and has_{family}",
        f"  gain: {max(1.0, min(gains)):.2f}-{max(gains):.2f}",
        "---",
    ]


def _body(
    category: str, family: str, cases: Sequence[_Case], gains: Sequence[float], tries: str
) -> list[str]:
    shown = sorted(cases, key=lambda case: -(case.won.gain or 0.0))[:CHANGES_SHOWN]
    changes = [
        f"- {_plain(case.kept.exemplar.task)}, {_plain(case.kept.exemplar.gpu)}, "
        f"{case.won.gain or 1.0:.2f}x: {_plain(case.won.change)}"
        for case in shown
    ]
    return [
        "## When",
        f"Draft: the condition is only that the program has {family}. Replace it by what these programs have "
        "in common and others lack.",
        "",
        "## How",
        "The changes that the plans state. Keep what they have in common; state it as a technique.",
        "",
        *changes,
        "",
        "## Expected",
        f"{min(gains):.2f} to {max(gains):.2f} times the base in {len(gains)} promoted steps. {tries}",
        "",
        "## Risks",
        "Not known yet: seen only where it won. Try it on programs that it should not help.",
        "",
    ]


def _tries(stage: str, category: str, lessons: Sequence[Lesson]) -> str:
    """How the same kind of change fared in all runs, in words."""
    same = [
        lesson
        for lesson in lessons
        if lesson.stage.value == stage
        and lesson.skill is None
        and lesson.category is not None
        and lesson.category.value == category
    ]
    if not same:
        return "No lesson tells how often this kind of change was tried in vain."
    worked = sum(lesson.verdict is Verdict.PROMOTED for lesson in same)
    refused = sum(lesson.verdict is Verdict.REFUSED for lesson in same)
    return f"Of {len(same)} tries of this kind without a skill {worked} won and {refused} were refused."


def _pattern(kept: Kept) -> str:
    """The program and its kernel file in one, as an example of a skill is."""
    futures = "".join(dict.fromkeys(_FUTURE.findall(kept.program) + _FUTURE.findall(kept.exemplar.source)))
    program, kernel = (_FUTURE.sub("", text).strip() for text in (kept.program, kept.exemplar.source))
    head = '"""Draft, from a run: make the sizes small enough to be tried."""\n\n'
    return f"{head}{futures}{program}\n\n\n{kernel}\n"


def _plain(text: str) -> str:
    return " ".join(text.split())
