"""What ``forward`` calls its arguments, and what it takes where a caller leaves one out."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable

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


def given_names(parameters: Iterable[inspect.Parameter], count: int) -> dict[str, inspect.Parameter]:
    """The arguments of a call with ``count`` positional ones: names in order, and what each belongs to.

    Those of ``*rest`` are numbered, ``rest_0`` and on, as many as the call has. Parameters that the call
    leaves out follow; ``**options`` has no name here, since a call by position fills none.
    """
    found: dict[str, inspect.Parameter] = {}
    everything = list(parameters)
    taken = {parameter.name for parameter in everything}
    for parameter in everything:
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            names = numbered(parameter.name, max(0, count - len(found)), taken)
            found |= dict.fromkeys(names, parameter)
        elif parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[parameter.name] = parameter
    return found


def numbered(rest: str, count: int, taken: Collection[str]) -> list[str]:
    """What the arguments in ``*rest`` are called: ``rest_0``, ``rest_1``, and so on."""
    while any(f"{rest}_{place}" in taken for place in range(count)):
        rest += "_"
    return [f"{rest}_{place}" for place in range(count)]


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return NONE
    value = parameter.default
    if type(value) not in PLAIN:
        return UNKNOWN
    return repr(float(value)) if type(value) is int else repr(value)
