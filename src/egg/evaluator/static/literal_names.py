"""Names that a file computes from its own literals, as constructors do.

``for part in ("key", "value"): setattr(self, part + "_scale", ...)`` sets two attributes, and both are
written in the file: the name is as well known as in ``self.key_scale = ...``.
"""

from __future__ import annotations

import ast
from itertools import product

from egg.evaluator.static.scopes import Program

MOST = 64
"""Names of one expression."""


def literal_names(program: Program, name: ast.expr) -> frozenset[str]:
    """Every string that ``name`` can be; empty where one of them is not made of literals of the file."""
    match name:
        case ast.Constant(value=str(text)):
            return frozenset([text])
        case ast.Name():
            return _counted_over(program, name)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _joined(program, [left, right])
        case ast.JoinedStr(values=values):
            return _joined(program, values)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return literal_names(program, value)
    return frozenset()


def _joined(program: Program, parts: list[ast.expr]) -> frozenset[str]:
    found, many = [literal_names(program, part) for part in parts], 1
    for one in found:
        many *= len(one)
    return frozenset(map("".join, product(*found))) if many <= MOST else frozenset()


def _counted_over(program: Program, name: ast.Name) -> frozenset[str]:
    """The strings of the loops whose variable a local name is, if it is nothing else."""
    owner = program.function_of(name)
    bindings, local = program.lookup(name.id, program.scope_of[name])
    if owner is None or not local or any(scope.node is not owner for _, scope in bindings):
        return frozenset()
    stores = [n for n in ast.walk(owner) if isinstance(n, ast.Name) and n.id == name.id]
    stores = [n for n in stores if not isinstance(n.ctx, ast.Load)]
    found = [_of_loop(program, store) for store in stores]
    if len(stores) != len(bindings) or not all(found):
        return frozenset()
    names = frozenset().union(*found)
    return names if len(names) <= MOST else frozenset()


def _of_loop(program: Program, store: ast.Name) -> frozenset[str]:
    """What a loop over literals gives its variable, or one of its variables."""
    target: ast.expr = store
    up, place = program.parent_of[store], None
    if isinstance(up, ast.Tuple):
        place, target, up = up.elts.index(store), up, program.parent_of[up]
    if not isinstance(up, ast.For) or up.target is not target:
        return frozenset()
    rows = up.iter.elts if isinstance(up.iter, ast.Tuple | ast.List) else []
    items = [_item(row, place) for row in rows]
    texts = [i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str)]
    return frozenset(texts) if len(texts) == len(rows) else frozenset()


def _item(row: ast.expr, place: int | None) -> ast.expr | None:
    """What a loop's variable is in one round: the row, or the part of it in its place."""
    if place is None:
        return row
    if not isinstance(row, ast.Tuple | ast.List) or any(isinstance(one, ast.Starred) for one in row.elts):
        return None
    return row.elts[place] if place < len(row.elts) else None
