"""The commands of long-term memory: list, export, merge and prune the lessons of runs."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from typer.core import TyperGroup

from egg.cli.errors import error_boundary
from egg.cli.inputs import check_days
from egg.cli.lazy import command_group
from egg.cli.options import DebugOption, JsonOption
from egg.cli.render import clean, console, print_outcome
from egg.cli.tables import pairs, table
from egg.cli.words import one_line, plural
from egg.core.errors import UsageError
from egg.core.stage import Stage

if TYPE_CHECKING:
    from egg.memory.lessons import Lesson

PANEL = "Look at what is known"
NOWHERE = "—"

StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--lessons", metavar="PATH", help="The file with the lessons; $XDG_DATA_HOME/egg/lessons.sqlite."
    ),
]


class FormerNames(TyperGroup):
    """Accepts ``--store``, the name ``--lessons`` once had here; the help does not show it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [re.sub(r"^--store(?==|$)", "--lessons", word) for word in args])


lessons = command_group(
    "lessons", "What runs have learned on this machine: list, carry, merge, forget.", cls=FormerNames
)


def register(app: typer.Typer) -> None:
    app.add_typer(lessons, rich_help_panel=PANEL)


@lessons.command("list")
def list_lessons(
    stage: Annotated[str | None, typer.Option(metavar="STAGE", help="Of one stage only.")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """For every skill: how often it was tried, how often it worked, and what it brought."""
    with error_boundary(debug=debug, as_json=as_json):
        path = _path(store)
        found = _found(path, store, _stage(stage))
        rows = _by_skill(found)
        if as_json:
            print(json.dumps({"store": str(path), "lessons": len(found), "skills": rows}, indent=2))
        elif rows:
            console().print(_skills_view(rows))
            counts = f"{plural(len(found), 'lesson')} of {plural(len({x.run for x in found}), 'run')}"
            print(f"{counts} in {clean(str(path))}")
        else:
            print(f"no lessons in {clean(str(path))} yet: runs write them")


@lessons.command("show")
def show(
    what: Annotated[str, typer.Argument(metavar="SKILL|RUN", help="A skill's name, or a run's.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Every lesson on one skill, or of one run: the kind of task, and the outcome."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.lessons import all_lessons

        path = _path(store)
        found = all_lessons(path, skill=what) or all_lessons(path, run=what)
        if not found:
            raise UsageError(
                f"no lesson on a skill or of a run named {what!r}", "see `egg lessons list` for the skills"
            )
        if as_json:
            print(json.dumps({"lessons": [lesson.to_json() for lesson in found]}, indent=2))
        else:
            for lesson in found:
                console().print(_lesson_view(lesson), "")


@lessons.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Lines of JSON; replaced whole.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write all lessons to a file, for another machine or to keep."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.lessons import export_lessons

        count = export_lessons(_path(store), file)
        print_outcome({"exported": count, "file": str(file)}, f"{plural(count, 'lesson')} -> {file}", as_json)


@lessons.command("import")
def import_file(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Made by egg lessons export; or a run's folder.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Take in the lessons of a file. Those known already, by run and step, are not counted again."""
    _take_in([file], store, as_json, debug)


@lessons.command("merge")
def merge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Exports, other stores, folders of runs.")
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Take in the lessons of many exports, stores and runs; nothing of any if one is damaged."""
    _take_in(files, store, as_json, debug)


@lessons.command("prune")
def prune(
    days: Annotated[
        float | None, typer.Option("--older-than", metavar="DAYS", help="Forget what is older.")
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="COUNT", help="Of each kind of task, stage and skill, the newest."),
    ] = None,
    version: Annotated[
        list[str] | None,
        typer.Option("--version", metavar="VERSION", help="Forget what this version of egg learned."),
    ] = None,
    dry: Annotated[bool, typer.Option("--dry-run", help="Only say how many there are.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Forget lessons: by age, by count, by the version that learned them. Any of the conditions is enough."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.lessons import prune_lessons

        if days is None and keep is None and not version:
            raise UsageError("nothing says what to forget", "give --older-than, --keep or --version")
        check_days(days)
        if keep is not None and keep < 0:
            raise UsageError(f"no count: {keep}", "for example --keep 20")
        count = prune_lessons(_path(store), days=days, keep=keep, versions=tuple(version or ()), dry=dry)
        message = f"{'would forget' if dry else 'forgot'} {plural(count, 'lesson')}"
        print_outcome({"pruned": 0 if dry else count, "matching": count}, message, as_json)


@lessons.command("promote")
def promote(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the drafts go, one folder each.")],
    least: Annotated[
        int, typer.Option("--least", metavar="COUNT", help="Programs on which a kind of change won.")
    ] = 2,
    store: StoreOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Draft a skill from what won repeatedly without one, for a person to edit.

    A draft has the form of a skill: egg skills check FOLDER reads it. Exit 0, also where nothing won.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api import lessons as api

        if least < 1:
            raise UsageError(f"--least is {least}", "a whole number from 1")
        found = api.promote(_path(store), folder, least)
        rows = [{"name": d.name, "programs": d.programs, "gain": round(d.gain, 3)} for d in found]
        lines = [
            f"{clean(str(folder / d.name))}: {plural(d.programs, 'program')}, {d.gain:.2f}x" for d in found
        ]
        message = "\n".join(lines) or "nothing won repeatedly without a skill"
        print_outcome({"folder": str(folder), "drafts": rows}, message, as_json)


def _take_in(files: list[Path], store: Path | None, as_json: bool, debug: bool) -> None:
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.lessons import merge_lessons

        merged = merge_lessons(_path(store), files)
        data = {"read": merged.read, "added": merged.added, "known": merged.known}
        message = f"{plural(merged.added, 'lesson')} added, {merged.known} known already"
        print_outcome(data, message, as_json)


def _path(store: Path | None) -> Path:
    from egg.api.lessons import default_store

    return store.expanduser() if store is not None else default_store(os.environ)


def _found(path: Path, named: Path | None, stage: Stage | None) -> tuple[Lesson, ...]:
    """The default store is empty until a run writes it; a store that is named must exist."""
    from egg.api.lessons import all_lessons

    return all_lessons(path, stage=stage) if named is not None or path.exists() else ()


def _stage(name: str | None) -> Stage | None:
    known = [stage.value for stage in Stage if stage is not Stage.REGRADE]
    if name is not None and name not in known:
        raise UsageError(f"unknown stage: {name!r}", f"one of {', '.join(known)}")
    return Stage(name) if name is not None else None


def _by_skill(found: Iterable[Lesson]) -> list[dict[str, Any]]:
    """One row for a skill in a stage; what followed no skill is gathered by its category."""
    gathered: dict[tuple[str, str | None, str | None], list[Lesson]] = {}
    for lesson in found:
        category = lesson.category.value if lesson.category is not None and lesson.skill is None else None
        gathered.setdefault((lesson.stage.value, lesson.skill, category), []).append(lesson)
    order = {stage.value: place for place, stage in enumerate(Stage)}
    rows = [_row(*key, lessons) for key, lessons in gathered.items()]
    return sorted(rows, key=lambda row: (order[row["stage"]], -row["tried"], str(row["skill"])))


def _row(stage: str, skill: str | None, category: str | None, found: list[Lesson]) -> dict[str, Any]:
    gains = [lesson.gain for lesson in found if lesson.worked and lesson.gain is not None]
    count = {word: sum(x.verdict == word for x in found) for word in ("no gain", "slower", "refused")}
    return {
        "stage": stage,
        "skill": skill,
        "category": category,
        "tried": len(found),
        "worked": sum(lesson.worked for lesson in found),
        **{word.replace(" ", "_"): number for word, number in count.items()},
        "gain": math.exp(sum(map(math.log, gains)) / len(gains)) if gains else None,
        "last": max(lesson.when for lesson in found),
    }


def _skills_view(rows: list[dict[str, Any]]) -> RenderableType:
    shown = table(
        "stage",
        "skill",
        "tried",
        "worked",
        "gain",
        "no gain",
        "slower",
        "refused",
        "last",
        numbers=range(2, 8),
    )
    for row in rows:
        gain = f"{row['gain']:.2f}x" if row["gain"] is not None else NOWHERE
        name = row["skill"] or f"({row['category'] or 'no skill'})"
        counts = (row["no_gain"], row["slower"], row["refused"])
        numbers = (str(row["tried"]), str(row["worked"]), gain, *map(str, counts))
        shown.add_row(row["stage"], clean(name), *numbers, clean(row["last"][:10]))
    return shown


def _lesson_view(lesson: Lesson) -> RenderableType:
    return pairs((name, one_line(value)) for name, value in _rows_of(lesson) if value)


def _rows_of(lesson: Lesson) -> Iterable[tuple[str, str]]:
    yield "run", f"{lesson.run}, step {lesson.step}"
    yield "task", lesson.signature.key
    yield "on", f"{lesson.gpu} ({lesson.arch}), {'measured' if lesson.measured else 'predicted'}"
    followed = lesson.skill or (lesson.category.value if lesson.category is not None else "a first kernel")
    yield "tried", f"{followed} ({lesson.stage.value})"
    yield "predicted", f"{lesson.predicted:.2f}x" if lesson.predicted is not None else ""
    yield "came of it", lesson.verdict.value + (f": {lesson.failure}" if lesson.failure else "")
    if lesson.gain is not None:
        times = [f"{t:.4g} ms" if t is not None else NOWHERE for t in (lesson.before, lesson.after)]
        yield "gain", f"{lesson.gain:.3f}x ({' -> '.join(times)})"
    yield "when", f"{lesson.when}, egg {lesson.version}"
