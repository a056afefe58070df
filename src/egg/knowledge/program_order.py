"""How a kernel turns its program's number into a place: does it regroup programs, or walk over many places?

Both are read from where the number goes. Names are followed through the assignments of the
function, which is enough for the ways people write this.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

_GROUP = re.compile(r"^(group|group_size|swizzle)(_?[mn])?$|^group_[mn]", re.IGNORECASE)
"""A parameter that says how many rows or columns of tiles make a group; groups of channels are not meant."""
_PROGRAMS = re.compile(r"num_?(sms?|programs?|ctas?|workers?)|^(sms|programs|grid(_size)?)$", re.IGNORECASE)
"""A parameter that says how many programs were launched."""
_DEEPEST = 12

_PID, _PROGRAM_COUNT, _DIV, _MOD = "pid", "programs", "div", "mod"


def strides_by_programs(kernel: ast.FunctionDef) -> bool:
    """A loop that starts at the program's own number and goes on by how many programs there are."""
    bound = _bindings(kernel)
    for node in ast.walk(kernel):
        match node:
            case ast.For(iter=ast.Call(func=func, args=[start, _, step, *_])) if _last(func) in _RANGES:
                if _PID in _origins(start, bound) and _counts_programs(step, bound):
                    return True
            case ast.While():
                inside = [n for n in ast.walk(node) if isinstance(n, ast.AugAssign)]
                if any(isinstance(n.op, ast.Add) and _counts_programs(n.value, bound) for n in inside):
                    return True
    return False


_RANGES = frozenset({"range", "static_range"})


def regroups(kernel: ast.FunctionDef) -> bool:
    """Whether neighbouring programs are sent to a block of tiles rather than along a row of them.

    The mark of it is a second division: within its group of programs, a program's place is divided
    once more by the size of the group, which depends on where the group begins, or has the name of one.
    """
    bound = _bindings(kernel)
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and _last(node.func) == "swizzle2d":
            return True
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv)):
            continue
        within = _origins(node.left, bound)
        if _MOD not in within:
            continue
        by = _origins(node.right, bound)
        if _DIV in by or any(_GROUP.search(name) for name in _names(node.right, bound)):
            return True
    return False


Bindings = Mapping[str, tuple[ast.expr, ...]]


def _bindings(kernel: ast.FunctionDef) -> Bindings:
    """What each name of the function was set to, all of it."""
    found: dict[str, tuple[ast.expr, ...]] = {}
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = (*found.get(name, ()), value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                found[name] = (*found.get(name, ()), value)
            case _:
                pass
    return found


def _origins(node: ast.expr, bound: Bindings, seen: frozenset[str] = frozenset()) -> set[str]:
    """Where a value comes from: the program's number, divided or its remainder taken on the way."""
    found: set[str] = set()
    match node:
        case ast.Name(id=name) if name not in seen and len(seen) < _DEEPEST:
            for value in bound.get(name, ()):
                found |= _origins(value, bound, seen | {name})
        case ast.Call(func=func) if _last(func) == "program_id":
            found = {_PID}
        case ast.Call(func=func) if _last(func) == "num_programs":
            found = {_PROGRAM_COUNT}
        case ast.BinOp(left=left, op=op, right=right):
            before = _origins(left, bound, seen)
            found = before | _origins(right, bound, seen)
            if _PID in before and isinstance(op, ast.FloorDiv):
                found.add(_DIV)
            if _PID in before and isinstance(op, ast.Mod):
                found.add(_MOD)
        case ast.Call(args=args):
            for part in args:
                found |= _origins(part, bound, seen)
        case ast.UnaryOp(operand=part) | ast.Attribute(value=part):
            found = _origins(part, bound, seen)
        case _:
            pass
    return found


def _names(node: ast.expr, bound: Bindings) -> set[str]:
    """Names in an expression, and in what its own names were set to."""
    direct = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    values = [value for name in direct for value in bound.get(name, ())]
    return direct | {n.id for value in values for n in ast.walk(value) if isinstance(n, ast.Name)}


def _counts_programs(node: ast.expr, bound: Bindings) -> bool:
    return _PROGRAM_COUNT in _origins(node, bound) or any(_PROGRAMS.search(n) for n in _names(node, bound))


def _last(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""
