"""Somebody who looks on while a run goes its way. Every method may be left as it is."""

from __future__ import annotations

from egg.core.events import Event
from egg.engine.state import RunState


class Watcher:
    """Told of every event with the state after it, of a reply's text as it arrives, and of waits."""

    def event(self, event: Event, state: RunState, new: bool) -> None:
        """``new`` is false for what was read back from the log."""

    def asked(self, purpose: str) -> None:
        """A model was asked; its text follows."""

    def text(self, piece: str) -> None:
        """A piece of the reply; empty for progress without text."""

    def waiting(self, seconds: float, reason: str) -> None:
        """The endpoint asked for patience."""

    def judging(self, jobs: int) -> None:
        """So many kernels go to the judge."""
