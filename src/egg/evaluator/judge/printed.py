"""What an oracle's process prints."""

from __future__ import annotations

import contextlib
import os
import threading

KEPT_OUTPUT = 8192
"""Bytes of what a task printed that are kept: the last ones."""


class Printed:
    """What a process writes to its streams, taken in by a thread so that the process never waits for us."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._total = 0

    @classmethod
    def of(cls, stream: int) -> Printed:
        found = cls()
        threading.Thread(target=found._take_in, args=(os.dup(stream),), daemon=True).start()
        return found

    def _take_in(self, stream: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(stream, 1 << 16):
                self._kept = (self._kept + data)[-KEPT_OUTPUT:]
                self._total += len(data)
        os.close(stream)

    @property
    def text(self) -> str:
        return self._kept.decode(errors="replace")

    def last_words(self) -> str:
        lines = self.text.strip().splitlines()[-3:]
        return f"; it last printed: {' | '.join(lines)[:500]}" if lines else ""
