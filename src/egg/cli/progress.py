"""What is going on, on standard error, so that standard output stays the result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from egg.cli.render import clean, console
from egg.core.evaluation import Gate

if TYPE_CHECKING:
    from egg.evaluator.judge.pool import Answer


@contextmanager
def gate_shown() -> Iterator[Callable[[Gate], None]]:
    """A spinner that names the gate a candidate stands before; nothing when it is not a terminal."""
    screen = console(sys.stderr)
    if not screen.is_terminal:
        yield lambda _: None
        return
    with screen.status("starting") as status:
        yield lambda gate: status.update(f"gate: {gate.value}")


def tell(answer: Answer, done: int, total: int) -> None:
    """One line a result: works on a terminal, in a log and over ssh alike."""
    from egg.evaluator.judge.batch import described

    console(sys.stderr).print(
        f"[{done}/{total}] {clean(answer.job)}: {clean(described(answer))}", soft_wrap=True
    )


@contextmanager
def busy(doing: str) -> Iterator[None]:
    """A spinner while something takes seconds; nothing when it is not a terminal."""
    screen = console(sys.stderr)
    if not sys.stderr.isatty() or screen.is_dumb_terminal:
        yield
        return
    with screen.status(doing):
        yield
