"""Exceptions of a kernel file that nobody was told of.

A kernel file has no ``try``. It can still lose an exception where Python or PyTorch calls it: the parser of
PyTorch's arguments clears what ``__index__`` raises, ``list`` what ``__len__`` raises, ``logging`` what
``__str__`` raises. With that it would ask what a judge refuses, or how deep the stack is, and go on. So what
leaves a special method is noted, and every refusal where it is made; a request that was answered all the same
is refused (:meth:`egg.evaluator.worker.session.Session.obey`).
"""

from __future__ import annotations

import sys

ORDINARY = (AttributeError, IndexError, KeyError, StopIteration, GeneratorExit)
"""What a protocol of the language asks for: the end of an iteration, an element that is not there."""
MOST = 16

_noted: list[BaseException] = []


def note(error: BaseException) -> None:
    if len(_noted) < MOST:
        _noted.append(error)


def note_leaving() -> None:
    """Called where an exception leaves a special method."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, ORDINARY):
        note(error)


def forget() -> None:
    _noted.clear()


def first() -> BaseException | None:
    """The first that was noted since the last :func:`forget`."""
    return _noted[0] if _noted else None
