"""A limit on how many lines of a task's own code run.

A size that is tried to see what a program does may make it loop for hours: pairs of features are written
down in Python, and there are suddenly thousands of features. Lines are counted and no clock is read, so that
a task is understood alike on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from egg.core.errors import TaskError

TASK_FILE = "<egg_task_"
"""How the name of a task's source begins."""
MOST_LINES = 1_000_000


class OutOfLines(TaskError):
    """The code of a task runs longer than anyone would wait to see what it does."""


@contextmanager
def limited_lines(most: int = MOST_LINES) -> Iterator[None]:
    """Meanwhile, a task's code may run ``most`` lines; nothing is counted under a debugger."""
    left = most

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return counted if frame.f_code.co_filename.startswith(TASK_FILE) else None

    def counted(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= event == "line"
        if left < 0:
            raise OutOfLines(f"the task's code takes more than {most} lines")
        return counted

    if sys.gettrace() is not None:
        yield
        return
    sys.settrace(entered)
    try:
        yield
    finally:
        sys.settrace(None)
