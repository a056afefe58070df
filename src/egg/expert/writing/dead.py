"""Values that a kernel or a host function computes and never reads, left out.

Patterns write the coordinates of a tile once for all of their kernels; one that needs fewer of them would
keep the rest. A compiler drops those, a reader stumbles over them. An assignment goes where its name is read
nowhere in the function and where making the value does nothing else: loads and arithmetic, no store, no
atomic operation, no call of another function. What was only read by such an assignment goes with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from egg.expert.emit.names import read_names
from egg.expert.emit.triton.effects import only_computes


def without_dead(text: str) -> str:
    """A function's text without its dead values; every other line stays as it is."""
    while dead := {row for statement in _dead(ast.parse(text)) for row in _rows(statement)}:
        lines = text.split("\n")
        text = "\n".join(line for row, line in enumerate(lines, 1) if row not in dead)
    return text


def _rows(statement: ast.stmt) -> range:
    return range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def _dead(tree: ast.Module) -> Iterator[ast.stmt]:
    read = read_names(tree)
    for body in _bodies(tree):
        dead = [s for s in body if _target(s) not in (None, *read)]
        if len(dead) < len(body):  # a block keeps at least one statement
            yield from dead


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """Blocks inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                yield from (
                    getattr(node, field, []) for field in ("body", "orelse") if _has_block(node, field)
                )


def _has_block(node: ast.AST, field: str) -> bool:
    return isinstance(getattr(node, field, None), list)


def _target(statement: ast.stmt) -> str | None:
    """The variable that a statement sets, where it does nothing else."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_pure(value):
            return name
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _is_pure(value):
            return name
    return None


def _is_pure(value: ast.expr) -> bool:
    return all(only_computes(node) for node in ast.walk(value) if isinstance(node, ast.Call))
