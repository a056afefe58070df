"""Many tasks at once: ``egg bench``, and how its verbs share that name with a suite.

``egg bench SUITE`` runs it, ``egg bench compare A B`` and its like do something else: the first word decides.
What is no verb is a suite, so a suite that is called like a verb is written as a path, ``./compare``.
"""

from __future__ import annotations

import difflib
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperGroup

from egg.cli import bench_judging, benches, run_options
from egg.cli.bench_options import (
    BENCHES,
    HOW,
    WORDS,
    BenchLessonsOption,
    BenchTeamOption,
    CareOption,
    IdsOption,
    LevelsOption,
    LimitOption,
    OutOption,
    SuiteArgument,
    WorkersOption,
    chosen_suite,
    typed,
)
from egg.cli.bench_samples import sample_places, show_samples
from egg.cli.errors import INTERRUPTED, TERMINATED, Interrupted, error_boundary, kept
from egg.cli.inputs import check_device, check_target
from egg.cli.lazy import command_group
from egg.cli.options import (
    LIMITS,
    OPTIONS,
    BaseUrlOption,
    BudgetOption,
    DebugOption,
    EffortOption,
    JsonOption,
    KeyVariableOption,
    MaxCostOption,
    MaxMinutesOption,
    MaxStepsOption,
    MaxTokensOption,
    ModelOption,
    NoSkillsOption,
    ReplyTokensOption,
    RunLibraryCallsOption,
    RunPrecisionOption,
    RunSkillsOption,
    RunTargetOption,
    SeedOption,
    TemperatureOption,
    WidthOption,
    WithoutOption,
)
from egg.cli.render import clean, console
from egg.cli.tables import pairs
from egg.cli.words import command, plural
from egg.core.policy import Level, LibraryCalls, Precision
from egg.core.settings import Settings

if TYPE_CHECKING:
    from egg.api.benching.bench import BenchResult
    from egg.bench.suites import Suite
    from egg.engine.ray_pool import RayPool

PANEL = "Optimize programs"
RUN = "run"
RESULT = "egg.bench-result/1"


