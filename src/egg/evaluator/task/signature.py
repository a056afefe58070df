"""What ``forward`` calls its arguments, and what it takes where a caller leaves one out."""

from __future__ import annotations

import inspect

from torch import nn

PLAIN = (bool, int, float, str, type(None))
NONE, UNKNOWN = "", "?"
"""In place of a default: there is none, or it is no plain value."""

Signature = tuple[tuple[str, str], ...]
"""Names and the text of defaults, in order; what takes any number of arguments is named with its stars."""


def signature_of(module: nn.Module) -> Signature:
    """Of ``forward``; nothing where Python cannot say."""
    try:
        found = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return tuple((stars.get(p.kind, "") + p.name, _default(p)) for p in found)


def otherwise(ours: Signature, theirs: Signature) -> str:
    """What a caller gets without an error that is not what the reference gives, in words.

    An argument of another name raises where it is given by name, as does one without a default where it is
    left out. One that stands at another place, or has another default, does not.
    """
    places = {name: at for at, (name, _) in enumerate(ours)}
    for at, (name, default) in enumerate(theirs):
        if places.get(name, at) != at:
            return f"forward takes {name} at place {at + 1}, Model's at place {places[name] + 1}"
        wanted = ours[at][1] if at < len(ours) else NONE
        if NONE not in (default, wanted) and UNKNOWN not in (default, wanted) and default != wanted:
            return f"forward takes {name}={default} where it is left out, Model's {ours[at][0]}={wanted}"
    return ""


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return NONE
    value = parameter.default
    if type(value) not in PLAIN:
        return UNKNOWN
    return repr(float(value)) if type(value) is int else repr(value)
