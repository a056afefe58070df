"""Other values of a constructor's arguments, and of the numbers that ``forward`` is given."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from egg.core.errors import MachineError, TaskError
from egg.core.source import Task
from egg.evaluator.task.dimensions import Place, Rehearsal, Varied, leaves
from egg.evaluator.task.program import Program

MOST_ARGUMENTS = 12
MOST_WORDS = 4
LARGEST = 1 << 12
"""Of integers far from their own: of a larger one a weight may take all memory."""
WORDS = (
    ("mean", "sum", "none"),
    ("zeros", "reflect", "replicate", "circular"),
    ("constant", "reflect", "replicate", "circular"),
    ("none", "tanh"),
    ("nearest", "bilinear", "bicubic"),
    ("relu", "gelu", "tanh", "sigmoid", "silu"),
)
"""Strings that PyTorch takes in each other's place."""


def other_values(value: Any) -> list[Any]:
    """Other values of a simple argument, those most likely to be legal first; none of anything else.

    Numbers of things grow first: an index into a smaller table would lie beyond it.
    """
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        near = [value + 1, 2 * value, value - 1, value // 2]
        return [v for v in dict.fromkeys(near) if v != value and (v > 0 or value <= 0)]
    if isinstance(value, float) and math.isfinite(value):
        if abs(value) < 1e-2:
            return [0.125, 0.5]
        return [value * 0.5, value * 0.75]
    if isinstance(value, str):
        alike = (word for family in WORDS if value in family for word in family)
        return [word for word in dict.fromkeys(alike) if word != value]
    return []


def far_values(value: Any, largest: int = 0) -> list[Any]:
    """Values above one, of the other sign, and zero; of an integer one beyond ``largest`` as well."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int):
        beyond = [largest + abs(value) + 1] if 0 < largest < LARGEST else []
        return [v for v in dict.fromkeys((0, -1, -value, *beyond)) if v != value]
    if isinstance(value, float) and math.isfinite(value):
        return [v for v in dict.fromkeys((2.0 * abs(value) + 1.5, -value, 0.0)) if v != value]
    return []


@lru_cache(maxsize=32)
def other_arguments(task: Task) -> tuple[tuple[str, Any], ...]:
    """For each simple constructor argument another value with which the program builds and runs."""
    found: list[tuple[str, Any]] = []
    with Program.load(task) as program:
        for name, value in _given(program):
            legal = (v for v in other_values(value) if runs(program, {name: v}))
            if (other := next(legal, None)) is not None:
                found.append((name, other))
    return tuple(found)


@lru_cache(maxsize=32)
def far_arguments(task: Task) -> tuple[tuple[str, Any], ...]:
    """Of each constructor argument values far from its own: numbers, and the strings of the task's text.

    Only those with which the program builds and runs. A formula that holds for small positive numbers alone
    fails there, and so does a file that never reads the argument.
    """
    with Program.load(task) as program:
        given = list(_given(program))
        if not given:
            return ()
        sizes = [size for _, t in leaves(Rehearsal(program).given) for size in t.shape]
        return tuple(
            (name, other)
            for name, value in given
            for other in _far(task, value, max(sizes, default=0))
            if runs(program, {name: other})
        )


def _far(task: Task, value: Any, largest: int) -> list[Any]:
    if isinstance(value, str):
        others = [*other_values(value), *_words(task.source)]
        return [word for word in dict.fromkeys(others) if word != value][:MOST_WORDS]
    return far_values(value, largest)


def _words(source: str) -> Iterator[str]:
    """Strings that a task's text compares something with, or looks up."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare(comparators=others):
                held: list[ast.expr | None] = list(others)
            case ast.Dict(keys=keys):
                held = list(keys)
            case ast.MatchValue(value=value):
                held = [value]
            case _:
                continue
        for inner in (leaf for part in held if part is not None for leaf in ast.walk(part)):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value


@lru_cache(maxsize=64)
def jointly(task: Task, arguments: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """As many of ``arguments`` as the program takes at once."""
    held: tuple[tuple[str, Any], ...] = ()
    with Program.load(task) as program:
        for argument in arguments:
            if len(arguments) == 1 or runs(program, dict((*held, argument))):
                held = (*held, argument)
    return held


def runs(program: Program, arguments: Mapping[str, Any], sizes: Mapping[Place, int] | None = None) -> bool:
    """Whether the program builds and runs so, on tensors without data."""
    try:
        return Rehearsal(Varied.of(program, arguments=arguments)).runs(sizes or {})
    except (TaskError, MachineError):
        return False


def _given(program: Program) -> list[tuple[str, Any]]:
    try:
        return list(program.bound_arguments().items())[:MOST_ARGUMENTS]
    except (TaskError, TypeError):
        return []