class SuiteOrVerb(TyperGroup):
    """What is no verb is a suite to run; the help is of running one, with the verbs below."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        if args and args[0] not in self.commands:
            if any(word in ctx.help_option_names for word in args):
                args = [ctx.help_option_names[0]]
            else:
                self._refuse_misspelt(ctx, args[0])
                args = [RUN, *args]
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        running = self.commands[RUN]
        shown = TyperGroup(
            name=self.name,
            help=running.help,
            params=running.get_params(ctx),
            commands={name: verb for name, verb in self.commands.items() if name != RUN},
            rich_markup_mode=self.rich_markup_mode,
            subcommand_metavar="",
            add_help_option=False,
        )
        shown.format_help(ctx, formatter)

    def _refuse_misspelt(self, ctx: Any, word: str) -> None:
        verbs = [name for name in self.commands if name != RUN]
        close = difflib.get_close_matches(word, verbs, n=1, cutoff=0.75)
        if close and not Path(word).exists():
            ctx.fail(f"no such suite: {word}; did you mean egg bench {close[0]}?")


bench = command_group(
    "bench", "Run a whole suite of tasks and score it; compare, export and judge benches.", cls=SuiteOrVerb
)


def register(app: typer.Typer) -> None:
    app.add_typer(bench, rich_help_panel=PANEL)
    benches.register(bench)
    bench_judging.register(bench)


@bench.command(RUN, hidden=True)
def run(
    ctx: typer.Context,
    suite: SuiteArgument,
    levels: LevelsOption = None,
    ids: IdsOption = None,
    limit: LimitOption = None,
    out: OutOption = None,
    workers: WorkersOption = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Judge on all GPUs of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT.",
            rich_help_panel=HOW,
        ),
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Run the suite N times, with seeds one apart: pass@k and the spread over samples.",
            rich_help_panel=HOW,
        ),
    ] = 1,
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Also take up again what a fault cut short.", rich_help_panel=HOW),
    ] = False,
    task_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES", help="Give a task up after so long, whatever it is at.", rich_help_panel=HOW
        ),
    ] = None,
    team: BenchTeamOption = None,
    model: ModelOption = None,
    base_url: BaseUrlOption = None,
    key_variable: KeyVariableOption = None,
    temperature: TemperatureOption = None,
    effort: EffortOption = None,
    width: WidthOption = 1,
    without: WithoutOption = None,
    target: RunTargetOption = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="Where kernels are judged: auto (all GPUs), cpu, cuda or cuda:N.",
            rich_help_panel=OPTIONS,
        ),
    ] = "auto",
    precision: RunPrecisionOption = Precision.MATCH,
    library_calls: RunLibraryCallsOption = LibraryCalls.ALLOW,
    level: CareOption = Level.FULL,
    skills: RunSkillsOption = None,
    no_skills: NoSkillsOption = False,
    lessons: BenchLessonsOption = None,
    seed: SeedOption = 0,
    budget: BudgetOption = "standard",
    reply_tokens: ReplyTokensOption = None,
    max_total_cost: Annotated[
        float | None,
        typer.Option(
            metavar="DOLLARS",
            help="Of the whole bench: begin no other task once it has cost so much.",
            rich_help_panel=LIMITS,
        ),
    ] = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_steps: MaxStepsOption = None,
    max_minutes: MaxMinutesOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run every task of a suite, and score the results.

    Each task is a run as egg optimize makes it, under limits of its own, and
    ends in a row, whatever becomes of it. Ctrl-C is safe: the same command goes
    on. A suite that is called like a command below is given as ./compare.

    Exit 0 when every task has a row, 1 when --max-total-cost left some out,
    2 usage, 3 when the machine failed some, 130 interrupted.
    """
    with error_boundary(debug=debug, as_json=as_json):
        team = run_options.check_team(team, model)
        choice, by_role = run_options.models_by_role(team, model, base_url, key_variable, temperature)
        settings = Settings(
            team=team,
            budget=run_options.budget(budget, reply_tokens),
            precision=precision,
            library_calls=library_calls,
            device=check_device(device),
            target=check_target(target),
            caps=run_options.caps(max_cost, max_tokens, max_steps, max_minutes),
            model=choice,
            models=by_role,
            efforts=run_options.efforts(team, effort),
            width=run_options.width(team, width),
            without=run_options.without(team, without, width),
            seed=run_options.check_seed(seed),
            skills=run_options.skill_folders(skills or [], no_skills, os.environ),
            lessons=run_options.lesson_store(lessons, lessons is None, os.environ),
        )
        run_options.check_limit("--task-minutes", task_minutes, "as in --task-minutes 30")
        run_options.check_limit(
            "--max-total-cost", max_total_cost, "in US dollars, as in --max-total-cost 50"
        )
        chosen = chosen_suite(suite, levels, ids, limit)
        place = out or BENCHES / chosen.name
        go_on = typed(ctx)
        done: list[BenchResult] = []
        for number, (where, seeded) in enumerate(sample_places(place, settings, samples), 1):
            left = max_total_cost
            if left is not None:
                left -= sum(row.spent.money for result in done for row in result.rows)
            with kept(go_on):
                result, stopped_by = _run(
                    chosen, seeded, level, where, workers, ray, retry, task_minutes, left
                )
            if result.interrupted or result.over_cost or number == samples == 1:
                show_bench(result, where, go_on, as_json, stopped_by)
            done.append(result)
        show_samples(done, place, as_json, result_json)


