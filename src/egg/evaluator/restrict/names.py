"""The rule on attribute names, for names in the text and for names computed at run time alike."""

from __future__ import annotations

from egg.evaluator.restrict import raised
from egg.evaluator.static.vocabulary import ALLOWED_DUNDER_ATTRIBUTES, DENIED_ATTRIBUTES

CANDIDATE_FILE = "candidate.py"
"""How the name of the file ends under which a candidate's code is known."""
VERSION = "_version"
"""The one private attribute of a foreign object that may be read: a packed weight is keyed on it."""


class RestrictedError(Exception):
    """The kernel file did at run time what it must not; ``reason`` is the refusal's code.

    It is noted as it is made: the file may have the means to lose it.
    """

    def __init__(self, what: str, reason: str = "restricted.attribute") -> None:
        super().__init__(what)
        self.reason = reason
        raised.note(self)


def is_dunder(name: str) -> bool:
    return len(name) > 4 and name.startswith("__") and name.endswith("__")


def is_private(name: str) -> bool:
    """One leading underscore; ``_version`` is public for our purposes."""
    return name.startswith("_") and name != VERSION and not is_dunder(name)


def refused_name(name: object) -> str | None:
    """Why no attribute of this name may be reached on any object, or ``None``."""
    if type(name) is not str:
        return f"an attribute name that is a {type(name).__name__}"
    if name in DENIED_ATTRIBUTES:
        return f".{name} {DENIED_ATTRIBUTES[name][1]}"
    if is_dunder(name) and name not in ALLOWED_DUNDER_ATTRIBUTES:
        return f".{name} is a special name"
    return None
