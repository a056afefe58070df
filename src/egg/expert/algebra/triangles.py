"""Masks that are known without running anything: what a value is, seen from its row and its column.

A causal mask is written in many ways: a triangle of ones compared with zero, an upper triangle of minus
infinities, two ranges compared. Each of them is one value where ``column - row`` is at most some number and
another where it is more, so that is what is followed through the operators: a :class:`Step`. Ranges are index
expressions until they are compared. What depends on anything that is computed is not known.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from egg.expert.emit.reader import through_view
from egg.expert.graph import Graph, Node
from egg.expert.index import Expr, Index, Negative, as_expr, loop_index
from egg.expert.parts import Unfit
from egg.expert.sizes import ONE, Size


@dataclass(frozen=True)
class Step:
    """``left`` where ``column - row <= last``, ``right`` beyond."""

    last: int
    left: float
    right: float


Known = float | Step | Expr

FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
    "ge": operator.ge, "logical_not": operator.not_, "logical_and": lambda a, b: bool(a) and bool(b),
    "logical_or": lambda a, b: bool(a) or bool(b), "mul": operator.mul, "add": operator.add,
    "sub": operator.sub, "neg": lambda a: -a, "cast": lambda a: a, "identity": lambda a: a,
    "bitwise_not": operator.not_,
}  # fmt: skip
"""Of numbers; ``bitwise_not`` is asked of truth values only."""


def is_causal(graph: Graph, mask: str, rows: Size, columns: Size) -> bool:
    """Whether a mask (truth: who takes part; numbers: what is added) is the causal triangle for certain."""
    value = graph.value(mask)
    index = (*(Expr(),) * (value.rank - 2), loop_index("row", rows), loop_index("column", columns))
    if value.rank < 2 or value.shape[-2:] != (rows, columns) or any(s != ONE for s in value.shape[:-2]):
        return False
    found = known(graph, mask, index)
    if not isinstance(found, Step) or found.last != 0:
        return False
    if value.dtype == "bool":
        return bool(found.left) and not found.right
    return (found.left, found.right) == (0, -math.inf)


def known(graph: Graph, name: str, index: Index) -> Known | None:
    """What a value is at an index into it, in ``row`` and ``column``; ``None`` where that is not known."""
    node = graph.producer(name)
    if node is None:
        return None
    try:
        match node.op:
            case "constant" if "range" in node.attributes:
                start, step = node["range"]
                whole = all(isinstance(number, int | Size) for number in (start, step))
                return index[0] * step + start if whole else None
            case "constant" if isinstance(node["fill"], int | float):
                return float(node["fill"])
            case "view":
                return known(graph, str(node.inputs[0]), through_view(graph, node, index))
            case "triangle":
                return _triangle(graph, node, index)
            case "pointwise":
                return _pointwise(graph, node, index)
            case "where":
                shape = graph.result(node).shape
                return _chosen([_operand(graph, str(n), shape, index) for n in node.inputs])
    except (Negative, Unfit):
        pass
    return None


def _operand(graph: Graph, name: str, shape: tuple[Size, ...], index: Index) -> Known | None:
    own = graph.value(name).shape
    skip = len(shape) - len(own)
    fitted = tuple(Expr() if size == ONE else at for at, size in zip(index[skip:], own, strict=True))
    return known(graph, name, fitted)


def _triangle(graph: Graph, node: Node, index: Index) -> Known | None:
    inner = known(graph, str(node.inputs[0]), index)
    compared = _compared(index[-1] - index[-2] - node["diagonal"] + (1 if node["upper"] else 0), "le")
    if compared is None or inner is None:
        return None
    return _chosen([compared, 0.0, inner] if node["upper"] else [compared, inner, 0.0])


def _pointwise(graph: Graph, node: Node, index: Index) -> Known | None:
    fn, shape = node["fn"], graph.result(node).shape
    names = [str(name) for name in node.inputs]
    if fn not in FUNCTIONS or (fn == "bitwise_not" and graph.value(names[0]).dtype != "bool"):
        return None
    tensors = iter([_operand(graph, name, shape, index) for name in names])
    scalars = tuple(node.get("scalars") or ()) or (None,) * len(names)
    if any(not isinstance(scalar, int | float | None) for scalar in scalars):
        return None
    operands = [next(tensors, None) if scalar is None else scalar for scalar in scalars]
    if not any(isinstance(operand, Expr) for operand in operands):
        return _applied(FUNCTIONS[fn], operands)
    sides = [_whole(operand) for operand in operands]
    if len(sides) == 1:
        return sides[0] if fn in ("cast", "identity") and not graph.result(node).floating else None
    one, two = sides
    if one is None or two is None:
        return None
    match fn:
        case "add":
            return one + two
        case "sub":
            return one - two
        case "le" | "lt":
            return _compared(one - two, fn)
        case "ge" | "gt":
            return _compared(two - one, "le" if fn == "ge" else "lt")
    return None


def _whole(operand: Known | None) -> Expr | None:
    if isinstance(operand, Expr):
        return operand
    return as_expr(int(operand)) if isinstance(operand, int | float) and operand == int(operand) else None


def _compared(difference: Expr, fn: str) -> Step | None:
    """``difference <= 0`` or ``difference < 0``, of the column's distance from the row, either way."""
    strict = 1 if fn == "lt" else 0
    sizes = {atom.name: atom for atom, _ in difference.terms if atom.name in ("row", "column")}
    if set(sizes) != {"row", "column"}:
        return None
    distance = loop_index("column", sizes["column"].size) - loop_index("row", sizes["row"].size)
    for sign in (1, -1):
        rest = difference - distance * sign
        if not rest.is_constant or any(factor.factors for _, factor in rest.terms):
            continue
        number = rest.low[0]
        if sign == 1:
            return Step(-number - strict, True, False)
        return Step(number - 1 + strict, False, True)
    return None


def _applied(function: Callable[..., float], operands: list[Known | None]) -> Known | None:
    """A function of steps is a step where they all step at the same place."""
    places = {operand.last for operand in operands if isinstance(operand, Step)}
    if len(places) > 1 or any(operand is None or isinstance(operand, Expr) for operand in operands):
        return None
    lefts = [o.left if isinstance(o, Step) else o for o in operands]
    rights = [o.right if isinstance(o, Step) else o for o in operands]
    left, right = function(*lefts), function(*rights)
    return Step(places.pop(), left, right) if places else left


def _chosen(operands: list[Known | None]) -> Known | None:
    return _applied(lambda condition, a, b: a if condition else b, operands)
