"""Options that the commands of benches share: which tasks, kept where, how many at once."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from egg.cli.options import MODEL, OPTIONS
from egg.cli.progress import busy
from egg.cli.render import clean
from egg.core.policy import Level

if TYPE_CHECKING:
    from egg.bench.suites import Suite

WHICH, HOW = "Which tasks", "How it is run"
BENCHES = Path("egg-bench")
"""Where benches go that were given no place."""
WORDS = "egg.bench.words"
"""Where a command finds what was typed behind ``egg bench``."""

SuiteArgument = Annotated[
    str,
    typer.Argument(
        metavar="SUITE",
        help="A bundled suite (llm-ops, real), a KernelBench checkout, a JSONL file, a folder of task files.",
        show_default=False,
    ),
]
LevelsOption = Annotated[
    str | None,
    typer.Option(metavar="LEVELS", help="KernelBench's levels: 1, 1,2 or 1-3.", rich_help_panel=WHICH),
]
IdsOption = Annotated[
    str | None,
    typer.Option(
        metavar="IDS",
        help="Problems by number (7, 3-9, 2/7), by name, or by pattern (attention_*), with commas.",
        rich_help_panel=WHICH,
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        metavar="TASKS", help="So many of them, spread evenly over the suite.", rich_help_panel=WHICH
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="The bench's folder; egg-bench/<suite> where left out. One that is there goes on.",
        rich_help_panel=HOW,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        metavar="TASKS",
        min=1,
        help="In flight at a time; as many as keep the GPUs busy where left out.",
        rich_help_panel=HOW,
    ),
]
BenchTeamOption = Annotated[
    str | None,
    typer.Option(
        "--team",
        metavar="expert|llm|hybrid",
        help="expert (without --model): built in. llm (with it): a model answers. hybrid: a model goes on "
        "from the expert's kernel.",
        rich_help_panel=MODEL,
    ),
]
BenchLessonsOption = Annotated[
    Path | None,
    typer.Option(
        "--lessons",
        metavar="PATH",
        help="A store of lessons to recall and to add to; none where left out, since tasks would then teach "
        "each other, and one bench the next.",
        rich_help_panel=OPTIONS,
    ),
]
CareOption = Annotated[
    Level, typer.Option("--level", help="How carefully a row's kernel is judged.", rich_help_panel=OPTIONS)
]


def typed(ctx: typer.Context) -> str:
    """The command as it was given, to be given again."""
    return shlex.join(["egg", "bench", *ctx.meta[WORDS]])


def chosen_suite(name: str, levels: str | None, ids: str | None, limit: int | None) -> Suite:
    from egg.bench.suites import load, thinned

    with busy(f"reading {clean(name)}"):
        found = load(name, levels=levels, ids=ids)
    return found if limit is None else thinned(found, limit)
