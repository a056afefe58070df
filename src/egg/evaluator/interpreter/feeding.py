"""Whether a product follows from a load of the same iteration: such loads the compiler pipelines by itself.

It follows operands of ``tl.dot`` back through the loop's body, as far as the beginning of the iteration. Here
names are followed through the text of the loop, from the statement that loads onwards: a name that is
assigned from what follows from the load follows from it, too. Both branches of a condition are followed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import CodeType
from typing import Any

_PRODUCTS = ("dot", "dot_scaled")


def feeds_dot(code: CodeType, line: int, names: Mapping[str, Any]) -> bool:
    """Whether a product of the innermost loop around ``line`` of a kernel follows from what it loads."""
    tree = _tree(code)
    at = line - code.co_firstlineno + 1
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For) and _covers(n, at)] if tree else []
    if not loops:
        return False
    following: set[str] = set()
    for statement in _simple(max(loops, key=lambda loop: loop.lineno).body):
        loads = _covers(statement, at)
        if not loads and not following & _read(statement):
            continue
        if any(_is_product(call, following, names, loads) for call in ast.walk(statement)):
            return True
        following |= _assigned(statement)
    return False


@lru_cache(maxsize=64)
def _tree(code: CodeType) -> ast.Module | None:
    try:
        lines, _ = inspect.getsourcelines(code)
    except OSError:
        return None
    return ast.parse(textwrap.dedent("".join(lines)))


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _simple(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in their order, those of conditions and inner loops among them."""
    for statement in body:
        inner = [*getattr(statement, "body", ()), *getattr(statement, "orelse", ())]
        if inner:
            yield from _simple(inner)
        else:
            yield statement


def _read(statement: ast.stmt) -> set[str]:
    named = (n for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    found = {name.id for name in named}
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        found.add(statement.target.id)
    return found


def _assigned(statement: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _is_product(node: ast.AST, following: set[str], names: Mapping[str, Any], loads: bool) -> bool:
    """Whether a call is a product whose factors follow from the load, or are loaded in its own statement.

    What the product is added to is not followed. A function of the file's that has a product in it counts
    with all its arguments.
    """
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    factors = [*node.args, *(k.value for k in node.keywords if k.arg != "acc")]
    if called == "dot":
        factors = [*node.args[:2], *(k.value for k in node.keywords if k.arg in ("input", "other"))]
    elif called not in _PRODUCTS and not _multiplies(node.func, names):
        return False
    inside = [n for factor in factors for n in ast.walk(factor)]
    return any(isinstance(n, ast.Name) and n.id in following for n in inside) or (
        loads and any(isinstance(n, ast.Call) for n in inside)
    )


def _multiplies(function: ast.expr, names: Mapping[str, Any]) -> bool:
    found = getattr(names.get(function.id), "fn", None) if isinstance(function, ast.Name) else None
    code = getattr(found, "__code__", None)
    return code is not None and any(name in code.co_names for name in _PRODUCTS)
