"""What ``egg tune`` does, for machines without the packages of the command line, and within a time limit.

Every event of a run is a line on standard error, with the seconds that each gate of the judge took: where the
time goes is seen while it goes on. A graph whose tuning has not ended at the limit is rejected with that
reason, so that the backend tries the forms of the model that need no kernel.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

from egg.api.tuning import Here, tune, waiting
from egg.api.watching import Watcher
from egg.core.evaluation import Evaluation
from egg.core.events import Event
from egg.core.settings import Settings
from egg.engine.budgets import find_budget
from egg.engine.state import RunState
from egg.store import Recorded, Rejected, Store, Tuned


class TimeLimit(KeyboardInterrupt):
    """Ends a run as an interruption does: its processes are ended, and its log is kept."""


class Progress(Watcher):
    """Prints every event of a run with the seconds since the program began."""

    def __init__(self) -> None:
        self._began = monotonic()

    def event(self, event: Event, state: RunState, new: bool) -> None:
        found = getattr(event, "evaluation", None)
        line = f"{event.kind} {_gates(found) if isinstance(found, Evaluation) else ''}".rstrip()
        print(f"{monotonic() - self._began:6.1f} s  {line}", file=sys.stderr, flush=True)


def _gates(evaluation: Evaluation) -> str:
    taken = ", ".join(f"{record.gate.value} {record.seconds:.1f}" for record in evaluation.gates)
    found = evaluation.verdict
    reason = f"{found.refusal.reason}: {found.refusal.evidence[:200]}" if found.kind == "rejected" else ""
    return f"{evaluation.policy.level.value} {found.kind} {reason} ({taken})"


def tune_heaviest(folder: Path, budget: str, limit: int, seconds: float = 0.0) -> dict[str, Any]:
    """Tune the heaviest graphs of a store; ``seconds`` is the time for all of them, without a limit if 0."""
    store, here, progress = Store(folder, print), Here.now(), Progress()
    settings = Settings(team="expert", budget=find_budget(budget), skills=())
    chosen = waiting(store, here).entries[:limit]
    try:
        with _limited(seconds):
            for _ in tune(store, chosen, settings, here, os.environ, lambda _: nullcontext(progress)):
                pass
    except TimeLimit:
        for entry in chosen:
            if isinstance(store.named(entry.key).state, Recorded):
                store.rejected(entry.key, f"tuning did not end within {seconds:g} s")
    return {"entries": verdicts(str(folder))}


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Meanwhile :class:`TimeLimit` is raised after so many seconds."""

    def expired(*_: Any) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def verdicts(store: str) -> list[dict[str, Any]]:
    """What tuning made of each graph that was recorded."""
    found = []
    for entry in Store(Path(store), print).entries():
        row: dict[str, Any] = {"key": entry.key, "name": entry.name, "state": entry.state.kind}
        if isinstance(entry.state, Tuned):
            row["speedups"] = {name: gain.median for name, gain in entry.state.speedups.items()}
        elif isinstance(entry.state, Rejected):
            row["reason"] = entry.state.reason
        found.append(row)
    return found
