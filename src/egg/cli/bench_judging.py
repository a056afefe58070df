"""Kernels that another system wrote, in KernelBench's layout: judged by ours, and scored as a bench."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from egg.cli.bench_options import (
    BENCHES,
    CareOption,
    IdsOption,
    LevelsOption,
    LimitOption,
    SuiteArgument,
    chosen_suite,
    typed,
)
from egg.cli.benches import show_scores
from egg.cli.errors import error_boundary, kept
from egg.cli.inputs import check_device, check_target
from egg.cli.options import (
    OPTIONS,
    DebugOption,
    DeviceOption,
    JsonOption,
    RunLibraryCallsOption,
    RunPrecisionOption,
    SeatsOption,
)
from egg.cli.render import clean, console
from egg.cli.words import plural
from egg.core.policy import Level, LibraryCalls, Policy, Precision


def register(bench: typer.Typer) -> None:
    bench.command("judge")(judge)


def judge(
    ctx: typer.Context,
    suite: SuiteArgument,
    kernels: Annotated[
        Path,
        typer.Option(
            "--kernels",
            metavar="DIR",
            help="A folder of KernelBench's runs: level_1_problem_2_sample_0_kernel.py, ...",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where rows go; egg-bench/<DIR> where left out. One that is there goes on.",
        ),
    ] = None,
    sample: Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Which sample of each problem.")] = 0,
    levels: LevelsOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    level: CareOption = Level.FULL,
    precision: RunPrecisionOption = Precision.MATCH,
    library_calls: RunLibraryCallsOption = LibraryCalls.ALLOW,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="GPU",
            help="Without a GPU: the one to compile for, by name or as sm_90.",
            rich_help_panel=OPTIONS,
        ),
    ] = None,
    device: DeviceOption = "auto",
    seats: SeatsOption = 1,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Judge kernels that another system wrote, in KernelBench's layout, and score them as a bench.

    Exit 0 when every task has a row, 3 when the machine failed some; the same command goes on.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.benching.kernels import judge_kernels
        from egg.cli.bench_live import bench_shown

        chosen = chosen_suite(suite, levels, ids, limit)
        place = out or BENCHES / kernels.resolve().name
        go_on = typed(ctx)
        title = (
            f"{clean(kernels.name)}: kernels for {plural(len(chosen.tasks), 'task')} of {clean(chosen.name)}"
        )
        with kept(go_on), bench_shown(title, place) as on_news:
            judged = judge_kernels(
                chosen,
                kernels,
                Policy(precision, library_calls, level),
                place,
                device=check_device(device),
                target=check_target(target),
                sample=sample,
                seats=seats,
                on_news=on_news,
            )
        if judged.without_task:
            console(sys.stderr).print(f"kernels for other tasks: {clean(', '.join(judged.without_task))}")
        show_scores(place, as_json)
        raise typer.Exit(3 if judged.unable else 0)
