"""The progress of a bench: a live view on a terminal, a line for every row elsewhere.

Both go to standard error, so that standard output stays the result.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from egg.api.benching.news import Began, Ended, Lost, News, Opened
from egg.bench.rows import Unable
from egg.cli.bench_board import REASON, Board, Flight, joined, row_text, spent_text, task_label, time_left
from egg.cli.render import clean, console
from egg.cli.words import duration, one_line, plural

REFRESHES = 4
"""A second."""
FLIGHTS_SHOWN, LAST_SHOWN = 16, 5
STOPPING = "stopping: waiting for the workers to end"


# -- lines -------------------------------------------------------------------------------------------


class BenchLines:
    """A line for each event that is shown: for pipes, logs and dumb terminals."""

    def __init__(self, screen: Console, board: Board) -> None:
        self._screen, self._board = screen, board

    def __call__(self, news: News) -> None:
        self._board.hear(news)
        line = self._news_line(news)
        if line:
            self._screen.print(line, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line that belongs to no task."""
        self._screen.print(one_line(text), soft_wrap=True)

    def stopping(self) -> None:
        """Called by a signal, perhaps in the middle of another line: then that one is all that is seen."""
        with suppress(RuntimeError):  # writing is not reentrant
            self._screen.print(STOPPING)

    def _news_line(self, news: News) -> str:
        board = self._board
        match news:
            case Opened(rows=rows, pending=pending, workers=workers):
                if not pending:
                    return ""
                before = f", {len(rows):,} done before" if rows else ""
                return f"{plural(len(pending), 'task')} to do{before}; {plural(workers, 'worker')}"
            case Began(key=key, name=name, resumed=True):
                return f"{task_label(key, name)} goes on where it was"
            case Lost(key=key, reason=reason, retried=again):
                return f"{clean(key)}: {one_line(reason)}" + ("; tried once more" if again else "")
            case Ended(row=row):
                so_far = joined(row_text(row), duration(row.spent.wall_seconds))
                left = time_left(board.seconds_left) if len(board.rows) < board.total else "all done"
                line = f"[{len(board.rows)}/{board.total}] {task_label(row.key, row.name)}: {so_far}"
                return "; ".join(part for part in (line, left, spent_text(board)) if part)
            case _:
                return ""


# -- the live view -----------------------------------------------------------------------------------


class BenchView:
    """The board, drawn."""

    def __init__(self, title: str, folder: Path, board: Board) -> None:
        self._title, self._folder, self._board = title, folder, board
        self._last: list[str] = []
        self._stopping = self._stopped = False
        self._turn = threading.Lock()  # the view is drawn by a thread of its own

    def __call__(self, news: News) -> None:
        with self._turn:
            self._hear(news)

    def _hear(self, news: News) -> None:
        self._board.hear(news)
        match news:
            case Ended(row=row):
                self._say(f"{task_label(row.key, row.name)}: {row_text(row)}")
            case Lost(key=key, reason=reason, retried=again):
                self._say(
                    f"{clean(key)}: {one_line(reason, REASON)}" + ("; tried once more" if again else "")
                )

    def note(self, text: str) -> None:
        """A line that belongs to no task."""
        with self._turn:
            self._say(one_line(text))

    def stopping(self) -> None:
        """Called by a signal handler: set a flag only; the next frame shows it."""
        self._stopping = True

    def stop(self) -> None:
        """Draw the last frame."""
        self._stopped = True

    def render(self) -> RenderableType:
        with self._turn:
            return self._drawn()

    def _drawn(self) -> RenderableType:
        board = self._board
        head = Text(self._title, style="bold")
        if not board.total:
            return Group(head, Text("starting", style="dim"))
        parts: list[RenderableType] = [head, self._bar(), self._counts()]
        if board.flights and not self._stopped:
            parts += ["", _flights(board)]
        if self._last:
            parts += [
                "",
                *(Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in self._last),
            ]
        return Group(*parts, Text(f"in {clean(str(self._folder))}", style="dim"))

    def _say(self, line: str) -> None:
        self._last = [*self._last, line][-LAST_SHOWN:]

    def _bar(self) -> RenderableType:
        board = self._board
        grid = Table.grid(padding=(0, 2))
        when = time_left(board.seconds_left)
        if len(board.rows) == board.total:
            when = "done"
        elif self._stopped or self._stopping:
            when = "stopped" if self._stopped else STOPPING
        grid.add_row(
            ProgressBar(total=board.total, completed=len(board.rows), width=30),
            Text(f"{len(board.rows):,} of {board.total:,}"),
            Text(f"{duration(board.elapsed)}, {when}"),
            Text(spent_text(board)),
        )
        return grid

    def _counts(self) -> Text:
        rows = list(self._board.rows.values())
        accepted, unable = sum(r.accepted for r in rows), sum(isinstance(r.verdict, Unable) for r in rows)
        line = Text.assemble(
            (f"{accepted:,} correct", "green"), f", {len(rows) - accepted - unable:,} failed"
        )
        if unable:
            line.append(f", {unable:,} the machine failed", style="yellow")
        if not self._stopped:
            flying = f"{len(self._board.flights):,} in flight, " if self._board.flights else ""
            line.append(f"; {flying}{self._board.left:,} left")
        return line


def _flights(board: Board) -> RenderableType:
    """Each task in flight: stage, step, what is done there, best so far, since when."""
    grid = Table.grid(padding=(0, 2))
    shown = list(board.flights.items())[:FLIGHTS_SHOWN]
    for key, flight in shown:
        moved = flight.moved
        grid.add_row(
            Text(one_line(task_label(key, flight.name), 44)),
            Text(moved.stage.value if moved is not None and moved.stage is not None else "", style="cyan"),
            Text(_doing(flight)),
            Text(f"{moved.speedup:.2f}x" if moved is not None and moved.speedup is not None else ""),
            Text(duration(board.clock() - flight.since), style="dim"),
        )
    if len(board.flights) > len(shown):
        return Group(grid, Text(f"and {len(board.flights) - len(shown):,} more", style="dim"))
    return grid


def _doing(flight: Flight) -> str:
    moved = flight.moved
    if moved is None:
        return "going on where it was" if flight.resumed else "starting"
    step = f"step {moved.steps + 1}" if moved.stage is not None else ""
    return one_line(joined(step, moved.doing), 48)


@contextmanager
def bench_shown(title: str, folder: Path) -> Iterator[BenchLines | BenchView]:
    """The live view where standard error is a terminal, else lines."""
    screen = console(sys.stderr)
    if not sys.stderr.isatty() or screen.is_dumb_terminal:
        screen.print(title, soft_wrap=True)
        yield BenchLines(screen, Board())
        return
    view = BenchView(title, folder, Board())
    with Live(get_renderable=view.render, console=screen, refresh_per_second=REFRESHES):
        try:
            yield view
        finally:
            view.stop()


@contextmanager
def stop_shown(view: BenchLines | BenchView) -> Iterator[list[int]]:
    """Confirm an interrupt at once: ending the workers takes seconds.

    Yields the signals that came, in their order; what they did before they do still.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stopped(number: int, frame: FrameType | None) -> None:
        came.append(number)
        view.stopping()
        handler = before[signal.Signals(number)]
        if not callable(handler):
            raise KeyboardInterrupt
        handler(number, frame)

    for number in before:
        signal.signal(number, stopped)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
