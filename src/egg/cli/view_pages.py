"""The pages of ``egg view``: a folder's runs and benches, a report on each, and their logs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from egg import __version__
from egg.api.benching.folder import ROWS, TASKS, WORKERS_LOG
from egg.api.runs import state_of
from egg.bench.row_files import read_rows
from egg.bench.rows import Row
from egg.bench.suites import load
from egg.cli.view_index import Kind, Place, PlaceIndex, tag_of
from egg.cli.words import brief_speed, event_line, plural
from egg.core.errors import EggError
from egg.core.events import StepClosed
from egg.core.step import Step
from egg.engine.log import read_log
from egg.report.bench_page import bench_html
from egg.report.bench_report import read_bench
from egg.report.page import Live, page
from egg.report.run_page import run_html
from egg.report.run_report import read_run

LINES = 1000
"""Of a log: the newest so many."""
TAIL_BYTES = 256 * 1024
"""Of what worker processes wrote."""
ALL = ("all runs and benches", "/")


@dataclass(frozen=True)
class Item:
    """One line of a list."""

    name: str
    address: str
    state: str
    so_far: str
    kind: str
    changed: str


@dataclass(frozen=True)
class Answer:
    """A page, and the state of the files that it shows."""

    tag: str
    html: str


class Pages:
    """Makes pages of what a index holds, and keeps the last few while nothing changes."""

    KEPT = 8

    def __init__(self, index: PlaceIndex) -> None:
        self._index = index
        self._kept: dict[tuple[str, str], Answer] = {}

    def answer(self, view: str, name: str, known: str = "") -> Answer | None:
        """The page ``view`` of the place ``name``; without a text where ``known`` is the state it is in."""
        if view == "":
            places = self._index.places()
            return self._made(view, name, known, places, lambda live: self._listing(places, live))
        place = self._index.find(name, Kind.BENCH if view in ("bench", "runs", "output") else Kind.RUN)
        if place is None:
            return None
        watched = [place, *self._index.runs_of(place)] if view == "runs" else [place]
        makers = {
            "run": self._run,
            "log": self._log,
            "bench": self._bench,
            "runs": self._runs,
            "output": self._output,
        }
        make = makers.get(view)
        return self._made(view, name, known, watched, lambda live: make(place, live)) if make else None

    def _made(
        self, view: str, name: str, known: str, watched: list[Place], make: Callable[[Live], str]
    ) -> Answer:
        tag = tag_of(watched)
        if tag == known:
            return Answer(tag, "")
        kept = self._kept.get((view, name))
        if kept is None or kept.tag != tag:
            here = f"/{view}?at={quote(name, safe='')}" if view else ""
            kept = Answer(tag, make(Live(tag, self._links(view, name), here)))
            self._kept = {**dict(list(self._kept.items())[1 - self.KEPT :]), (view, name): kept}
        return kept

    def _links(self, view: str, name: str) -> tuple[tuple[str, str], ...]:
        at = quote(name, safe="")
        match view:
            case "":
                return ()
            case "run" | "log":
                return ALL, ("report", f"/run?at={at}"), ("log", f"/log?at={at}")
            case _:
                inner = ("runs", f"/runs?at={at}"), ("output of its workers", f"/output?at={at}")
                return ALL, ("report", f"/bench?at={at}"), *inner

    # -- lists -----------------------------------------------------------------------------------------

    def _listing(self, places: list[Place], live: Live) -> str:
        items = [_bench_item(p) if p.kind is Kind.BENCH else _run_item(p, None) for p in places]
        title = self._index.root.name or str(self._index.root)
        return page(
            "view.html", version=__version__, live=live, title=title, kicker="Runs and benches", items=items
        )

    def _runs(self, bench: Place, live: Live) -> str:
        rows = {row.run: row for row in _rows(bench) if row.run}
        runs = self._index.runs_of(bench)
        items = [
            _run_item(run, rows.get(f"{run.path.parent.name}/{run.path.name}"), inside=True) for run in runs
        ]
        title = bench.path.name
        return page(
            "view.html", version=__version__, live=live, title=title, kicker="Runs of a bench", items=items
        )

    # -- reports ---------------------------------------------------------------------------------------

    def _run(self, place: Place, live: Live) -> str:
        return run_html(read_run(place.path), live)

    def _bench(self, place: Place, live: Live) -> str:
        return bench_html(read_bench(place.path), live)

    # -- logs ------------------------------------------------------------------------------------------

    def _log(self, place: Place, live: Live) -> str:
        lines: list[tuple[str, str]] = []
        last: Step | None = None
        for entry in read_log(place.path):
            line = event_line(entry.event, last)
            if isinstance(entry.event, StepClosed):
                last = entry.event.step
            if line is not None:
                lines.append((entry.at[11:19], line))
        return _log_page(place.path.name, "a run", lines, live)

    def _output(self, bench: Place, live: Live) -> str:
        text = _tail(bench.path / WORKERS_LOG)
        return _log_page(bench.path.name, "a bench's workers", [("", line) for line in text], live)


def _log_page(title: str, what: str, lines: list[tuple[str, str]], live: Live) -> str:
    shown = f"The newest of {plural(len(lines), 'line')} first." if lines else "Nothing was written yet."
    newest = list(reversed(lines[-LINES:]))
    return page("log.html", version=__version__, live=live, title=title, what=what, shown=shown, lines=newest)


def _run_item(place: Place, row: Row | None, inside: bool = False) -> Item:
    """A run that cannot be read is listed with the reason: others are shown all the same.

    ``inside`` a bench, whose name the page has, a run goes by the name of its own folder.
    """
    name = place.path.name if place.name == "." or inside else place.name
    try:
        state = state_of(place.path)
    except EggError as error:
        return Item(name, place.address, "unreadable", error.message, "run", place.changed)
    best = state.best_kernel
    under_way = state.stage if state.closed is None and row is None else None
    stage = f"{under_way.value}, " if under_way is not None else ""
    so_far = f"{stage}{plural(len(state.steps), 'step')}"
    so_far += f", {brief_speed(best.score)}" if best is not None else ", no accepted kernel"
    ended = state.closed.verdict if state.closed is not None else row.verdict.kind if row else "open"
    return Item(name, place.address, ended, so_far, "run", place.changed)


def _bench_item(place: Place) -> Item:
    name = place.path.name if place.name == "." else place.name
    try:
        rows, total = _rows(place), _tasks(place)
    except EggError as error:
        return Item(name, place.address, "unreadable", error.message, "bench", place.changed)
    accepted = sum(row.accepted for row in rows)
    of_all = f" of {total:,}" if total is not None else ""
    state = "finished" if total is None or len(rows) >= total else "under way"
    so_far = f"{len(rows):,}{of_all} tasks ended, {accepted:,} correct"
    address = place.address if rows else f"/runs?at={quote(place.name, safe='')}"
    return Item(name, address, state, so_far, "bench", place.changed)


def _rows(bench: Place) -> list[Row]:
    return read_rows(bench.path / ROWS)


def _tasks(bench: Place) -> int | None:
    listed = bench.path / TASKS
    return len(load(listed).tasks) if listed.is_file() and not listed.is_symlink() else None


def _tail(path: Path) -> list[str]:
    """The end of a text that another process writes, in whole lines."""
    if path.is_symlink() or not path.is_file():
        return []
    with path.open("rb") as handle:
        handle.seek(0, 2)
        size = handle.tell()
        handle.seek(max(0, size - TAIL_BYTES))
        lines = handle.read().decode("utf-8", "replace").splitlines()
    return lines[1:] if size > TAIL_BYTES else lines
