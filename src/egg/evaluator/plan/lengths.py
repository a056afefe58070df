"""How large the memory is that functions of a plan read: the lengths of what kernels or the host fill.

A kernel fills new memory, and a function of the library is handed all of it: as much as that has is the
library's share. So the lengths of such memory, and of tables, belong to the function that reads it. Memory
that kernels alone read may have any length: how many parts they leave to one another is their own affair.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from egg.evaluator.plan.sizes import Scales

MEMORY = "memory"
"""Name of the expression that stands for it: what made it, then its lengths."""
LIKE = "_like"
TABLE = "torch.tensor"


def memory(made: ast.expr, room: ast.expr, whole: Callable[[ast.expr], ast.expr]) -> ast.expr:
    """What stands for memory that ``made`` filled and the call ``room`` gave. ``whole`` replaces names."""
    assert isinstance(room, ast.Call)
    name = ast.unparse(room.func)
    if name.endswith(LIKE):
        parts = [whole(room.args[0])]
    elif name == TABLE:
        parts = [ast.Constant(length) for length in _shape(room.args[0])]
    else:
        parts = _sizes(room)
    return ast.Call(ast.Name(MEMORY, ast.Load()), [made, *parts], [])


def is_memory(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == MEMORY


def compared_lengths(a: ast.AST, b: ast.AST, scales: Scales) -> tuple[str, list[tuple[ast.AST, ast.AST]]]:
    """In which lengths two such memories differ, and what else of them is to be compared."""
    assert isinstance(a, ast.Call)
    assert isinstance(b, ast.Call)
    if len(a.args) != len(b.args):
        return "memory of other dimensions", []
    rest: list[tuple[ast.AST, ast.AST]] = []
    for one, two in zip(a.args, b.args, strict=True):
        lengths = [part.value for part in (one, two) if isinstance(part, ast.Constant)]
        first, second = lengths if len(lengths) == 2 else (None, None)
        if not isinstance(first, int) or not isinstance(second, int):
            rest.append((one, two))
        elif not scales.explains_length(first, second):
            return f"memory of lengths {first} and {second}", []
    return "", rest


def is_table(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == TABLE and bool(value.args)


def _sizes(room: ast.Call) -> list[ast.expr]:
    """Of ``empty([2, 3])``, ``empty(2, 3)`` and ``x.new_empty(size=[2, 3])``."""
    given = [keyword.value for keyword in room.keywords if keyword.arg == "size"] + room.args
    if given and isinstance(given[0], ast.List | ast.Tuple):
        return given[0].elts
    return given


def _shape(table: ast.expr) -> list[int]:
    shape: list[int] = []
    while isinstance(table, ast.List | ast.Tuple):
        shape.append(len(table.elts))
        if not table.elts:
            break
        table = table.elts[0]
    return shape
