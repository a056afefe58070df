"""The commands of runs: begin, continue, replay and list them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egg.cli import run_options
from egg.cli.errors import error_boundary, kept
from egg.cli.inputs import check_target, read_task
from egg.cli.lazy import add_commands
from egg.cli.options import (
    BaseUrlOption,
    BudgetOption,
    DebugOption,
    EffortOption,
    JsonOption,
    KeyVariableOption,
    LessonsOption,
    MaxCostOption,
    MaxMinutesOption,
    MaxStepsOption,
    MaxTokensOption,
    ModelOption,
    NoLessonsOption,
    NoSkillsOption,
    ReplyTokensOption,
    RunArgument,
    RunDeviceOption,
    RunLibraryCallsOption,
    RunPrecisionOption,
    RunSkillsOption,
    RunTargetOption,
    SeedOption,
    StartOption,
    TaskArgument,
    TeamOption,
    TemperatureOption,
    WidthOption,
    WithoutOption,
)
from egg.cli.progress import busy
from egg.cli.render import clean, console
from egg.cli.summary import exit_code, list_row, list_view, run_json, run_view, steps_view
from egg.cli.words import command, plural
from egg.core.errors import EggError, UsageError
from egg.core.policy import LibraryCalls, Precision
from egg.core.settings import Settings
from egg.core.source import Candidate

if TYPE_CHECKING:
    from egg.api.runs import Progress
    from egg.bench.rows import Row as BenchRow
    from egg.core.source import Task
    from egg.engine.state import RunState

PANEL = "Optimize programs"


def register(app: typer.Typer) -> None:
    add_commands(app, PANEL, {"optimize": optimize, "resume": resume, "replay": replay, "runs": runs})


def optimize(
    task: TaskArgument,
    start: StartOption = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="FUNCTION",
            help="TASK is a module of a program, PACKAGE.MODULE:NAME or FILE.py:NAME; this function "
            "beside it returns the arguments of one call.",
        ),
    ] = None,
    team: TeamOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    key_variable: KeyVariableOption = None,
    temperature: TemperatureOption = None,
    effort: EffortOption = None,
    width: WidthOption = 1,
    without: WithoutOption = None,
    target: RunTargetOption = None,
    device: RunDeviceOption = "auto",
    precision: RunPrecisionOption = Precision.MATCH,
    library_calls: RunLibraryCallsOption = LibraryCalls.ALLOW,
    skills: RunSkillsOption = None,
    no_skills: NoSkillsOption = False,
    lessons: LessonsOption = None,
    no_lessons: NoLessonsOption = False,
    seed: SeedOption = 0,
    budget: BudgetOption = "standard",
    reply_tokens: ReplyTokensOption = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_steps: MaxStepsOption = None,
    max_minutes: MaxMinutesOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where the run is kept; egg-runs/<name> where left out."),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Find a faster program: design its structure, tune it, judge every change.

    Exit 0 with a kernel (or when the run waits for a reply or a verdict), 1 when the reference is
    returned, 2 usage, 3 machine or endpoint unable, 130 interrupted.
    """
    with error_boundary(debug=debug, as_json=as_json):
        program = _program(task, inputs)
        team = run_options.check_team(team, model)
        team, begins, first = run_options.start_of(team, start)
        choice, by_role = run_options.models_by_role(team, model, base_url, key_variable, temperature)
        settings = Settings(
            team=team,
            budget=run_options.budget(budget, reply_tokens),
            precision=precision,
            library_calls=library_calls,
            device=run_options.check_place(device),
            target=check_target(target),
            caps=run_options.caps(max_cost, max_tokens, max_steps, max_minutes),
            model=choice,
            models=by_role,
            efforts=run_options.efforts(team, effort),
            seed=run_options.check_seed(seed),
            first=begins,
            width=run_options.width(team, width),
            without=run_options.without(team, without, width),
            skills=run_options.skill_folders(skills or [], no_skills, os.environ),
            lessons=run_options.lesson_store(lessons, no_lessons, os.environ),
        )
        folder = begin_run(program, settings, out, first)
        with kept(command("resume", folder)):
            progress = go_on(folder)
        show_run(folder, progress, as_json)