def _run(
    suite: Suite,
    settings: Settings,
    level: Level,
    place: Path,
    workers: int | None,
    ray: str | None,
    retry: bool,
    task_minutes: float | None,
    max_cost: float | None,
) -> tuple[BenchResult, int | None]:
    """The bench as it ended, and the signal that stopped it, if one did."""
    from egg.api.benching.bench import default_workers, run_bench
    from egg.api.benching.options import BenchOptions
    from egg.cli.bench_live import bench_shown, stop_shown

    title = f"{clean(suite.name)}: {plural(len(suite.tasks), 'task')}, {_players(settings)}"
    with (
        bench_shown(title, place) as view,
        _pool(ray, settings.device, view.note) as pool,
        stop_shown(view) as signals,
    ):
        own = default_workers(settings.device) if pool is None else pool_workers(pool.judges)
        result = run_bench(
            suite,
            BenchOptions(settings, level),
            place,
            workers=workers or own,
            environ=os.environ,
            pool=pool,
            retry=retry,
            task_seconds=task_minutes and task_minutes * 60,
            max_cost=max_cost,
            on_news=view,
        )
    return result, signals[0] if signals else None


@contextmanager
def _pool(address: str | None, device: str, on_note: Callable[[str], None]) -> Iterator[RayPool | None]:
    """The judges of a cluster; ``None`` where this machine judges."""
    if address is None:
        yield None
        return
    from egg.engine.ray_pool import RayPool

    with closing(RayPool(address, device, on_note=on_note)) as pool:
        yield pool


def pool_workers(judges: int) -> int:
    """Tasks in flight for so many judges elsewhere: while one's kernel is judged, another's is written.

    Kernels are written here, so there are no more than this machine has cores."""
    return max(1, min(2 * judges, len(os.sched_getaffinity(0))))


def _players(settings: Settings) -> str:
    who = f"{settings.team} ({clean(settings.model.name)})" if settings.model is not None else settings.team
    return f"team {clean(who)}, budget {settings.budget.name}, precision {settings.precision.value}"


# -- the end of a bench ------------------------------------------------------------------------------


def show_bench(result: BenchResult, place: Path, go_on: str, as_json: bool, stopped_by: int | None) -> None:
    """The scores on standard output, where everything is, and the exit code that goes with it."""
    if result.interrupted:
        done = f"{len(result.rows) - len(result.missing):,} of {plural(len(result.rows), 'task')} have a row"
        word, code = (
            ("terminated", TERMINATED) if stopped_by == signal.SIGTERM else ("interrupted", INTERRUPTED)
        )
        hint = f"the scores so far: {command('bench score', place)}"
        raise Interrupted(f"{word}, {done}; go on with: {go_on}", hint, code)
    if as_json:
        print(json.dumps(result_json(result), indent=2))
    else:
        from egg.cli.bench_view import bench_view
        from egg.report.bench_report import bench_report

        console().print(bench_view(bench_report(result.manifest.suite, result.rows)), "", _places(place))
        if result.failed:
            again = f"{plural(len(result.failed), 'task')} cut short by the machine or a fault; again with"
            print(f"\n{again}:\n  {clean(go_on)}{'' if '--retry' in go_on else ' --retry'}")
        if result.over_cost:
            why = f"not every task was begun: {result.over_cost}"
            print(f"\n{why}; the same command with a higher --max-total-cost goes on")
    raise typer.Exit(3 if result.failed else 1 if result.over_cost else 0)


def result_json(result: BenchResult) -> dict[str, Any]:
    from egg.bench.scores import score

    return {
        "schema": RESULT,
        "folder": str(result.folder),
        "suite": result.manifest.suite,
        "suite_hash": result.manifest.hash,
        "tasks": len(result.rows),
        "missing": list(result.missing),
        "cut_short": list(result.failed),
        "over_cost": result.over_cost,
        "scores": score(result.rows).to_json(),
    }


def _places(folder: Path) -> Any:
    from egg.api.benching.folder import KERNELS, ROWS, RUNS

    rows = [("rows", clean(str(folder / ROWS))), ("kernels", clean(str(folder / KERNELS)))]
    rows += [("runs", clean(str(folder / RUNS)))]
    return pairs([*rows, ("page", Text(command("report", folder), no_wrap=True, overflow="ignore"))])
