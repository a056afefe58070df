"""``egg profile``: the facts of a program, the time of a kernel, what limits it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from egg.cli.errors import error_boundary
from egg.cli.inputs import check_device, check_target, read_task
from egg.cli.options import DebugOption, DeviceOption, JsonOption, PrecisionOption, TaskArgument
from egg.cli.progress import busy
from egg.cli.render import clean, console
from egg.core.errors import UsageError
from egg.core.policy import Precision
from egg.core.source import Candidate, Task
from egg.core.stage import Stage

if TYPE_CHECKING:
    from egg.api.profiling import ProfileOptions, ProfileReport

PANEL = "Judge kernels"
STAGES = (Stage.STRUCTURE, Stage.MAPPING, Stage.TILING, Stage.MEMORY)


def register(app: typer.Typer) -> None:
    app.command("profile", rich_help_panel=PANEL)(profile)


def profile(
    task: TaskArgument,
    kernel: Annotated[
        Path | None,
        typer.Argument(
            metavar="KERNEL", help="A kernel file that defines ModelNew; the facts alone without."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="GPU",
            help="The GPU to look at it for, by name or as sm_90; this machine's where left out. "
            "One that is not here is predicted, not measured.",
        ),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = Precision.MATCH,
    counters: Annotated[
        bool,
        typer.Option("--counters/--no-counters", help="Read hardware counters where Nsight Compute can."),
    ] = True,
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="structure|mapping|tiling|memory",
            help="Read only the counters that matter in this stage, which is quicker.",
        ),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Write the roofline as a picture.")
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            "--code",
            metavar="NAME",
            help="Only the compiled code of this kernel: instructions by kind, then its hottest loop as "
            "machine code and PTX. NAME:2 is its second specialisation.",
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """What a program has to do at least; with a kernel: where its time goes, and what holds it back.

    Exit 0 done, 1 the kernel cannot be run, 2 usage, 3 machine unable.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.profiling import ProfileOptions, report_on
        from egg.hardware.calibration import default_folder

        program = read_task(task)
        candidate = Candidate.from_file(kernel) if kernel is not None else None
        terms = ProfileOptions(
            check_device(device),
            check_target(target),
            precision,
            counters,
            _stage(stage),
            default_folder(os.environ),
        )
        if code is not None:
            _show_code(program, candidate, code, terms, as_json)
            return
        with busy(f"looking at {clean(candidate.name if candidate is not None else program.name)}"):
            report = report_on(program, candidate, terms)
        if svg is not None and report.failure is None:
            _write_picture(svg, report)
        _show(report, as_json)
        if svg is not None and report.failure is None and not as_json:
            print(f"roofline -> {clean(str(svg))}")
        raise typer.Exit(1 if report.failure is not None else 0)


def _show_code(
    task: Task, candidate: Candidate | None, kernel: str, options: ProfileOptions, as_json: bool
) -> None:
    """The whole code as JSON, or a digest of it as text."""
    from egg.api.listing import SCHEMA, listing_of
    from egg.core.codec import to_json
    from egg.evaluator.offline.digest import digest

    if candidate is None:
        raise UsageError("--code needs a kernel file", "egg profile TASK.py KERNEL.py --code NAME")
    with busy(f"compiling {clean(candidate.name)}"):
        listing, gpu = listing_of(task, candidate, kernel, options)
    if as_json:
        print(json.dumps({"schema": SCHEMA, "target": gpu, **to_json(listing)}, indent=2))
        return
    print(clean(digest(listing, gpu)))


def _stage(name: str | None) -> Stage | None:
    if name is None:
        return None
    found = next((stage for stage in STAGES if stage.value == name), None)
    if found is None:
        raise UsageError(f"no counters for a stage {name!r}", f"one of {', '.join(s.value for s in STAGES)}")
    return found


def _show(report: ProfileReport, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
        return
    from egg.cli.profile_view import report_view

    screen = console()
    plain = not (sys.stdout.encoding or "").lower().startswith("utf")
    screen.print(report_view(report, screen.width, plain=plain))


def _write_picture(path: Path, report: ProfileReport) -> None:
    from egg.report.roofline import roofline
    from egg.report.roofline_svg import svg

    chart = roofline(report.profile, report.row, report.gpu, report.workload)
    try:
        path.write_text(svg(chart), encoding="utf-8")
    except OSError as reason:
        raise UsageError(f"cannot write {path}: {reason.strerror}", "choose another --svg") from None
