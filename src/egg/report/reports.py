"""The entry point of reports: from the path of a run or a bench and a form to the text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from egg.core.errors import MachineError, UsageError
from egg.engine.log import LOG
from egg.report.bench_page import bench_csv, bench_html, bench_markdown
from egg.report.bench_report import ROWS, BenchReport, read_bench
from egg.report.run_page import run_csv, run_html, run_markdown
from egg.report.run_report import RunReport, read_run


class Form(StrEnum):
    """What a report is written as; the value is its file's suffix."""

    HTML = "html"
    MARKDOWN = "md"
    CSV = "csv"


@dataclass(frozen=True)
class Written:
    """A report, and its default path."""

    kind: str
    """``run`` or ``bench``."""
    form: Form
    name: str
    text: str
    place: Path

    @property
    def data(self) -> bytes:
        """What goes into the file: UTF-8, whatever the texts in it held."""
        return self.text.encode("utf-8", "replace")


def report(path: Path, form: Form = Form.HTML) -> Written:
    """The report on the run or bench at ``path``: a folder of either, or a bench's file of rows."""
    found = _read(path)
    if isinstance(found, RunReport):
        text = {Form.HTML: run_html, Form.MARKDOWN: run_markdown, Form.CSV: run_csv}[form](found)
        return Written("run", form, found.task, text, path / f"report.{form.value}")
    text = {Form.HTML: bench_html, Form.MARKDOWN: bench_markdown, Form.CSV: bench_csv}[form](found)
    beside = path if path.is_dir() else path.parent
    stem = "report" if path.is_dir() or path.name == ROWS else path.stem
    return Written("bench", form, found.name, text, beside / f"{stem}.{form.value}")


def write(written: Written, place: Path | None = None) -> Path:
    """Write it where it belongs, or to ``place``; a reader sees the old file or the new one, never half."""
    target = place or written.place
    beside = target.with_name(f".{target.name}.part")
    try:
        beside.write_bytes(written.data)
        beside.replace(target)
    except OSError as reason:
        raise MachineError(
            f"cannot write {target}: {reason.strerror or reason}",
            "name another file with --out, or --out - to print it",
        ) from None
    return target


def _read(path: Path) -> RunReport | BenchReport:
    if not path.exists():
        raise UsageError(f"no such run or bench: {path}", "name a run's folder, a bench's folder or its rows")
    if path.is_dir() and (path / LOG).is_file():
        return read_run(path)
    if path.name == LOG:
        return read_run(path.parent)
    if path.is_file() or (path / ROWS).is_file():
        return read_bench(path)
    raise UsageError(
        f"{path} is neither a run nor a bench",
        f"a run is a folder with {LOG}, a bench is a folder with {ROWS}",
    )
