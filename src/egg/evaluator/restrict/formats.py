"""Format strings: ``"{0.name[key]}"`` reads attributes and items by names that are data.

``str.format`` and ``str.format_map`` are reached bound, unbound, through a class that derives from ``str`` or
by ``getattr``. Each road ends in a load of one of the two names, where the method is replaced by one whose
fields are plain.
"""

from __future__ import annotations

import string
from typing import Any

from egg.evaluator.restrict.names import RestrictedError

FORMATTING = frozenset(["format", "format_map"])
_str, _isinstance, _type = str, isinstance, type
_parse = string.Formatter().parse
_methods = {name: getattr(str, name) for name in FORMATTING}


def plain_format(receiver: Any, name: str) -> Any:
    """What stands for ``receiver.format``; ``None`` where it is none of a string's."""
    if _isinstance(receiver, _str):
        return lambda *args, **kwargs: _formatted(name, receiver, args, kwargs)
    if _isinstance(receiver, _type) and issubclass(receiver, _str):
        return lambda text, *args, **kwargs: _formatted(name, text, args, kwargs)
    return None


def _formatted(name: str, text: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    if not _isinstance(text, _str):
        raise TypeError(f"str.{name} of something that is no string")
    plain = _str.__str__(text)
    _check(plain)
    return _methods[name](plain, *args, **kwargs)


def _check(text: str) -> None:
    for _, field, spec, _ in _parse(text):
        if field is not None and ("." in field or "[" in field):
            raise RestrictedError(f"a format string reads {{{field}}}")
        if spec:
            _check(spec)
