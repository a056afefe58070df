"""Commands for work outside of a run: reply in place of a model, judge on another machine."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from egg.cli import run_options
from egg.cli.errors import error_boundary, kept
from egg.cli.lazy import add_commands
from egg.cli.options import DebugOption, JsonOption, RunArgument, RunsArgument
from egg.cli.render import clean
from egg.cli.runs import show_run
from egg.cli.summary import exit_code, run_json
from egg.cli.words import command, one_line, plural
from egg.core.conversation import EDITING
from egg.core.errors import EggError, UsageError

if TYPE_CHECKING:
    from egg.api.carried import Results
    from egg.api.offline import Fed
    from egg.api.runs import Progress
    from egg.core.conversation import Request

PANEL = "Answer by hand, judge elsewhere"


def register(app: typer.Typer) -> None:
    add_commands(app, PANEL, {"next": next_question, "reply": reply, "pending": pending, "results": results})


def next_question(run: RunArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Print the question a run waits with, or what else it waits for."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.offline import open_jobs, open_question, waiting_words, waits_for, ways_on
        from egg.api.runs import look

        progress = look(run)
        request = getattr(progress.waiting, "request", None)
        if as_json:
            waiting = {"run": progress.state.started.run, "waiting": waits_for(progress)}
            print(json.dumps({**waiting, **_asked(request), "jobs": len(open_jobs(progress))}, indent=2))
        elif (question := open_question(progress)) is not None:
            print(question_text(run, question))
        else:
            print(f"{clean(progress.state.started.run)}: {clean(waiting_words(progress))}")
            print("".join(f"  {clean(way)}\n" for way in ways_on(progress, run)), end="")


def reply(
    run: RunArgument,
    file: Annotated[Path, typer.Option("--file", metavar="FILE", help="The reply; - is standard input.")],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Answer the question of a step or hybrid run; it goes on to its next stop. Exit codes: as optimize."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api import offline
        from egg.api.optimizing import environment
        from egg.cli.live import watching

        text = run_options.read_reply(file)
        with kept(command("resume", run)), watching(run) as watcher:
            progress = offline.reply(run, text, watcher, environment())
        show_run(run, progress, as_json)


def pending(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", metavar="JOBS.jsonl", help="One job a line; replaced whole.")],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Collect the kernels that runs want judged elsewhere: then egg eval-batch, then egg results."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.offline import open_jobs, waiting_words, waits_for, write_jobs
        from egg.api.runs import look

        seen = {run: look(run) for run in _distinct(runs)}
        written = write_jobs(out, [job for progress in seen.values() for job in open_jobs(progress)])
        if as_json:
            rows = [
                {"folder": str(run), "waiting": waits_for(progress), "jobs": len(open_jobs(progress))}
                for run, progress in seen.items()
            ]
            print(json.dumps({"jobs": written, "out": str(out), "runs": rows}, indent=2))
            return
        for run, progress in seen.items():
            jobs = len(open_jobs(progress))
            waits = plural(jobs, "job") if jobs else clean(waiting_words(progress))
            print(f"{clean(str(run))}: {waits}")
        print(f"{plural(written, 'job')} -> {clean(str(out))}")


def results(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="RUN... RESULTS.jsonl", help="Runs, and last what egg eval-batch wrote."),
    ],
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Bring evaluations back to the runs that wait for them; each goes on to its next stop.

    Exit 1 when a run returned the reference, 2 or 3 when one could not go on; the others do.
    """
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.carried import read_results
        from egg.evaluator.judge.signing import key_from

        *runs, file = paths
        if not runs:
            raise UsageError("a run or the results file is missing", "egg results RUN... RESULTS.jsonl")
        brought = read_results(file, key_from(os.environ))
        with kept("the same command"):
            outcomes = {run: _feed(run, brought) for run in _distinct(runs)}
        report = _Report(brought, outcomes)
        print(json.dumps(report.json(), indent=2) if as_json else report.text())
        raise typer.Exit(report.exit_code())


