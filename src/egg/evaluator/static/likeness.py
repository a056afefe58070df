"""Stand-ins that print and name themselves as what they stand for.

A worker puts functions of its own in the place of PyTorch's and Triton's: to count, to answer for a GPU that
is not there. A kernel file may call them and nothing else (:mod:`egg.evaluator.static.stand_ins`); what their
name or printed form would show is the original's besides.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def alike(stand_in: Callable[..., Any], original: Any) -> Callable[..., Any]:
    """``stand_in`` under the names of ``original``.

    Without a reference to the original that a file could follow, as ``functools.wraps`` leaves one.
    """
    stand_in.__name__ = original.__name__
    stand_in.__qualname__ = original.__qualname__
    name: Any = getattr(original, "__module__", None)  # a method of compiled code has none
    stand_in.__module__ = name
    stand_in.__doc__ = original.__doc__
    return stand_in


def answering(original: Callable[..., Any], answer: Callable[[], Any]) -> Callable[..., Any]:
    """Takes what ``original`` takes, raises ``TypeError`` for all else, and returns ``answer()``."""
    signature = inspect.signature(original)

    def answered(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*args, **kwargs)
        return answer()

    answered.__signature__ = signature  # pyright: ignore[reportFunctionMemberAccess]
    return alike(answered, original)
