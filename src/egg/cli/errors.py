"""The error boundary of every command: one message, one hint, an exit code, a traceback only with --debug.

Exit codes: 0 accepted (or done), 1 rejected (or the reference), 2 usage, 3 the machine or the
model's endpoint is unable, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from egg.core.errors import EggError, UsageError

INTERRUPTED, TERMINATED = 130, 143
ERROR_SCHEMA = "egg.error/1"


class Terminated(KeyboardInterrupt):
    """SIGTERM. No ``SystemExit``: the code of a task may raise that."""


class Interrupted(EggError):
    """The command was stopped; what was done until then is kept."""

    def __init__(self, message: str, hint: str = "", exit_code: int = INTERRUPTED) -> None:
        super().__init__(message, hint)
        self.exit_code = exit_code


@contextmanager
def kept(go_on: str) -> Iterator[None]:
    """Around work that can be stopped at any moment and taken up again with the command ``go_on``."""
    try:
        yield
    except KeyboardInterrupt as stop:
        word, code = _stopped(stop)
        raise Interrupted(f"{word}; go on with: {go_on}", exit_code=code) from None


def _stopped(stop: KeyboardInterrupt) -> tuple[str, int]:
    return ("terminated", TERMINATED) if isinstance(stop, Terminated) else ("interrupted", INTERRUPTED)


@contextmanager
def error_boundary(*, debug: bool = False, as_json: bool = False) -> Iterator[None]:
    """Turn every way a command can end badly into a message and :class:`typer.Exit`."""
    try:
        yield
    except typer.Exit:
        raise
    except EggError as error:
        _leave(_kind(error), error.message, error.hint, error.exit_code, debug, as_json)
    except KeyboardInterrupt as stop:
        word, code = _stopped(stop)
        _leave("interrupted", word, "", code, debug, as_json)
    except BrokenPipeError:  # the reader closed the pipe: `egg next RUN | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except Exception as error:  # a fault of ours: never a verdict on the candidate
        hint = "" if debug else "run again with --debug for the traceback, and please report it"
        _leave("internal", f"internal error: {type(error).__name__}: {error}", hint, 3, debug, as_json)


def _kind(error: EggError) -> str:
    if isinstance(error, Interrupted):
        return "interrupted"
    return "usage" if isinstance(error, UsageError) else "machine"


def error_json(kind: str, message: str, hint: str) -> dict[str, str]:
    return {"schema": ERROR_SCHEMA, "error": kind, "message": message, "hint": hint}


def _leave(kind: str, message: str, hint: str, code: int, debug: bool, as_json: bool) -> None:
    from egg.cli.render import clean, console

    if debug:
        traceback.print_exc()
    screen = console(sys.stderr)
    screen.print(f"egg: {clean(message)}", style="bold red", soft_wrap=True)
    if hint:
        screen.print(f"hint: {clean(hint)}", style="cyan", soft_wrap=True)
    if as_json:
        print(json.dumps(error_json(kind, message, hint)))
    raise typer.Exit(code) from None
