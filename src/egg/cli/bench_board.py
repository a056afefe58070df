"""How far a bench has come, folded from its news, and in words.

*Time left* is work left, shared out to the workers. What a task takes is the mean of those that ended in this
session, or before the first has, of those that earlier sessions left; a task in flight has done as much of
that as its clock says, and one that takes longer than others is taken to be nearly done. The last tasks leave
workers idle, so nothing is promised below what the task begun last still needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from egg.api.benching.news import Began, Ended, Lost, Moved, News, Opened
from egg.bench.rows import NoKernel, Passed, Refused, Row, Unable
from egg.cli.render import clean
from egg.cli.words import one_line, plural

REASON = 100
"""Characters of one."""
NEARLY_DONE = 0.1
"""Of a mean task: what one that has taken longer than that is taken to need still."""


@dataclass
class Flight:
    """A task that a worker is at."""

    name: str
    since: float
    resumed: bool
    moved: Moved | None = None


@dataclass
class Board:
    """How far a bench has come, as its news tell."""

    clock: Callable[[], float] = time.monotonic
    total: int = 0
    workers: int = 1
    rows: dict[str, Row] = field(default_factory=dict)
    flights: dict[str, Flight] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    """Seconds of the tasks that ended in this session."""
    opened_at: float = 0.0

    def hear(self, news: News) -> None:
        match news:
            case Opened(rows=rows, pending=pending, workers=workers):
                self.rows = {row.key: row for row in rows}
                self.total, self.workers = len(rows) + len(pending), max(1, workers)
                self.opened_at = self.clock()
            case Began(key=key, name=name, resumed=resumed):
                self.flights[key] = Flight(name, self.clock(), resumed)
            case Moved(key=key) if key in self.flights:
                self.flights[key].moved = news
            case Lost(key=key):
                self.flights.pop(key, None)
            case Ended(row=row):
                flight = self.flights.pop(row.key, None)
                if flight is not None:
                    self.took.append(self.clock() - flight.since)
                self.rows[row.key] = row

    @property
    def left(self) -> int:
        """Tasks that no worker has begun."""
        return max(0, self.total - len(self.rows) - len(self.flights))

    @property
    def elapsed(self) -> float:
        return self.clock() - self.opened_at

    @property
    def money(self) -> float:
        flying = [flight.moved.money for flight in self.flights.values() if flight.moved is not None]
        return sum(row.spent.money for row in self.rows.values()) + sum(flying)

    @property
    def tokens(self) -> int:
        flying = [flight.moved.tokens for flight in self.flights.values() if flight.moved is not None]
        return sum(row.spent.tokens for row in self.rows.values()) + sum(flying)

    @property
    def seconds_left(self) -> float | None:
        """``None`` before the first task has ended."""
        known = self.took or [row.spent.wall_seconds for row in self.rows.values() if row.spent.wall_seconds]
        if not known:
            return None
        mean, now = sum(known) / len(known), self.clock()
        flying = [max(NEARLY_DONE * mean, mean - (now - f.since)) for f in self.flights.values()]
        last = mean if self.left else max(flying, default=0.0)
        return max((self.left * mean + sum(flying)) / self.workers, last)


# -- in words ----------------------------------------------------------------------------------------


def row_text(row: Row) -> str:
    """How a task ended."""
    match row.verdict:
        case Passed(timing=None):
            return "accepted; no GPU measured it"
        case Passed(timing=timing) if timing is not None:
            over = ((name, row.speedup(name)) for name in ("eager", "compile"))
            speeds = "".join(f", {found.median:.2f}x {name}" for name, found in over if found is not None)
            return f"accepted, {timing.milliseconds.median:.4g} ms{speeds}"
        case Refused(gate=gate, reason=reason, evidence=evidence):
            return one_line(f"refused at {gate.value}: {evidence or reason}", REASON)
        case NoKernel(reason=reason):
            return one_line(f"no kernel: {reason}", REASON)
        case Unable(reason=reason):
            return one_line(f"machine unable: {reason}", REASON)
    raise AssertionError(row.verdict)


def time_left(seconds: float | None) -> str:
    """``about 12 min left``: an estimate, so in minutes."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    minutes = round(seconds / 60)
    return (
        f"about {minutes} min left"
        if minutes < 120
        else f"about {minutes // 60} h {minutes % 60:02d} min left"
    )


def task_label(key: str, name: str) -> str:
    return clean(key if key == name else f"{key} {name}")


def spent_text(board: Board) -> str:
    """Nothing where no model was asked."""
    return f"${board.money:.2f}, {plural(board.tokens, 'token')}" if board.tokens or board.money else ""


def joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
