"""A count of the threads that Python code starts: work in them escapes a dispatch mode's eye."""

from __future__ import annotations

import _thread
import threading
from typing import Any


class ThreadWatch:
    """Counts from the moment it is made."""

    def __init__(self) -> None:
        self.started = 0
        watch, start, start_low = self, threading.Thread.start, _thread.start_new_thread

        def counted_start(self: threading.Thread) -> None:
            watch.started += 1
            start(self)

        def counted_start_low(*args: Any, **kwargs: Any) -> int:
            watch.started += 1
            return start_low(*args, **kwargs)

        threading.Thread.start = counted_start
        _thread.start_new_thread = counted_start_low
