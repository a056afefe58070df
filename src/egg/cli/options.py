"""Arguments and options that several commands share, with one wording each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from egg.core.policy import LibraryCalls, Precision

MODEL, OPTIONS, LIMITS = "Team and model", "Run options", "Limits"
"""Panels of ``egg optimize --help``."""

TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="A task: FILE.py, FILE.jsonl:LEVEL/ID or FILE.jsonl:ID.")
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
RunsArgument = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")]

DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
PrecisionOption = Annotated[Precision, typer.Option(help="The arithmetic both sides are held to.")]
LibraryCallsOption = Annotated[
    LibraryCalls, typer.Option(help="May the kernel call cuBLAS, cuDNN and the like?")
]
SeatsOption = Annotated[
    int, typer.Option(min=1, help="Kernels judged at a time on each device; only timing takes turns.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show a traceback when something goes wrong.")]

TeamOption = Annotated[
    str | None,
    typer.Option(
        metavar="expert|llm|hybrid|step",
        help="expert (without --model): built in. llm (with it): a model answers. hybrid: a model goes on "
        "from the expert's kernel. step: the run stops at every question, for egg next and egg reply.",
        rich_help_panel=MODEL,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The model of the llm team: claude-..., gpt-..., or a name your server knows; by role as in "
        "designer=NAME,coder=NAME.",
        rich_help_panel=MODEL,
    ),
]
BaseUrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="An OpenAI-compatible server (anthropic/NAME as --model: Anthropic's protocol).",
        rich_help_panel=MODEL,
    ),
]
KeyVariableOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The environment variable that holds the key; the key itself is kept nowhere.",
        rich_help_panel=MODEL,
    ),
]
TemperatureOption = Annotated[
    float | None,
    typer.Option(metavar="NUMBER", help="0 to 2; the endpoint's own where left out.", rich_help_panel=MODEL),
]

EffortOption = Annotated[
    str | None,
    typer.Option(
        metavar="EFFORT",
        help="How much the model reasons: low, medium, high, xhigh or max; by role as in "
        "designer=high,coder=low. Replies get room for it. The endpoint's own where left out.",
        rich_help_panel=MODEL,
    ),
]

WidthOption = Annotated[
    int,
    typer.Option(
        metavar="DRAFTS",
        help="Drafts of each first kernel and each structure, judged together: the fastest right one stays.",
        rich_help_panel=MODEL,
    ),
]

WithoutOption = Annotated[
    str | None,
    typer.Option(
        metavar="PART[,PART]",
        help="Leave parts out, for an experiment: docs/experiments.md has the parts.",
        rich_help_panel=OPTIONS,
    ),
]

StartOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="KERNEL",
        help="A kernel file of yours to begin with: judged first, then improved; expert: the best kernel of "
        "the built-in team's own run. The team writes one where left out.",
        rich_help_panel=OPTIONS,
    ),
]
RunTargetOption = Annotated[
    str | None,
    typer.Option(
        metavar="GPU",
        help="The GPU to write for, by name or as sm_90; this machine's where left out.",
        rich_help_panel=OPTIONS,
    ),
]
RunDeviceOption = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        help="Where kernels are judged: auto, cpu, cuda, cuda:N, or offline (egg pending, egg results).",
        rich_help_panel=OPTIONS,
    ),
]
RunPrecisionOption = Annotated[
    Precision, typer.Option(help="The arithmetic both sides are held to.", rich_help_panel=OPTIONS)
]
RunLibraryCallsOption = Annotated[
    LibraryCalls,
    typer.Option(help="May kernels call cuBLAS, cuDNN and the like?", rich_help_panel=OPTIONS),
]


def _skill_folders(panel: str | None) -> Any:
    """``--skills FOLDER``, of which there may be several, under ``panel`` of the help."""
    help = "A folder of skills beside the built-in ones, and before them by name; may be repeated."
    return typer.Option("--skills", metavar="FOLDER", help=help, rich_help_panel=panel)


SkillsOption = Annotated[list[Path] | None, _skill_folders(None)]
RunSkillsOption = Annotated[list[Path] | None, _skill_folders(OPTIONS)]
NoSkillsOption = Annotated[
    bool, typer.Option("--no-skills", help="Offer no expert skills at all.", rich_help_panel=OPTIONS)
]
LessonsOption = Annotated[
    Path | None,
    typer.Option(
        "--lessons",
        metavar="PATH",
        help="The store of what runs have learned; $XDG_DATA_HOME/egg/lessons.sqlite where left out.",
        rich_help_panel=OPTIONS,
    ),
]
NoLessonsOption = Annotated[
    bool, typer.Option("--no-lessons", help="Recall nothing and learn nothing.", rich_help_panel=OPTIONS)
]
SeedOption = Annotated[
    int, typer.Option(metavar="INTEGER", help="Of the search over tunables.", rich_help_panel=OPTIONS)
]

BudgetOption = Annotated[
    str,
    typer.Option(
        metavar="sketch|quick|standard|deep",
        help="How much is tried in each stage; sketch ends with the first kernel that is accepted.",
        rich_help_panel=LIMITS,
    ),
]
ReplyTokensOption = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        help="The longest reply to ask for, reasoning included; the budget's own where left out.",
        rich_help_panel=LIMITS,
    ),
]
MaxCostOption = Annotated[
    float | None,
    typer.Option(metavar="DOLLARS", help="End the search before it costs more.", rich_help_panel=LIMITS),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(metavar="TOKENS", help="End the search before it uses more.", rich_help_panel=LIMITS),
]
MaxStepsOption = Annotated[
    int | None, typer.Option(metavar="STEPS", help="Over all stages together.", rich_help_panel=LIMITS)
]
MaxMinutesOption = Annotated[
    float | None,
    typer.Option(
        metavar="MINUTES", help="Of answers and evaluations; a pause costs nothing.", rich_help_panel=LIMITS
    ),
]