def question_text(run: Path, request: Request) -> str:
    """A question as Markdown: the messages so far, and the form of the reply."""
    parts = [f"# {clean(request.purpose)}"]
    parts += [f"## {message.speaker.value}\n\n{clean(message.text).strip()}" for message in request.messages]
    if request.schema is not None:
        schema = json.dumps(request.schema, indent=2)
        parts.append(f"---\n\nThe reply is one JSON object of this schema:\n\n```json\n{clean(schema)}\n```")
    else:
        form = "edits, or a whole kernel file," if request.purpose in EDITING else "a whole kernel file"
        parts.append(f"---\n\nThe reply is {form} in Python code blocks.")
    return "\n\n".join([*parts, f"Answer with: {command('reply', run, '--file REPLY')}"])


def _asked(request: Request | None) -> dict[str, Any]:
    if request is None:
        return {"purpose": None, "messages": [], "schema": None}
    messages = [{"speaker": m.speaker.value, "text": m.text} for m in request.messages]
    return {"purpose": request.purpose, "messages": messages, "schema": request.schema}


def _distinct(runs: list[Path]) -> list[Path]:
    """Each run once, however often it was named."""
    found: dict[Path, Path] = {}
    for run in runs:
        found.setdefault(run.resolve(), run)
    return list(found.values())


def _feed(run: Path, brought: Results) -> Fed | EggError:
    """The results of one run. A run that cannot go on is reported; the others go on."""
    from egg.api.offline import feed
    from egg.api.optimizing import environment
    from egg.cli.live import watching

    try:
        with watching(run) as watcher:
            return feed(run, brought, watcher, environment())
    except EggError as error:
        return error


class _Report:
    """The effect of a results file on the runs that wait for it."""

    def __init__(self, brought: Results, outcomes: dict[Path, Fed | EggError]) -> None:
        from egg.api.offline import known

        self._outcomes = outcomes
        self._fed: dict[Path, Fed] = {r: o for r, o in outcomes.items() if not isinstance(o, EggError)}
        taken = {job for fed in self._fed.values() for job in fed.taken}
        rest = [job for job in brought.verdicts if job not in taken]
        progresses: list[Progress] = [fed.progress for fed in self._fed.values()]
        self._taken = len(taken)
        self._known = sum(known(job, progresses) for job in rest)
        self._strange = len(rest) - self._known
        self._failures = brought.failures

    def exit_code(self) -> int:
        return max(
            outcome.exit_code if isinstance(outcome, EggError) else exit_code(outcome.progress.state)
            for outcome in self._outcomes.values()
        )

    def json(self) -> dict[str, Any]:
        rows = []
        for run, outcome in self._outcomes.items():
            if isinstance(outcome, EggError):
                rows.append({"folder": str(run), "error": outcome.message, "hint": outcome.hint})
            else:
                rows.append({**run_json(run, outcome.progress), "taken": len(outcome.taken), "error": None})
        return {
            "taken": self._taken,
            "known": self._known,
            "strange": self._strange,
            "without_verdict": dict(self._failures),
            "runs": rows,
        }

    def text(self) -> str:
        from egg.api.offline import waiting_words

        lines = []
        for run, outcome in self._outcomes.items():
            if isinstance(outcome, EggError):
                hint = f" ({one_line(outcome.hint)})" if outcome.hint else ""
                lines.append(f"{clean(str(run))}: error: {one_line(outcome.message, 1000)}{hint}")
                continue
            closed = outcome.progress.state.closed
            now = f"ended, {closed.verdict}: {closed.reason}" if closed else waiting_words(outcome.progress)
            lines.append(
                f"{clean(str(run))}: {plural(len(outcome.taken), 'result')} taken; {one_line(now, 1000)}"
            )
        lines += [
            f"{clean(job)}: no verdict: {one_line(reason) or 'no reason given'}"
            for job, reason in self._failures.items()
        ]
        counts = [f"{plural(self._taken, 'result')} taken"]
        counts += [f"{self._known:,} known already"] if self._known else []
        counts += [f"{self._strange:,} for nothing these runs wait for"] if self._strange else []
        counts += [f"{len(self._failures):,} without a verdict: judge again"] if self._failures else []
        return "\n".join([*lines, ", ".join(counts)])
