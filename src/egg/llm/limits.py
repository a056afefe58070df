"""How many requests may be under way at once."""

from __future__ import annotations

import threading

from egg.core.conversation import Completion, Request
from egg.llm.client import Client, OnText, ignore_text


class Limited:
    """A client that lets at most ``slots`` requests through at a time; the others wait their turn.

    Runs that share an endpoint share one of these. A request that waits for a retry keeps its
    slot: an endpoint that asks for patience should see fewer requests, not others.
    """

    def __init__(self, client: Client, slots: int) -> None:
        if slots < 1:
            raise ValueError(f"at least one request must be let through, not {slots}")
        self._client = client
        self._slots = threading.BoundedSemaphore(slots)

    def complete(self, request: Request, on_text: OnText = ignore_text) -> Completion:
        with self._slots:
            return self._client.complete(request, on_text)
