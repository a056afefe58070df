"""The commands on benches that are there: score one, compare two, write one as KernelBench's own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from egg.cli.errors import error_boundary
from egg.cli.options import DebugOption, JsonOption
from egg.cli.render import clean, console
from egg.cli.words import plural
from egg.core.errors import MachineError, UsageError

SCORES, EXPORT = "egg.bench-scores/1", "egg.bench-export/1"
BenchArgument = Annotated[
    Path, typer.Argument(metavar="BENCH", help="A bench's folder, or a file of rows.", show_default=False)
]


def register(bench: typer.Typer) -> None:
    bench.command("score")(score)
    bench.command("compare")(compare)
    bench.command("export")(export)


def score(
    source: BenchArgument,
    whole: Annotated[
        bool, typer.Option("--all", help="Every table for every level and family, and every task.")
    ] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """The scores of a bench as it stands; what has no row yet counts as wrong."""
    with error_boundary(debug=debug, as_json=as_json):
        show_scores(source, as_json, whole=whole)


def show_scores(source: Path, as_json: bool, *, whole: bool = False) -> None:
    from egg.cli.bench_view import bench_view
    from egg.report.bench_report import read_bench

    report = read_bench(source)
    if as_json:
        about = {"bench": str(source), "name": report.name, "tasks": len(report.rows)}
        print(json.dumps({"schema": SCORES, **about, "scores": report.scores.to_json()}, indent=2))
    else:
        console().print(bench_view(report, whole=whole))


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A bench: its folder, or its rows.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The bench that is held against it.")],
    over: Annotated[
        str,
        typer.Option(
            metavar="BASELINE",
            help="The baseline whose speedups are compared: eager, compile or reduce-overhead.",
        ),
    ] = "eager",
    default_precision: Annotated[
        bool, typer.Option("--default-precision", help="The baseline at PyTorch's default precision.")
    ] = False,
    unlike: Annotated[
        bool, typer.Option("--unlike", help="Compare benches with other options or GPUs all the same.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="Every task, not only those that differ.")] = False,
    markdown: Annotated[bool, typer.Option("--md", help="Print Markdown.")] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a page that needs no network.")
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Hold bench B against bench A, task by task: what is faster or slower beyond the noise, and in all."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.bench.rows import Basis
        from egg.cli.compare_view import compare_view
        from egg.report.compare_page import compare_html, compare_markdown
        from egg.report.compare_report import read_comparison

        if markdown and as_json:
            raise UsageError("--md and --json both print", "ask for one of them at a time")
        basis = Basis.DEFAULT if default_precision else Basis.MATCHED
        report = read_comparison(a, b, baseline=over, basis=basis, unlike=unlike)
        if html is not None:
            _write(html, compare_html(report))
        if as_json:
            sides = {"a": report.a, "b": report.b, "verdict": report.verdict}
            about = {"significant": report.comparison.significant, **report.comparison.to_json()}
            print(json.dumps({"schema": "egg.bench-comparison/1", **sides, **about}, indent=2))
        elif markdown:
            print(compare_markdown(report), end="")
        else:
            console().print(compare_view(report, every=every))
            if html is not None:
                print(f"\npage -> {clean(str(html))}")


def export(
    source: BenchArgument,
    kernelbench: Annotated[
        Path,
        typer.Option(
            "--kernelbench",
            metavar="DIR",
            help="A KernelBench checkout, or any folder: runs/ and results/timing/ are written into it.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the run there; the bench's where left out.")
    ] = None,
    matched: Annotated[
        bool,
        typer.Option("--matched", help="Baselines at the bench's own precision, not PyTorch's default."),
    ] = False,
    hardware: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of the folder with the baselines' times; the GPU's where left out."
        ),
    ] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a bench in KernelBench's own layout, so that its analysis scores it. Nothing is written over."""
    with error_boundary(debug=debug, as_json=as_json):
        from egg.api.benching.manifest import kernels_of
        from egg.bench.kernelbench import write
        from egg.bench.rows import Basis
        from egg.report.bench_report import read_bench

        report = read_bench(source)
        folder = source if source.is_dir() else source.parent
        written = write(
            kernelbench,
            name or re.sub(r"[^\w.-]+", "_", report.name).lstrip(".-") or "egg",
            report.rows,
            kernels_of(folder),
            basis=Basis.MATCHED if matched else Basis.DEFAULT,
            hardware=hardware,
        )
        if as_json:
            places = {"runs": list(map(str, written.runs)), "baselines": list(map(str, written.baselines))}
            print(json.dumps({"schema": EXPORT, **places, "left_out": list(written.left_out)}, indent=2))
            return
        for what, paths in (("run", written.runs), ("baseline", written.baselines)):
            for path in paths:
                print(f"{what} -> {clean(str(path))}")
        if not written.baselines:
            print("no baselines: no GPU timed these kernels")
        if written.left_out:
            print(f"left out, {plural(len(written.left_out), 'line')}:")
            print("".join(f"  {clean(name)}\n" for name in written.left_out), end="")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as reason:
        raise MachineError(f"cannot write {path}: {reason.strerror}", "name another file") from None
