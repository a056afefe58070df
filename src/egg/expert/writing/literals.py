"""Plain values as Python text, and the conditions under which a name has another value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from egg.core.domain import ANY, NAME, SAME, Domain, Plain
from egg.expert.writing.breaking import LIMIT

TEXT, TYPE = "repr:", "type:"
"""How captures tell values that no literal holds."""


def literal_text(value: Any) -> str:
    """A literal that ``ast.literal_eval`` reads, in double quotes; infinities are numbers too large."""
    match value:
        case str():
            return '"' + repr(value)[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        case float() if math.isinf(value):
            return "1e999" if value > 0 else "-1e999"
        case list():
            return f"[{', '.join(map(literal_text, value))}]"
        case dict():
            return "{" + ", ".join(f"{literal_text(k)}: {literal_text(v)}" for k, v in value.items()) + "}"
    return repr(value)


def differs(name: str, value: Plain) -> str:
    """The condition that a variable does not hold ``value``: ``mask is not None``, ``scale != 2.0``.

    A list stands for a tuple as well, and in it ``ANY`` for any number and ``SAME`` for the one before it.
    What no literal holds is known by its text or by its type.
    """
    match value:
        case None | bool():
            return f"{name} is not {value}"
        case str() if value.startswith(TEXT):
            return f"repr({name}) != {literal_text(value.removeprefix(TEXT))}"
        case str() if value.startswith(TYPE):
            return f"type({name}).__name__ != {literal_text(value.rsplit('.', 1)[-1].removeprefix(TYPE))}"
        case list():
            unlike = [
                f"{name}[{at}] != {name}[{at - 1}]" if item == SAME else differs(f"{name}[{at}]", item)
                for at, item in enumerate(value)
                if item != ANY
            ]
            return " or ".join((f"len({name}) != {len(value)}", *unlike))
    return f"{name} != {literal_text(value)}"


def domain_lines(domain: Domain, name: str = NAME) -> list[str]:
    """``DOMAIN = {...}``, one line for each thing it speaks of."""
    return [f"{name} = {{", *_entries(domain.literal(), 4), "}"]


def _entries(held: Mapping[str, Any], indent: int) -> Iterator[str]:
    pad = " " * indent
    for key, value in held.items():
        line = f"{pad}{literal_text(key)}: {literal_text(value)},"
        nested = isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values())
        if isinstance(value, dict) and value and (nested or len(line) > LIMIT):
            yield from (f"{pad}{literal_text(key)}: {{", *_entries(value, indent + 4), f"{pad}}},")
        elif isinstance(value, list) and len(line) > LIMIT:
            items = (f"{pad}    {literal_text(item)}," for item in value)
            yield from (f"{pad}{literal_text(key)}: [", *items, f"{pad}],")
        else:
            yield line
