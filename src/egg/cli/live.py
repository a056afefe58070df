"""The progress of a run: a live view on a terminal, plain lines elsewhere.

Both are watchers on standard error, so standard output stays the result. A resumed run reads
its log back before it goes on; of that only the number of events is shown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from egg.api.watching import Watcher
from egg.cli.render import clean, console
from egg.cli.summary import steps_view
from egg.cli.words import duration, event_line, money, one_line, players, plural, speed
from egg.core.errors import EggError
from egg.core.events import Evaluated, Event, Exchanged, RunClosed, RunStarted, StageOpened, ToolCalled
from egg.core.tokens import estimate_tokens

if TYPE_CHECKING:
    from egg.engine.state import RunState

REFRESHES = 4
"""A second."""
STEPS_SHOWN = 12


@contextmanager
def watching(folder: Path) -> Iterator[Watcher]:
    """The live view where standard error is a terminal, else lines."""
    screen = console(sys.stderr)
    if not sys.stderr.isatty() or screen.is_dumb_terminal:
        yield Lines(screen)
        return
    with live(screen, folder) as view:
        yield view


@contextmanager
def live(screen: Console, folder: Path) -> Iterator[LiveView]:
    """A view that stays on the screen as it was when the run stopped."""
    view = LiveView(folder)
    with Live(get_renderable=view.render, console=screen, refresh_per_second=REFRESHES):
        try:
            yield view
        finally:
            view.stop()


class Lines(Watcher):
    """One line for each event that is shown: for pipes, logs and dumb terminals."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._read_back = 0
        self._start: RunStarted | None = None

    def event(self, event: Event, state: RunState, new: bool) -> None:
        if not new:
            self._read_back += 1
            self._start = state.started
            return
        line = event_line(event, state.steps[-1] if state.steps else None)
        if line is not None:
            self._say(line)

    def asked(self, purpose: str) -> None:
        self._say(f"asking {clean(purpose)}")

    def waiting(self, seconds: float, reason: str) -> None:
        self._say(f"waiting {seconds:.0f} s for the endpoint: {one_line(reason)}")

    def judging(self, jobs: int) -> None:
        self._say(f"judging {plural(jobs, 'kernel')}")

    def trouble(self, error: EggError) -> None:
        self._say(_trouble(error))

    def _say(self, line: str) -> None:
        """Before the first line: the team, or after a pause the number of events that were read back."""
        if self._start is not None:
            before = plural(self._read_back, "event")
            self._screen.print(
                event_line(self._start) if self._read_back == 1 else f"read back {before}", soft_wrap=True
            )
            self._start = None
        self._screen.print(line, soft_wrap=True)


def _trouble(error: EggError) -> str:
    return one_line(f"{error.message}; {error.hint}" if error.hint else error.message)


class LastState(Watcher):
    """Remembers how far a run came, for when it ends in an error."""

    state: RunState
    count = 0

    def event(self, event: Event, state: RunState, new: bool) -> None:
        self.state, self.count = state, self.count + 1


@dataclass(frozen=True)
class Activity:
    """What is going on at the moment."""

    doing: str = "starting"
    since: float = 0.0
    works: bool = False
    """Whether the run's own clock runs: while it is answered or judged."""
    tokens: int = 0
    jobs: int = 0
    done: int = 0

    def text(self, now: float) -> str:
        tokens = f", about {plural(self.tokens, 'token')} so far" if self.tokens else ""
        done = f", {self.done} done" if self.done else ""
        return f"{self.doing}{tokens}{done}, {duration(now - self.since)}"


