"""Where errors leave the program: one message, one hint, the right exit code, no traceback unless asked.

Exit codes: 0 accepted (or done), 1 rejected, 2 usage, 3 the machine is unable, 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from egg.cli.render import clean, console
from egg.core.errors import EggError, UsageError

INTERRUPTED = 130
ERROR_SCHEMA = "egg.error/1"


@contextmanager
def door(*, debug: bool = False, as_json: bool = False) -> Iterator[None]:
    """Turn every way a command can end badly into a message and :class:`typer.Exit`."""
    try:
        yield
    except typer.Exit:
        raise
    except EggError as error:
        kind = "usage" if isinstance(error, UsageError) else "machine"
        _leave(kind, error.message, error.hint, error.exit_code, debug, as_json)
    except KeyboardInterrupt:
        _leave("interrupted", "interrupted", "", INTERRUPTED, debug, as_json)
    except Exception as error:  # a fault of ours: never a verdict on the candidate
        hint = "" if debug else "run again with --debug for the traceback, and please report it"
        _leave("internal", f"internal error: {type(error).__name__}: {error}", hint, 3, debug, as_json)


def error_json(kind: str, message: str, hint: str) -> dict[str, str]:
    return {"schema": ERROR_SCHEMA, "error": kind, "message": message, "hint": hint}


def _leave(kind: str, message: str, hint: str, code: int, debug: bool, as_json: bool) -> None:
    if debug:
        traceback.print_exc()
    screen = console(sys.stderr)
    screen.print(f"egg: {clean(message)}", style="bold red", soft_wrap=True)
    if hint:
        screen.print(f"hint: {clean(hint)}", style="cyan", soft_wrap=True)
    if as_json:
        print(json.dumps(error_json(kind, message, hint)))
    raise typer.Exit(code) from None
