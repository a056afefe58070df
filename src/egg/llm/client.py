"""What the rest of EGG knows of a language model: it completes a request, or raises one of two errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from egg.core.conversation import Completion, Request
from egg.core.errors import MachineError, UsageError

OnText = Callable[[str], None]
"""Told each piece of a reply as it arrives. Empty for progress without text, as when a model reasons."""


def ignore_text(piece: str) -> None:
    """For callers who only want the whole reply."""


class Client(Protocol):
    """Whoever answers requests: a hosted model, a local server, a script, a person at the keyboard.

    Safe to call from several threads at once.
    """

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        """Ask, wait for the whole reply, and count what it used.

        A reply that was cut short or refused is a reply: see ``Completion.finish``. When a
        stream breaks the whole request is asked again, so the pieces given to ``on_text`` are
        for showing progress only; the text that counts is the completion's.
        """
        ...


class ModelError(MachineError):
    """The endpoint failed for good: retries did not help, or its answer cannot be used."""


class ModelRefusedCall(UsageError):
    """The endpoint will not serve this caller: a bad key, an unknown model, no permission."""
