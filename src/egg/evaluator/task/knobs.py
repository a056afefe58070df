"""The integers of a task's source that are its sizes: found, and rewritten in place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SIZE = 32
"""Smaller integers are kernel sizes, strides, heads or depths: left alone while others are enough."""


@dataclass(frozen=True)
class Knob:
    """An integer of the source that may be changed, and every place where it is written."""

    name: str
    value: int
    spans: tuple[tuple[int, int, int, int], ...]
    """Start line, start column, end line, end column (columns in UTF-8 bytes)."""

    @property
    def batch(self) -> bool:
        return bool(re.search(r"batch|^bs$|^B$", self.name, re.IGNORECASE if len(self.name) > 1 else 0))


_LINE_END = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
"""Where the parser ends a line; ``str.splitlines`` knows more ends than that."""


def find_knobs(source: str) -> list[Knob]:
    """The integers that may be turned: those named at module level, then literals of the input functions.

    Equal elements of one tuple or list are one knob (a square stays square). Literals inside
    ``get_inputs`` and ``get_init_inputs`` are one knob per value, because a feature count
    written in both must change in both.
    """
    tree = ast.parse(source)
    knobs: list[Knob] = []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if len(targets) == 1:
                knobs += _assigned(targets[0], node.value)
    literals: dict[int, list[ast.expr]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and type(inner.value) is int and inner.value >= SIZE:
                    literals.setdefault(inner.value, []).append(inner)
    knobs += [_knob(f"literal {value}", value, nodes) for value, nodes in literals.items()]
    return knobs


def of_the_constructor(source: str) -> frozenset[str]:
    """Names of the integers that ``get_init_inputs`` hands over."""
    tree = ast.parse(source)
    found = {
        name.id
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs"
        for name in ast.walk(node)
        if isinstance(name, ast.Name)
    }
    return frozenset(knob.name for knob in find_knobs(source) if knob.name.partition("[")[0] in found)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[Knob]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, its in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, its)
    elif isinstance(value, ast.BinOp) and isinstance(value.left, ast.Tuple | ast.List):
        yield from _assigned(target, value.left)
    elif isinstance(target, ast.Name) and isinstance(value, ast.Tuple | ast.List):
        places: dict[int, list[int]] = {}
        for index, item in enumerate(value.elts):
            if (number := _constant(item)) is not None and number > 1:
                places.setdefault(number, []).append(index)
        for number, indices in places.items():
            name = f"{target.id}[{','.join(map(str, indices))}]"
            yield _knob(name, number, [value.elts[i] for i in indices])
    elif isinstance(target, ast.Name) and (number := _constant(value)) is not None and number > 1:
        yield _knob(target.id, number, [value])


def _knob(name: str, value: int, nodes: Iterable[ast.expr]) -> Knob:
    spans = [(n.lineno, n.col_offset, n.end_lineno or n.lineno, n.end_col_offset or 0) for n in nodes]
    return Knob(name, value, tuple(spans))


def _constant(node: ast.expr) -> int | None:
    """The value of an integer literal, or of arithmetic on integer literals."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp):
        left, right = _constant(node.left), _constant(node.right)
        if left is None or right is None:
            return None
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.FloorDiv() if right != 0:
                return left // right
            case ast.Pow() if 0 <= right < 64:
                return left**right
            case ast.LShift() if 0 <= right < 64:
                return left << right
    return None


def rewritten(source: str, changed: list[tuple[Knob, int]]) -> str:
    """``source`` with the new values in the knobs' places; everything else, comments too, as it was."""
    lines = [line.encode() for line in _LINE_END.split(source)]
    edits = [(span, value) for knob, value in changed for span in knob.spans]
    for (first, start, last, end), value in sorted(edits, reverse=True):
        merged = lines[first - 1][:start] + str(value).encode() + lines[last - 1][end:]
        lines[first - 1 : last] = [merged] + [b""] * (last - first)
    return b"".join(lines).decode()
