"""The commands of the judge: parsing and printing only, the work is imported when it is called."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from egg.cli import judging
from egg.cli.errors import error_boundary
from egg.cli.inputs import check_device, check_target, read_task
from egg.cli.lazy import add_commands
from egg.cli.options import (
    DebugOption,
    DeviceOption,
    JsonOption,
    LibraryCallsOption,
    PrecisionOption,
    SeatsOption,
    TaskArgument,
)
from egg.cli.plans import plan_view, write_plan
from egg.cli.progress import busy, gate_shown, tell
from egg.cli.render import audit_view, clean, console, evaluation_view, findings_view
from egg.core.codec import to_json
from egg.core.errors import UsageError
from egg.core.policy import Host, Level, LibraryCalls, Policy, Precision
from egg.core.source import Candidate

PANEL = "Judge kernels"


def register(app: typer.Typer) -> None:
    add_commands(
        app,
        PANEL,
        {
            "eval": eval_command,
            "eval-batch": eval_batch,
            "record": record_command,
            "audit": audit_command,
            "doctor": doctor_command,
        },
    )


def eval_command(
    task: TaskArgument,
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="A kernel file that defines ModelNew.")],
    level: Annotated[Level, typer.Option(help="How thorough the evaluation is.")] = Level.FULL,
    precision: PrecisionOption = Precision.MATCH,
    library_calls: LibraryCallsOption = LibraryCalls.ALLOW,
    device: DeviceOption = "auto",
    target: Annotated[
        str | None, typer.Option(help="Without a GPU: the one to compile for, by name or as sm_90.")
    ] = None,
    host: Annotated[
        Host, typer.Option(help="Whose host code is judged: the author's, or a plan recorded of it.")
    ] = Host.AUTHOR,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --host recorded: where the plan is written [KERNEL.plan.py]."
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Judge one kernel. Exit 0 accepted, 1 rejected, 2 usage, 3 machine unable."""
    with error_boundary(debug=debug, as_json=as_json):
        if plan is not None and host is not Host.RECORDED:
            raise UsageError("--plan has no effect: no plan is recorded", "add --host recorded")
        judged_task, candidate = read_task(task), Candidate.from_file(kernel)
        policy = Policy(precision=precision, library_calls=library_calls, level=level, host=host)
        check_device(device)
        check_target(target)
        with gate_shown() as on_gate:
            evaluation = judging.evaluate(
                judged_task, candidate, policy, device=device, target=target, on_gate=on_gate,
                on_printed=_note_printed,
            )  # fmt: skip
        if evaluation.recorded is not None:
            written = write_plan(plan or kernel.with_suffix(".plan.py"), evaluation.recorded)
            evaluation = replace(evaluation, recorded=written)
        _show(evaluation.to_json() if as_json else None, evaluation_view(evaluation))
        raise typer.Exit(0 if evaluation.accepted else 1)


def eval_batch(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS.jsonl", help="One job a line.")],
    out: Annotated[Path, typer.Option("--out", help="Results, one a line; continued where it exists.")],
    device: DeviceOption = "auto",
    seats: SeatsOption = 1,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Judge many kernels, resumably. Exit 0 when every job has a verdict, 3 when the machine failed some."""
    with error_boundary(debug=debug, as_json=as_json):
        check_device(device)
        from egg.evaluator.judge.batch import exit_code, run_batch

        counts = run_batch(jobs, out, device, tell, seats)
        if as_json:
            print(json.dumps({"jobs": counts.total(), **counts}))
        else:
            print(", ".join(f"{count} {ended}" for ended, count in counts.items() if count), "->", out)
        raise typer.Exit(exit_code(counts))


def record_command(
    task: TaskArgument,
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="A kernel file that defines ModelNew.")],
    out: Annotated[Path, typer.Option("--out", metavar="PLAN", help="The plan file to write.")],
    precision: PrecisionOption = Precision.MATCH,
    device: DeviceOption = "auto",
    target: Annotated[
        str | None, typer.Option(help="Without a GPU: the one to record for, by name or as sm_90.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Record a kernel's call as a plan file. Exit 0 written, 1 not recordable, 2 usage, 3 machine unable."""
    with error_boundary(debug=debug, as_json=as_json):
        recorded_task, candidate = read_task(task), Candidate.from_file(kernel)
        check_device(device)
        check_target(target)
        with busy("recording"):
            answer = judging.recorded(
                recorded_task, candidate, precision, device=device, target=target, on_printed=_note_printed
            )
        if answer.plan is not None:
            answer = replace(answer, plan=write_plan(out, answer.plan))
        data = {"schema": "egg.plan/1", "task_sha256": recorded_task.sha256,
                "candidate_sha256": candidate.sha256, **to_json(answer)}  # fmt: skip
        _show(data if as_json else None, plan_view(answer))
        raise typer.Exit(0 if answer.plan is not None else 1)


def audit_command(
    task: TaskArgument,
    precision: PrecisionOption = Precision.MATCH,
    device: DeviceOption = "auto",
    rescaled: Annotated[
        bool | None,
        typer.Option("--rescaled/--full-size", help="Shrink the task first; the default without a GPU."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Is the task itself sound, or do trivial answers pass it? Exit 0 sound, 1 degenerate."""
    with error_boundary(debug=debug, as_json=as_json):
        audited = read_task(task)
        check_device(device)
        from egg.api import apart
        from egg.evaluator.process.machine import choose_device
        from egg.evaluator.task.audit import Audit

        where = choose_device(device)
        small = where.type == "cpu" if rescaled is None else rescaled
        report = Audit.from_json(apart.audited(audited, precision, str(where), rescaled=small))
        data = {**report.to_json(), "degenerate": report.degenerate, "warnings": report.warnings}
        _show(data if as_json else None, audit_view(report))
        raise typer.Exit(1 if report.degenerate else 0)


def doctor_command(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure the GPU's real rates, and keep them for predictions.")
    ] = False,
    device: Annotated[str, typer.Option(help="The GPU to calibrate: auto, cuda or cuda:N.")] = "auto",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Can this machine judge kernels, and what would fix it? Exit 0 when nothing failed, 3 otherwise."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg import doctor

        if calibrate:
            from egg.hardware.calibration import default_folder

            check_device(device)
            with busy("measuring the GPU"):
                measured = doctor.calibrate(default_folder(os.environ), device)
            _show(measured.to_json() if as_json else None, findings_view(measured.findings))
            raise typer.Exit(0)
        findings = doctor.diagnose(doctor.gather())
        able = not doctor.failed(findings)
        _show(
            {"schema": "egg.doctor/1", "able": able, "findings": [f.to_json() for f in findings]}
            if as_json
            else None,
            findings_view(findings),
        )
        raise typer.Exit(0 if able else 3)


def _note_printed(text: str) -> None:
    """The output of a task, labelled, on standard error: standard output holds the result alone."""
    last = " | ".join(clean(line)[:200] for line in text.strip().splitlines()[-3:])
    console(sys.stderr).print(f"note: the task's process printed: {last}", style="dim", soft_wrap=True)


def _show(data: Any, view: Any) -> None:
    """JSON where there is some, the view otherwise."""
    if data is not None:
        print(json.dumps(data, indent=2))
    else:
        console().print(view)
