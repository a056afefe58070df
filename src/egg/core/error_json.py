"""Errors as data: what one process could not do, raised in another."""

from __future__ import annotations

from typing import Any

from egg.core import errors
from egg.core.errors import EggError, MachineError


def error_to(error: EggError) -> dict[str, Any]:
    """As data. A kind that another module defines becomes its nearest base in :mod:`egg.core.errors`."""
    kind = next(base.__name__ for base in type(error).__mro__ if hasattr(errors, base.__name__))
    return {"kind": kind, "message": error.message, "hint": error.hint}


def error_from(data: dict[str, Any]) -> EggError:
    """The error again; of an unknown kind, a :class:`MachineError`. A traceback that came along is a note."""
    kind = getattr(errors, str(data.get("kind")), MachineError)
    if not (isinstance(kind, type) and issubclass(kind, EggError)):
        kind = MachineError
    error = kind(str(data["message"]), str(data["hint"]))
    if data.get("traceback"):
        error.add_note(str(data["traceback"]))
    return error
