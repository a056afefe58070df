"""``egg tune``: optimize what programs recorded under ``torch.compile(backend="egg")``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from egg.cli import run_options
from egg.cli.errors import error_boundary, kept
from egg.cli.kernels import StoreOption, entry_json, opened, state_words
from egg.cli.options import (
    BudgetOption,
    DebugOption,
    JsonOption,
    LessonsOption,
    NoLessonsOption,
    NoSkillsOption,
    RunSkillsOption,
    SeedOption,
)
from egg.cli.render import clean, console
from egg.cli.words import plural
from egg.core.errors import UsageError
from egg.core.settings import Settings

PANEL = "Optimize programs"


def register(app: typer.Typer) -> None:
    app.command("tune", rich_help_panel=PANEL)(tune)


def tune(
    store: StoreOption = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many graphs, the heaviest first.")
    ] = None,
    entry: Annotated[
        str | None, typer.Option(metavar="KEY", help="This graph alone; the key may be shortened.")
    ] = None,
    budget: BudgetOption = "quick",
    skills: RunSkillsOption = None,
    no_skills: NoSkillsOption = False,
    lessons: LessonsOption = None,
    no_lessons: NoLessonsOption = False,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Optimize recorded graphs, the heaviest first, each once; keep the kernels that are faster.

    Exit 0 when every graph has its verdict, 2 usage, 3 machine unable, 130 interrupted.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.tuning import Here, waiting
        from egg.api.tuning import tune as tuning
        from egg.cli.live import watching

        if limit is not None and limit < 1:
            raise UsageError(f"--limit is {limit}", "a whole number from 1, or leave it out")
        place = opened(store)
        settings = Settings(
            team="expert",
            budget=run_options.budget(budget, None),
            seed=run_options.check_seed(seed),
            skills=run_options.skill_folders(skills or [], no_skills, os.environ),
            lessons=run_options.lesson_store(lessons, no_lessons, os.environ),
        )
        here = Here.now()
        found = waiting(place, here)
        chosen = found.entries[:limit] if entry is None else (place.named(entry),)
        screen, done = console(sys.stderr), []
        with kept("egg tune"):
            for tuned in tuning(place, chosen, settings, here, os.environ, watching):
                done.append(tuned)
                line = f"[{len(done)}/{len(chosen)}] {tuned.name}: {clean(state_words(tuned))}"
                screen.print(line, soft_wrap=True)
        if as_json:
            rows = [entry_json(tuned) for tuned in done]
            print(json.dumps({"tuned": rows, "elsewhere": found.elsewhere}, indent=2))
        else:
            print(_summary(len(done), found.elsewhere, place.folder))


def _summary(done: int, elsewhere: int, folder: Path) -> str:
    others = f"; {plural(elsewhere, 'graph')} recorded under other terms" if elsewhere else ""
    if not done:
        return f"nothing to tune in {clean(str(folder))}{others}"
    return f"{plural(done, 'graph')} tuned in {clean(str(folder))}{others}"