def resume(run: RunArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Continue a run where it stopped. Exit codes are those of optimize."""
    with error_boundary(debug=debug, as_json=as_json):
        with kept(command("resume", run)):
            progress = go_on(run)
        show_run(run, progress, as_json)


def replay(run: RunArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Repeat every decision from the log; no model is called, nothing is judged.

    Exit 0 when the log is reproduced (an unfinished one to its end), 1 when a decision differs.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api import runs as api
        from egg.cli.live import LastState
        from egg.engine.journal import Diverged

        seen = LastState()
        try:
            progress, difference = api.replay(run, seen), ""
        except Diverged as reason:
            progress, difference = api.Progress(seen.state, None), reason.message
        ended = progress.state.closed is not None
        if as_json:
            outcome = {"reproduced": not difference, "difference": difference or None, "events": seen.count}
            print(
                json.dumps({**run_json(run, progress), **outcome, "story": _story(progress.state)}, indent=2)
            )
        else:
            console().print(steps_view(progress.state.steps), "")
            if ended:
                console().print(run_view(run, progress), "")
            print(_replayed(seen.count, difference, ended))
        raise typer.Exit(1 if difference else 0)


def runs(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="Where the runs are; egg-runs where left out.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """List the runs in a folder: state, best kernel so far, cost."""
    with error_boundary(debug=debug, as_json=as_json):
        place = folder or run_options.RUNS
        if folder is not None and not folder.is_dir():
            raise UsageError(f"no such folder: {folder}", "give the folder that holds the runs")
        found = _runs_in(place)
        bench = _bench_rows(found)
        rows = [_row(folder, bench) for folder in found]
        if as_json:
            shown = [{k: v for k, v in row.items() if not k.endswith("_shown")} for row in rows]
            print(json.dumps({"runs": shown}, indent=2))
        elif rows:
            console().print(list_view(rows))
        else:
            print(f"no runs in {clean(str(place))}")


def show_run(folder: Path, progress: Progress, as_json: bool) -> None:
    """The result on standard output, and the exit code that goes with it."""
    if as_json:
        print(json.dumps(run_json(folder, progress), indent=2))
    else:
        console().print(run_view(folder, progress))
    raise typer.Exit(exit_code(progress.state))


def _program(task: str, inputs: str | None) -> Task:
    """A task file, or a module of a person's program at the arguments that a function returns."""
    if inputs is None:
        return read_task(task)
    with busy(f"capturing {clean(task)}"):
        from egg.api.named import named_task

        return named_task(task, inputs)


def begin_run(task: Task, settings: Settings, out: Path | None, first: Candidate | None = None) -> Path:
    """A new run in ``out``, or under a name of its own; ``first`` is the kernel file to begin with."""
    from egg.api.optimizing import begin, environment, run_name

    name = run_name(task)
    folder = run_options.check_new(out if out is not None else run_options.RUNS / name)
    with busy(f"reading {clean(task.name)}"):
        begin(task, settings, folder, environment(), name, first)
    return folder


def go_on(folder: Path) -> Progress:
    """Go on with a run until it ends or has to wait, shown as it goes."""
    from egg.api import runs as api
    from egg.api.optimizing import carry_on, environment
    from egg.cli.live import watching

    state = api.state_of(folder)
    if state.closed is not None:
        api.project(folder)
        return api.Progress(state, None)
    with watching(folder) as watcher:
        return carry_on(folder, state, watcher, environment())


def _replayed(events: int, difference: str, ended: bool) -> str:
    if difference:
        return f"diverged after {plural(events, 'event')}: {clean(difference)}"
    where = "" if ended else "; the run is unfinished, and its log ends here"
    return f"reproduced {plural(events, 'event')}, no model called{where}"


def _story(state: RunState) -> list[dict[str, Any]]:
    return [
        {
            "step": step.number,
            "stage": step.stage.value,
            "category": step.plan.category.value if step.plan is not None else None,
            "predicted": step.plan.prediction.speedup if step.plan is not None else None,
            "measured": step.gain.ratio if step.gain is not None and step.gain.measured else None,
            "estimated": step.gain.ratio if step.gain is not None and not step.gain.measured else None,
            "decision": step.decision.value,
            "reason": step.reason,
        }
        for step in state.steps
    ]


def _runs_in(place: Path) -> list[Path]:
    """The folder itself where it is a run, else every run in it, by name; those of a bench lie one deeper."""
    from egg.api.benching.folder import MANIFEST, RUNS
    from egg.engine.log import LOG

    if (place / LOG).is_file():
        return [place]
    inside = place / RUNS if (place / MANIFEST).is_file() else place
    return sorted(path.parent for path in inside.glob(f"*/{LOG}") if path.is_file())


def _bench_rows(folders: list[Path]) -> dict[Path, BenchRow]:
    """The bench row of each run that has one, by its folder."""
    from egg.api.benching.folder import MANIFEST, ROWS, RUNS
    from egg.bench.row_files import read_rows

    holders = {folder.resolve().parent for folder in folders}
    benches = [
        holder.parent
        for holder in holders
        if holder.name == RUNS and all((holder.parent / name).is_file() for name in (MANIFEST, ROWS))
    ]
    return {bench / row.run: row for bench in benches for row in read_rows(bench / ROWS) if row.run}


def _row(folder: Path, bench: dict[Path, BenchRow]) -> dict[str, Any]:
    from egg.api.runs import look

    try:
        return list_row(folder, look(folder), bench.get(folder.resolve()))
    except EggError as error:
        return {"folder": str(folder), "error": error.message}
