"""Runs on the terminal: the steps as a table, the verdict with its reasons, many runs as a list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from egg.cli.render import clean
from egg.cli.tables import pairs, table
from egg.cli.words import (
    against,
    brief_speed,
    duration,
    measured,
    money,
    one_line,
    plural,
    predicted,
    speed,
    times,
)
from egg.core.step import Decision, Step

if TYPE_CHECKING:
    from egg.api.runs import Progress
    from egg.bench.rows import Row
    from egg.engine.state import RunState

_DECISION_STYLE = {Decision.PROMOTED: "green", Decision.FAILED: "red", Decision.UNUSABLE: "red"}
_VERDICT_STYLE = {"faster": "bold green", "unmeasured": "bold cyan", "reference": "bold yellow"}


def exit_code(state: RunState) -> int:
    """0: a kernel, or the run waits for a reply or a verdict. 1: the reference is returned."""
    return 1 if state.closed is not None and state.closed.verdict == "reference" else 0


def run_json(folder: Path, progress: Progress) -> dict[str, Any]:
    """The result as far as it goes, for programs."""
    from egg.api.offline import open_jobs, waits_for
    from egg.api.result import summary

    waiting = {"waiting": waits_for(progress), "jobs": len(open_jobs(progress))}
    return {**summary(progress.state), "folder": str(folder), **waiting}


def run_view(folder: Path, progress: Progress) -> RenderableType:
    """The end of a run, or where it stands and what it waits for."""
    state = progress.state
    parts: list[RenderableType] = [_headline(state)]
    if state.closed is not None and state.closed.candidate is not None:
        parts.append(_opponents(state, state.closed.candidate))
    parts.append("")
    if state.handoffs:
        parts += [_stages(state), ""]
    return Group(*parts, _facts(folder, progress), *_ways_on(folder, progress))


def _headline(state: RunState) -> Text:
    task = clean(state.started.task.name)
    closed = state.closed
    if closed is None:
        best = state.best_kernel
        line = Text.assemble((" OPEN ", "reverse bold cyan"), f"  {task}  ")
        return line.append(f"best so far: {speed(best.score)}" if best else "no accepted kernel yet")
    style = _VERDICT_STYLE.get(closed.verdict, "bold")
    line = Text.assemble((f" {clean(closed.verdict).upper()} ", f"reverse {style}"), (f"  {task}  ", "bold"))
    returned = "the reference is returned: " if closed.candidate is None else ""
    return line.append(returned + one_line(closed.reason, 1000))


def _opponents(state: RunState, winner: str) -> RenderableType:
    """The winner against everything it was timed with, each with its interval."""
    kernel = state.kernels[winner]
    rows = [(f"over {clean(b.name)}", times(b.speedup)) for b in against(kernel.evaluation)]
    shown = [("best kernel", f"{clean(winner)}, {kernel.score.milliseconds.median:.4g} ms"), *rows]
    if not rows:
        shown = [("best kernel", f"{clean(winner)}, {speed(kernel.score)}")]
    return Padding(pairs(shown), (1, 0, 0, 0))


def _stages(state: RunState) -> RenderableType:
    from egg.api.result import stage_gains
    from egg.report.run_story import stage_ending

    rows = table("stage", "steps", "promoted", "gained", "ended because")
    for row in stage_gains(state):
        gained = f"{row.ratio:.2f}x" if row.ratio is not None else "-"
        last = next(reversed(state.steps_in(row.stage)), None)
        ended = one_line(stage_ending(row.ended, last))
        rows.add_row(row.stage.value, str(row.steps), str(row.promoted), gained, ended)
    return rows


def _facts(folder: Path, progress: Progress) -> RenderableType:
    state = progress.state
    rows: list[tuple[str, str]] = []
    if state.closed is not None:
        rows.append(("stopped", one_line(state.closed.stopped)))
    elif progress.waiting is not None:
        from egg.api.offline import waiting_words

        rows.append(("waiting", one_line(waiting_words(progress))))
    rows.append(("used", used(state)))
    if state.closed is not None:
        rows.append(("kernel", clean(str(folder / "kernel.py"))))
    rows.append(("result", clean(str(folder / "result.json"))))
    rows.append(("log", clean(str(folder / "events.jsonl"))))
    return pairs(rows)


def _ways_on(folder: Path, progress: Progress) -> list[Text]:
    """Commands to copy: one a line, never broken."""
    from egg.api.offline import ways_on

    ways = [Text(f"  {clean(way)}", no_wrap=True, overflow="ignore") for way in ways_on(progress, folder)]
    return [Text("\ngo on with", style="bold"), *ways] if ways else []


def used(state: RunState) -> str:
    ledger = state.ledger
    parts = [plural(ledger.evaluations, "evaluation"), f"{duration(ledger.seconds)} of work"]
    if state.started.settings.model is not None:
        spent = (plural(ledger.calls, "call"), plural(ledger.usage.total, "token"), money(ledger))
        parts = [", ".join(spent), *parts]
    elif ledger.calls:
        parts = ["1 reply" if ledger.calls == 1 else f"{ledger.calls:,} replies", *parts]
    return "; ".join(parts)


def steps_view(steps: Sequence[Step], last: int | None = None) -> RenderableType:
    """Each step with its prediction beside its outcome; only the ``last`` so many where room is short."""
    shown = steps if last is None else steps[-last:] if last else ()
    rows = table("step", "stage", "category", "predicted", "measured", "decision", "reason")
    for step in shown:
        style = _DECISION_STYLE.get(step.decision, "")
        rows.add_row(
            str(step.number),
            step.stage.value,
            step.plan.category.value if step.plan is not None else "-",
            predicted(step),
            measured(step.gain),
            Text(step.decision.value, style=style),
            one_line(step.reason) if last is None else one_line(step.reason, 100),
        )
    if len(shown) == len(steps):
        return rows
    return Group(Text(f"({plural(len(steps) - len(shown), 'earlier step')})", style="dim"), rows)


def list_view(rows: Iterable[dict[str, Any]]) -> RenderableType:
    """One row a run, as :func:`list_row` makes them."""
    listed = table("run", "task", "team", "state", "stage", "steps", "best", "cost")
    for row in rows:
        if row["error"]:
            listed.add_row(clean(row["folder"]), "", "", Text(one_line(row["error"]), style="red"))
            continue
        shown = (row["folder"], row["task"], row["team"], row["state"], row["stage"] or "-")
        listed.add_row(*map(clean, shown), str(row["steps"]), clean(row["best_shown"]), row["cost_shown"])
    return listed


def list_row(folder: Path, progress: Progress, bench: Row | None = None) -> dict[str, Any]:
    """Where a run stands. A run whose task has a row in its bench is finished, even if its log is open:
    a bench at level quick leaves out the last evaluation, and a task may be given up."""
    from egg.api.offline import waits_for
    from egg.core.codec import to_json

    state = progress.state
    ended = state.closed is not None or bench is not None
    waiting = None if ended else waits_for(progress)
    best = state.best_kernel
    return {
        "folder": str(folder),
        "run": state.started.run,
        "task": state.started.task.name,
        "team": state.started.settings.team,
        "state": _state_word(state, bench, waiting),
        "ended": ended,
        "waiting": waiting,
        "stage": state.stage.value if state.stage is not None and not ended else None,
        "steps": len(state.steps),
        "best": {"kernel": state.best, "score": to_json(best.score)} if best is not None else None,
        "cost": state.ledger.cost,
        "unpriced_calls": state.ledger.unpriced_calls,
        "tokens": state.ledger.usage.total,
        "best_shown": brief_speed(best.score) if best is not None else "-",
        "cost_shown": money(state.ledger),
        "error": None,
    }


def _state_word(state: RunState, bench: Row | None, waiting: str | None) -> str:
    if state.closed is not None:
        return state.closed.verdict
    return bench.verdict.kind if bench is not None else f"waits for {waiting}"
