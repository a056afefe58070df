"""What a condition says of some values: a truth or none, how clearly, and which comparison decided.

The nodes that come here were let through by :func:`egg.knowledge.condition.parse`; how truth, strength and
reason are meant is explained there.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from egg.analysis.features import Feature
from egg.core.bottleneck import Value

TRUTHS = {"true": True, "false": False}
MARKS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}
_COMPUTED = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


@dataclass(frozen=True)
class Found:
    """A truth, or ``None`` where there is none; and how telling the reason is, to choose among equals."""

    truth: bool | None
    strength: float
    reason: str
    telling: int = 0


class _Undefined(Exception):
    """A value that does not exist; says why."""


class Interpreter:
    def __init__(self, values: Mapping[str, Value], vocabulary: Mapping[str, Feature]) -> None:
        self._values, self._vocabulary = values, vocabulary

    def interpret(self, node: ast.expr, wanted: bool) -> Found:
        """Whether the node is as wanted: ``False`` asks for its opposite."""
        match node:
            case ast.Constant(value=bool(value)):
                return _found(value is wanted, 1.0, "always" if value is wanted else "never")
            case ast.Name(id=name) if name in TRUTHS:
                return _found(TRUTHS[name] is wanted, 1.0, "always" if TRUTHS[name] is wanted else "never")
            case ast.Name(id=name):
                try:
                    value = bool(self._value(node))
                except _Undefined as why:
                    return Found(None, 0.0, str(why))
                return _found(value is wanted, 1.0, name if value else f"not {name}")
            case ast.UnaryOp(operand=part):
                return self.interpret(part, not wanted)
            case ast.BoolOp(op=op, values=parts):
                found = [self.interpret(part, wanted) for part in parts]
                return _every(found) if isinstance(op, ast.And) is wanted else _some(found)
            case ast.Compare():
                found = list(self._pairs(node, wanted))
                return _every(found) if wanted else _some(found)
        raise TypeError(f"not a condition: {ast.dump(node)}")  # parse() lets nothing else through

    def _pairs(self, node: ast.Compare, wanted: bool) -> Iterator[Found]:
        for op, (left, right) in zip(node.ops, pairwise([node.left, *node.comparators]), strict=True):
            try:
                if isinstance(right, ast.Tuple):
                    yield self._listed(left, right.elts, isinstance(op, ast.In) is wanted)
                else:
                    mark = MARKS[type(op)]
                    yield self._compared(left, mark if wanted else _OPPOSITE[mark], right)
            except _Undefined as why:
                yield Found(None, 0.0, str(why))

    def _listed(self, left: ast.expr, options: Sequence[ast.expr], wanted: bool) -> Found:
        value, allowed = self._value(left), [self._value(option) for option in options]
        shown = ", ".join(_figure(option) for option in allowed)
        reason = f"{spelled(left)} is {_figure(value)}" + ("" if value in allowed else f", none of {shown}")
        return _found((value in allowed) is wanted, 1.0, reason, 1)

    def _compared(self, left: ast.expr, mark: str, right: ast.expr) -> Found:
        one, other = self._value(left), self._value(right)
        holds = _COMPARED[mark](one, other)
        if isinstance(one, str) or isinstance(other, str):
            reason = f"{spelled(left)} is {one}" + ("" if one == other else f", not {other}")
            return _found(holds, 1.0, reason, 1)
        reason = f"{_side(left, one)} {mark if holds else _OPPOSITE[mark]} {_side(right, other)}"
        step = 1 if self._whole(left) and self._whole(right) else 0
        match mark:
            case ">":
                strength = _beyond(one, other)
            case ">=":
                strength = _beyond(one, other - step)
            case "<":
                strength = _beyond(other, one)
            case "<=":
                strength = _beyond(other + step, one)
            case _:
                strength = 1.0
        return _found(holds, strength, reason, 2)

    def _value(self, node: ast.expr) -> float | str:
        match node:
            case ast.Constant(value=str() as word):
                return word
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.Name(id=name):
                feature = self._vocabulary[name]
                return _typed(name, feature.kind, self._values.get(name, feature.neutral))
            case ast.UnaryOp(op=op, operand=part):
                value = self._number(part)
                return -value if isinstance(op, ast.USub) else value
            case ast.BinOp(op=op, left=left, right=right):
                one, other = self._number(left), self._number(right)
                if isinstance(op, ast.Div) and other == 0:
                    raise _Undefined(f"{spelled(node)}: division by zero")
                value = _COMPUTED[type(op)](one, other)
                if not math.isfinite(value):
                    raise _Undefined(f"{spelled(node)}: no finite number")
                return value
        raise TypeError(f"not a value: {ast.dump(node)}")

    def _number(self, node: ast.expr) -> float:
        value = self._value(node)
        assert not isinstance(value, str)
        return value

    def _whole(self, node: ast.expr) -> bool:
        """Whether it counts: then *at least 2* is *more than 1*, and so strong."""
        match node:
            case ast.Constant(value=int() | float() as value):
                return value == int(value)
            case ast.Name(id=name):
                return self._vocabulary[name].kind == "integer"
            case ast.UnaryOp(operand=part):
                return self._whole(part)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult(), left=left, right=right):
                return self._whole(left) and self._whole(right)
        return False


def _typed(name: str, kind: str, value: object) -> float | str:
    match kind, value:
        case "word", str():
            return value
        case "truth", bool():
            return float(value)
        case (("number" | "integer"), int() | float()):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
    raise _Undefined(f"{name}: no usable value")


def _found(truth: bool, strength: float, reason: str, telling: int = 0) -> Found:
    return Found(truth, strength if truth else 0.0, reason, telling)


def _every(parts: Sequence[Found]) -> Found:
    """The first that fails decides, else the first that is not known, else the weakest."""
    for truth in (False, None):
        for part in parts:
            if part.truth is truth:
                return part
    return min(parts, key=lambda part: (part.strength, -part.telling))


def _some(parts: Sequence[Found]) -> Found:
    """The strongest that holds decides, else the first that is not known, else all failed."""
    holding = [part for part in parts if part.truth]
    if holding:
        return max(holding, key=lambda part: (part.strength, part.telling))
    for part in parts:
        if part.truth is None:
            return part
    reasons = list(dict.fromkeys(part.reason for part in parts))
    return Found(False, 0.0, " and ".join(reasons))


def _beyond(high: float, low: float) -> float:
    """How far ``high`` is above ``low``: 1 from a factor of two on, or where zero lies between."""
    if high <= low:
        return 0.0
    if low <= 0 <= high:
        return 1.0
    larger, smaller = (high, low) if low > 0 else (-low, -high)
    return min(1.0, math.log2(larger) - math.log2(smaller))


def unsigned(node: ast.expr) -> ast.expr:
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node


def spelled(node: ast.expr) -> str:
    return ast.unparse(node)


def _side(node: ast.expr, value: float) -> str:
    if isinstance(unsigned(node), ast.Constant):
        return _figure(value)
    return f"{spelled(node)} {'' if isinstance(node, ast.Name) else '= '}{_figure(value)}"


def _figure(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if value == int(value) and abs(value) < 1e7 else f"{value:.4g}"
