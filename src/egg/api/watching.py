"""Observers of a run. Every method may be left as it is."""

from __future__ import annotations

from egg.core.errors import EggError
from egg.core.events import Event
from egg.engine.state import RunState


class Watcher:
    """Called with every event and the state after it, of a reply's text as it arrives, and of waits."""

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

    def trouble(self, error: EggError) -> None:
        """Something beside the run went wrong; the run itself goes on."""


class Behind(Watcher):
    """For a run behind another: that one's observer hears of waits and of kernels that are judged."""

    def __init__(self, front: Watcher) -> None:
        self.waiting, self.judging, self.trouble = front.waiting, front.judging, front.trouble


class Joined(Watcher):
    """Several observers: the first gets every call, the others get events."""

    def __init__(self, first: Watcher, *others: Watcher) -> None:
        self._first, self._others = first, others
        self.asked, self.text, self.waiting = first.asked, first.text, first.waiting
        self.judging, self.trouble = first.judging, first.trouble

    def event(self, event: Event, state: RunState, new: bool) -> None:
        for watcher in (self._first, *self._others):
            watcher.event(event, state, new)
