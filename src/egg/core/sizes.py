"""Dimensions as arithmetic on named sizes: ``2 * pairs``, ``in_features // groups``."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping

Dimension = int | str
"""A number, a name, or arithmetic on names; equal names are equal sizes."""

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def names_in(dimension: Dimension) -> frozenset[str]:
    """The sizes that a dimension mentions."""
    return frozenset() if isinstance(dimension, int) else frozenset(_names(_parsed(dimension)))


def value_of(dimension: Dimension, sizes: Mapping[str, int]) -> int:
    return dimension if isinstance(dimension, int) else _value(_parsed(dimension), sizes)


def _parsed(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is no arithmetic on sizes") from error


def _names(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Constant(value=int()):
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            yield from _names(left)
            yield from _names(right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield from _names(operand)
        case _:
            raise ValueError(f"{ast.unparse(node)!r} is no arithmetic on sizes")


def _value(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Name(id=name):
            return sizes[name]
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, sizes), _value(right, sizes))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, sizes)
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic on sizes")


def multiple_of(dimension: Dimension) -> tuple[str, int] | None:
    """The name and the factor of ``2 * pairs`` or ``pairs * 2``, which a size seen there settles."""
    if isinstance(dimension, int):
        return None
    match _parsed(dimension):
        case (
            ast.BinOp(left=ast.Constant(value=int(factor)), op=ast.Mult(), right=ast.Name(id=name))
            | ast.BinOp(left=ast.Name(id=name), op=ast.Mult(), right=ast.Constant(value=int(factor)))
        ) if factor > 0:
            return name, factor
    return None
