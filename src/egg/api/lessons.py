"""The verbs on lessons: recall them when a run begins, remember its steps, carry them about.

What a run is offered depends on lessons only through what its first event recorded, so a replay
needs no store and a later lesson changes no earlier run. What a run teaches is read off its log, so
nothing is lost by a crash between a step and its lesson, and nothing is counted twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from egg.api.watching import Watcher
from egg.core.errors import EggError
from egg.core.events import Event, RunClosed, StepClosed
from egg.core.exemplar import Exemplar
from egg.core.facts import Facts
from egg.core.places import data_folder
from egg.core.stage import Stage
from egg.engine.log import read_log
from egg.engine.state import RunState
from egg.memory.exemplars import all_kept, exemplar_of, folder_of, keep, recalled
from egg.memory.lessons import Lesson, LessonsError, lessons_of, read_lines, write_lines
from egg.memory.promoting import SkillDraft, drafts
from egg.memory.signature import signature_of
from egg.memory.standing import Standing, standings
from egg.memory.store import LessonStore, is_store

STORE = "lessons.sqlite"
EXEMPLARS = 3
"""Kernels of earlier runs that a run is shown."""


def default_store(environ: Mapping[str, str]) -> Path:
    """Where a user's lessons are: ``$XDG_DATA_HOME/egg/lessons.sqlite``, or under ``~/.local/share``."""
    return data_folder(environ) / STORE


# -- in a run --------------------------------------------------------------------------------------


def recall(path: Path, facts: Facts) -> dict[Stage, dict[str, Standing]]:
    """What the store says for a task, by stage and skill; nothing where there is no store yet."""
    if not os.path.exists(path):
        return {}
    signature = signature_of(facts)
    with LessonStore(path, create=False) as store:
        known = {stage: standings(store, signature, facts.gpu, stage) for stage in Stage}
    return {stage: found for stage, found in known.items() if found}


def recall_kernels(
    path: Path, facts: Facts, most: int = EXEMPLARS, without: str = ""
) -> tuple[Exemplar, ...]:
    """Accepted kernels of earlier runs for programs like that of ``facts``, the likest first."""
    return recalled(folder_of(path), signature_of(facts), facts.gpu, most, without)


def remember_kernel(folder: Path, path: Path) -> bool:
    """Keep the kernel that the run in ``folder`` ended with; whether there is one."""
    kept = exemplar_of((entry.at, entry.event) for entry in read_log(folder))
    if kept is not None:
        keep(folder_of(path), kept)
    return kept is not None


def remember(folder: Path, path: Path) -> int:
    """Keep the lessons of the run in ``folder``, as far as its log goes; how many were new."""
    learned = lessons_in_run(folder)
    if not learned:
        return 0
    with LessonStore(path) as store:
        return store.add(learned)


def lessons_in_run(folder: Path) -> tuple[Lesson, ...]:
    """What the log of a run teaches, whatever is in any store."""
    try:
        return tuple(lessons_of((entry.at, entry.event) for entry in read_log(folder)))
    except ValueError as reason:
        raise LessonsError(f"the run in {folder} says what no lesson can hold: {reason}") from reason


class Remembering(Watcher):
    """A watcher of a run that keeps each step's lesson as the step ends.

    A store that cannot be written costs the run its lessons and nothing else: that is reported once, to
    ``trouble``, and the log still has them for :func:`merge_lessons`.
    """

    def __init__(self, folder: Path, path: Path, trouble: Callable[[EggError], None]) -> None:
        self._folder, self._path = folder, path
        self._trouble = trouble
        self._given_up = False

    def event(self, event: Event, state: RunState, new: bool) -> None:
        if new and isinstance(event, StepClosed | RunClosed) and not self._given_up:
            try:
                remember(self._folder, self._path)
                if isinstance(event, RunClosed):
                    remember_kernel(self._folder, self._path)
            except EggError as error:
                self._given_up = True
                self._trouble(error)


# -- between machines ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merged:
    """What taking lessons in came to."""

    read: int
    added: int

    @property
    def known(self) -> int:
        return self.read - self.added


def all_lessons(
    path: Path, *, stage: Stage | None = None, skill: str | None = None, run: str | None = None
) -> tuple[Lesson, ...]:
    with LessonStore(path, create=False) as store:
        return store.lessons(stage=stage, skill=skill, run=run)


def export_lessons(path: Path, out: Path) -> int:
    """Write every lesson as lines of JSON, whole or not at all; how many."""
    lessons = all_lessons(path)
    if is_store(out):
        raise LessonsError(f"{out} is a store, and no export is written over one", "choose another file")
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        temporary.write_text(write_lines(lessons), encoding="utf-8")
        temporary.replace(out)
    except OSError as reason:
        temporary.unlink(missing_ok=True)
        raise LessonsError(f"cannot write {out}: {reason.strerror}", "choose another file") from None
    return len(lessons)


def merge_lessons(path: Path, files: Sequence[Path]) -> Merged:
    """Take in the lessons of exports, stores and runs, and the kernels of runs. A damaged one stops it before
    anything is written.

    What is known already, by run and step, stays as it is: merging twice, or in another order, is the same
    as merging once.
    """
    found = [lesson for file in files for lesson in _lessons_in(file)]
    with LessonStore(path) as store:
        merged = Merged(len(found), store.add(found))
    for file in files:
        if file.is_dir():
            remember_kernel(file, path)
    return merged


def _lessons_in(file: Path) -> tuple[Lesson, ...]:
    if file.is_dir():
        return lessons_in_run(file)
    return all_lessons(file) if is_store(file) else read_lines(file)


def promote(path: Path, folder: Path, least: int) -> tuple[SkillDraft, ...]:
    """Write a draft of a skill into ``folder`` for each kind of change that won repeatedly."""
    lessons = all_lessons(path) if os.path.exists(path) else ()
    found = drafts(all_kept(folder_of(path)), lessons, least)
    for draft in found:
        place = folder / draft.name
        if place.exists():
            raise LessonsError(f"{place} is there already", "move it away, or give another folder")
    for draft in found:
        assets = folder / draft.name / "assets"
        try:
            assets.mkdir(parents=True)
            (assets / "pattern.py").write_text(draft.pattern, encoding="utf-8")
            (assets.parent / "SKILL.md").write_text(draft.text, encoding="utf-8")
        except OSError as reason:
            raise LessonsError(f"cannot write {assets}: {reason.strerror}", "choose another folder") from None
    return tuple(found)


def prune_lessons(
    path: Path,
    *,
    days: float | None = None,
    keep: int | None = None,
    versions: tuple[str, ...] = (),
    dry: bool = False,
    now: datetime | None = None,
) -> int:
    """Forget what is older than ``days``, beyond ``keep`` of a kind, or of ``versions``; how many."""
    before = None
    if days is not None:
        moment = (now or datetime.now(UTC)) - timedelta(days=days)
        before = moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with LessonStore(path, create=False) as store:
        return store.prune(before=before, keep=keep, versions=versions, dry=dry)