class LiveView(Watcher):
    """The run's state and the present activity, drawn a few times a second."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._state: RunState | None = None
        self._activity = Activity("starting", clock())
        self._asked = ""
        self._read_back = 0
        self._troubles: list[str] = []
        self._stopped = False

    def event(self, event: Event, state: RunState, new: bool) -> None:
        self._state = state
        if not new:
            self._read_back += 1
            self._begin(f"reading back, {plural(self._read_back, 'event')}")
        elif isinstance(event, Evaluated):
            self._evaluated()
        elif isinstance(event, Exchanged):
            self._begin(f"reading the reply of {clean(event.request.purpose)}")
        elif isinstance(event, ToolCalled):
            self._begin(f"{clean(event.purpose)} called {clean(event.call.name)}")
        elif isinstance(event, StageOpened):
            self._begin(f"beginning {event.stage.value}")
        elif isinstance(event, RunClosed):
            self._begin("done")

    def asked(self, purpose: str) -> None:
        self._asked = clean(purpose)
        self._begin(f"asking {self._asked}", works=True)

    def text(self, piece: str) -> None:
        asking = f"asking {self._asked}"
        if self._activity.doing != asking:
            self._begin(asking, works=True)
        self._activity = replace(self._activity, tokens=self._activity.tokens + estimate_tokens(piece))

    def waiting(self, seconds: float, reason: str) -> None:
        self._begin(f"waiting {seconds:.0f} s for the endpoint: {one_line(reason, 120)}", works=True)

    def judging(self, jobs: int) -> None:
        self._begin(f"judging {plural(jobs, 'kernel')}", works=True, jobs=jobs)

    def trouble(self, error: EggError) -> None:
        self._troubles.append(_trouble(error))

    def stop(self) -> None:
        """Nothing goes on any more: the last frame says so."""
        self._stopped = True

    def render(self) -> RenderableType:
        state, now = self._state, self._clock()
        if state is None:
            return Text(self._activity.text(now))
        parts: list[RenderableType] = [_header(state), self._now(state, now), *_best(state)]
        if state.steps:
            parts += ["", steps_view(state.steps, STEPS_SHOWN), ""]
        parts += [Text(trouble, style="yellow") for trouble in self._troubles]
        return Group(*parts, self._spent(state, now), Text(f"in {clean(str(self._folder))}", style="dim"))

    def _begin(self, doing: str, works: bool = False, jobs: int = 0) -> None:
        self._activity = Activity(doing, self._clock(), works, jobs=jobs)

    def _evaluated(self) -> None:
        activity = replace(self._activity, done=self._activity.done + 1)
        if activity.done < activity.jobs:
            self._activity = activity
        else:
            self._begin("deciding")

    def _now(self, state: RunState, now: float) -> Text:
        if state.closed is not None:
            return Text("ended", style="bold")
        stage = state.stage.value if state.stage is not None else "between stages"
        step = f", step {len(state.steps) + 1}" if state.stage is not None else ""
        doing = "stopped" if self._stopped else self._activity.text(now)
        return Text.assemble((f"{stage}{step}", "bold cyan"), f"  {doing}")

    def _spent(self, state: RunState, now: float) -> Table:
        """What is used, with what is left where there is a cap."""
        ledger, caps = state.ledger, state.started.settings.caps
        running = now - self._activity.since if self._activity.works and not self._stopped else 0.0
        seconds = ledger.seconds + running
        cells = [
            money(ledger) + (f" of ${caps.cost:g}" if caps.cost is not None else ""),
            f"{ledger.usage.total:,}"
            + (f" of {caps.tokens:,}" if caps.tokens is not None else "")
            + " tokens",
            plural(ledger.evaluations, "evaluation"),
            f"{duration(seconds)} used"
            + (f", {duration(caps.minutes * 60 - seconds)} left" if caps.minutes is not None else ""),
        ]
        table = Table.grid(padding=(0, 3))
        table.add_row(*(Text(cell) for cell in cells))
        return table


def _header(state: RunState) -> Text:
    started = state.started
    where = f" for {clean(started.facts.gpu.name)}"
    return Text.assemble((clean(started.task.name), "bold"), where, f"  team {players(started)}")


def _best(state: RunState) -> list[RenderableType]:
    kernel = state.best_kernel
    shown = speed(kernel.score) if kernel is not None else "no accepted kernel yet"
    return [Text.assemble(("best so far  ", "bold"), shown)]
