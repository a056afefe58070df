"""The commands that hand a result on: export it, bundle it, check a bundle, move it to another GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from egg.cli import judging, run_options
from egg.cli.errors import error_boundary, kept
from egg.cli.inputs import check_device, check_target, read_task
from egg.cli.lazy import add_commands
from egg.cli.options import DebugOption, DeviceOption, JsonOption, RunArgument, RunDeviceOption
from egg.cli.progress import busy, gate_shown
from egg.cli.render import clean, console, evaluation_view
from egg.cli.words import command
from egg.core.errors import UsageError
from egg.core.policy import Level, Policy
from egg.core.source import Candidate
from egg.core.stage import Stage

if TYPE_CHECKING:
    from egg.export.package import Claim

PANEL = "Hand a result on"


class Form(StrEnum):
    OP = "op"
    HUB = "hub"


def register(app: typer.Typer) -> None:
    add_commands(app, PANEL, {"export": export, "bundle": bundle, "verify": verify, "retarget": retarget})


def export(
    source: Annotated[Path, typer.Argument(metavar="RUN|KERNEL", help="A run's folder, or a kernel file.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write; new or empty.")],
    to: Annotated[
        Form, typer.Option("--to", help="op: an installable package. hub: a repository that kernels loads.")
    ] = Form.OP,
    task: Annotated[
        str | None, typer.Option(metavar="TASK", help="Of a kernel file: the task it was written for.")
    ] = None,
    level: Annotated[Level, typer.Option(help="How thoroughly a kernel file is judged first.")] = Level.FULL,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a kernel as a PyTorch operator that needs torch and triton only.

    A run's kernel was judged; a kernel file is judged first, and written only if it is accepted. Exit 0
    written, 1 the kernel file was rejected, 2 usage, 3 machine unable.
    """
    with error_boundary(debug=debug, as_json=as_json):
        claim = _claim(source, task, level, check_device(device), as_json)
        from egg.export.claims import seen_from_outside
        from egg.export.hub import write_repository
        from egg.export.package import write_package

        with busy(f"reading {clean(claim.task.name)}"):
            seen = seen_from_outside(claim.task)
        write = write_package if to is Form.OP else write_repository
        written = [str(path.relative_to(folder)) for path in write(claim, seen, folder)]
        operator = f"torch.ops.{claim.namespace}.{claim.package}"
        if as_json:
            data = {"schema": "egg.export/1", "folder": str(folder), "operator": operator, "files": written}
            print(json.dumps({**data, "kernel": claim.kernel.hash, "task": claim.task.hash}, indent=2))
        else:
            print(f"{operator} in {clean(str(folder))}: {', '.join(written)}")


def _claim(source: Path, task: str | None, level: Level, device: str, as_json: bool) -> Claim:
    """Of a run, as its log has it; of a kernel file, as the judge finds it now."""
    from egg.export.claims import claim_of_run
    from egg.export.package import Claim

    if source.is_dir():
        if task is not None:
            raise UsageError("--task has no effect: a run holds its task", "leave it out")
        return claim_of_run(source)
    kernel = Candidate.from_file(source)
    if task is None:
        raise UsageError("a kernel file does not hold its task", "name it with --task TASK")
    program = read_task(task)
    with gate_shown() as on_gate:
        evaluation = judging.evaluate(program, kernel, Policy(level=level), device=device, on_gate=on_gate)
    if not evaluation.accepted:
        if as_json:
            print(json.dumps(evaluation.to_json(), indent=2))
        else:
            console().print(evaluation_view(evaluation))
        raise typer.Exit(1)
    return Claim(program, kernel, evaluation)


def bundle(
    run: RunArgument,
    place: Annotated[Path, typer.Argument(metavar="FOLDER|ZIP", help="Where to write; new, or FILE.zip.")],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Pack what a stranger needs to repeat a run's claim: task, kernel, terms, evaluation, log, hashes.

    Exit 0 written, 2 where the run has no kernel or the place is taken, 3 machine unable.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.export.bundle import write_bundle

        digest = write_bundle(run, place)
        if as_json:
            print(json.dumps({"schema": "egg.bundled/1", "place": str(place), "digest": digest}, indent=2))
        else:
            print(f"{clean(str(place))}: digest {digest}; check it with `egg verify {clean(str(place))}`")


def verify(
    place: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A folder or a zip of egg bundle.")],
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Check a bundle's hashes, judge its kernel again on this machine, and list the differences.

    Exit 0 the claim holds here, 1 it does not, 2 the bundle is incomplete or was altered, 3 machine unable.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.export.bundle import read_bundle
        from egg.export.verdicts import holds, rows

        check_device(device)
        found = read_bundle(place)
        claim = found.claim
        with gate_shown() as on_gate:
            now = judging.evaluate(
                claim.task, claim.kernel, claim.evaluation.policy,
                device=device, target=found.target, on_gate=on_gate,
            )  # fmt: skip
        held, compared = holds(claim.evaluation, now), rows(claim.evaluation, now)
        if as_json:
            data = {"schema": "egg.verify/1", "holds": held, "digest": found.digest}
            table = [{"what": row.what, "claimed": row.claimed, "here": row.here} for row in compared]
            print(json.dumps({**data, "compared": table, "evaluation": now.to_json()}, indent=2))
        else:
            for row in compared:
                mark = " " if row.claimed == row.here else "*"
                print(f"{mark} {row.what}: claimed {clean(row.claimed)}; here {clean(row.here)}")
            print("the claim holds here" if held else "the claim does not hold here")
        raise typer.Exit(0 if held else 1)


def retarget(
    run: RunArgument,
    target: Annotated[str, typer.Option(metavar="GPU", help="The GPU to tune for, by name or as sm_90.")],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where the new run is kept.")] = None,
    device: RunDeviceOption = "auto",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Begin a run from another run's kernel that keeps its structure and tunes it for another GPU.

    Exit codes are those of optimize.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.runs import state_of
        from egg.cli.runs import begin_run, go_on, show_run
        from egg.export.claims import claim_of

        state = state_of(run)
        claim, old = claim_of(run, state), state.started.settings
        steps = {**old.budget.steps, Stage.STRUCTURE: 0}
        settings = replace(
            old,
            target=check_target(target),
            device=run_options.check_place(device),
            budget=replace(old.budget, steps=steps),
        )
        folder = begin_run(claim.task, settings, out, claim.kernel)
        with kept(command("resume", folder)):
            progress = go_on(folder)
        show_run(folder, progress, as_json)
