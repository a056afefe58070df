"""The command that tells: a run or a bench as one page, as Markdown, as a table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from egg.cli.errors import error_boundary
from egg.cli.options import DebugOption, JsonOption
from egg.cli.render import clean
from egg.core.errors import UsageError

PANEL = "Optimize programs"


def register(app: typer.Typer) -> None:
    app.command("report", rich_help_panel=PANEL)(report)


def report(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN|BENCH", help="A run's folder, a bench's folder, or a file of rows."),
    ],
    markdown: Annotated[bool, typer.Option("--md", help="Markdown instead of a page.")] = False,
    table: Annotated[bool, typer.Option("--csv", help="A table: steps of a run, tasks of a bench.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Where to write it, - to print it; report.* beside the source."
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Tell what a run or a bench came to: one HTML page that needs no network, or Markdown, or CSV."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.report.reports import Form, write
        from egg.report.reports import report as made

        if markdown and table:
            raise UsageError("--md and --csv are two forms", "ask for one of them at a time")
        if as_json and out == Path("-"):
            raise UsageError("--json and --out - both print", "leave one of them out")
        written = made(source, Form.MARKDOWN if markdown else Form.CSV if table else Form.HTML)
        if out == Path("-"):
            sys.stdout.flush()
            sys.stdout.buffer.write(written.data)
            return
        place = write(written, out)
        if as_json:
            about = {"kind": written.kind, "name": written.name, "form": written.form.value}
            size = {"file": str(place), "bytes": len(written.data)}
            print(json.dumps({"schema": "egg.report/1", **about, **size}, indent=2))
        else:
            print(f"{written.kind} report -> {clean(str(place))}")
