"""A long kernel file as a model sees it: every definition by its head, the ones that matter in full.

What a reader of the file cannot do without stays whole: imports, constants, the domain. Functions,
kernels and methods are opened in the order of a rank (their share of the time, then their length,
short ones first) while there is room; of the others the head, the docstring and the number of lines
are shown. So a hidden function can still be called, replaced or added to.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from egg.agents.editing import BadEdit, Definition, definitions, lines_of
from egg.core.tokens import estimate_tokens

LEAST_HIDDEN = 4
"""Lines: hiding fewer saves nothing."""


@dataclass(frozen=True)
class Shown:
    """A file within a budget; ``hidden`` names what is shown by its head alone."""

    text: str
    hidden: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        return not self.hidden


def within_budget(source: str, tokens: int, shares: Mapping[str, float] | None = None) -> Shown:
    """``source`` whole where it fits, else its outline with as many bodies as fit.

    ``shares`` is the part of the time that each kernel takes, by name: those are opened first.
    """
    if estimate_tokens(source) <= tokens:
        return Shown(source)
    try:
        found = definitions(source)
    except BadEdit:  # a file that failed to parse has no outline
        return Shown(source)
    lines = lines_of(source)
    bodies = [body for definition in found if (body := _body(definition, lines)) is not None]
    closed = {body.name: body for body in bodies}
    room = tokens - estimate_tokens(_text(lines, closed))
    for body in sorted(bodies, key=lambda body: (-(shares or {}).get(body.name, 0.0), body.tokens)):
        if body.tokens <= room:
            room -= body.tokens
            del closed[body.name]
    return Shown(_text(lines, closed), tuple(closed))


def parts_named(source: str, names: tuple[str, ...], tokens: int) -> str:
    """The full text of definitions by name, while there is room."""
    lines, texts = lines_of(source), []
    for definition in definitions(source):
        if definition.name in names:
            text = "".join(lines[definition.first - 1 : definition.last])
            tokens -= estimate_tokens(text)
            if tokens >= 0:
                texts.append(text.rstrip("\n"))
    return "\n\n".join(texts)


@dataclass(frozen=True)
class _Body:
    """The lines of a function behind its head and docstring."""

    name: str
    first: int
    last: int
    indent: int
    tokens: int


def _body(definition: Definition, lines: list[str]) -> _Body | None:
    node = definition.node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    inner = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if not inner or inner[0].lineno == node.lineno:
        return None
    first = min([inner[0].lineno, *(d.lineno for d in getattr(inner[0], "decorator_list", []))])
    if definition.last - first + 1 < LEAST_HIDDEN:
        return None
    hidden = "".join(lines[first - 1 : definition.last])
    return _Body(definition.name, first, definition.last, inner[0].col_offset, estimate_tokens(hidden))


def _text(lines: list[str], closed: Mapping[str, _Body]) -> str:
    kept: list[str] = []
    at = 0
    for body in sorted(closed.values(), key=lambda body: body.first):
        kept += lines[at : body.first - 1]
        kept.append(f"{' ' * body.indent}...  # {body.last - body.first + 1} lines not shown\n")
        at = body.last
    return "".join((*kept, *lines[at:]))
