"""How a kernel turns its program's number into a place: does it regroup programs, or walk over many places?

Both are read from where the number goes. Names are followed through the assignments of the
function, which is enough for the ways people write this. Each name is settled once, however often it
is set and read: the file is foreign, and looking at it must not take longer than reading it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_GROUP = re.compile(r"^(group|group_size|swizzle)(_?[mn])?$|^group_[mn]", re.IGNORECASE)
"""A parameter that says how many rows or columns of tiles make a group; groups of channels are not meant."""
_PROGRAMS = re.compile(r"num_?(sms?|programs?|ctas?|workers?)|^(sms|programs|grid(_size)?)$", re.IGNORECASE)
"""A parameter that says how many programs were launched."""
_DEEPEST = 12
"""Names that stand between a value and the program's number, at most."""

_PID, _PROGRAM_COUNT, _DIV, _MOD = "pid", "programs", "div", "mod"


def strides_by_programs(kernel: ast.FunctionDef) -> bool:
    """A loop that starts at the program's own number and goes on by how many programs there are."""
    flow = _flow(kernel)
    for node in ast.walk(kernel):
        match node:
            case ast.For(iter=ast.Call(func=func, args=[start, _, step, *_])) if _last(func) in _RANGES:
                if _PID in flow.origins_of(start) and flow.counts_programs(step):
                    return True
            case ast.While():
                inside = [n for n in ast.walk(node) if isinstance(n, ast.AugAssign)]
                if any(isinstance(n.op, ast.Add) and flow.counts_programs(n.value) for n in inside):
                    return True
    return False


_RANGES = frozenset({"range", "static_range"})


def regroups(kernel: ast.FunctionDef) -> bool:
    """Whether neighbouring programs are sent to a block of tiles rather than along a row of them.

    The mark of it is a second division: within its group of programs, a program's place is divided
    once more by the size of the group, which depends on where the group begins, or has the name of one.
    """
    flow = _flow(kernel)
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and _last(node.func) == "swizzle2d":
            return True
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv)):
            continue
        if _MOD not in flow.origins_of(node.left):
            continue
        if _DIV in flow.origins_of(node.right) or flow.is_named(node.right, flow.groups):
            return True
    return False


@dataclass
class _Flow:
    """Where the names of a function come from."""

    origins: dict[str, frozenset[str]] = field(default_factory=dict)
    """The program's number, how many programs there are; divided or its remainder taken on the way."""
    groups: set[str] = field(default_factory=set)
    """Names that say the size of a group, and those set from one that does."""
    counts: set[str] = field(default_factory=set)
    """The same, of how many programs were launched."""

    def origins_of(self, node: ast.expr) -> frozenset[str]:
        match node:
            case ast.Name(id=name):
                return self.origins.get(name, frozenset())
            case ast.Call(func=func) if _last(func) == "program_id":
                return frozenset({_PID})
            case ast.Call(func=func) if _last(func) == "num_programs":
                return frozenset({_PROGRAM_COUNT})
            case ast.BinOp(left=left, op=op, right=right):
                before = self.origins_of(left)
                mark = _MARKS.get(type(op))
                found = before | self.origins_of(right)
                return found | {mark} if mark and _PID in before else found
            case ast.Call(args=args):
                return frozenset().union(*map(self.origins_of, args))
            case ast.UnaryOp(operand=part) | ast.Attribute(value=part):
                return self.origins_of(part)
            case _:
                return frozenset()

    def is_named(self, node: ast.expr, known: set[str]) -> bool:
        return any(name in known for name in _names(node))

    def counts_programs(self, node: ast.expr) -> bool:
        return _PROGRAM_COUNT in self.origins_of(node) or self.is_named(node, self.counts)


_MARKS: dict[type[ast.operator], str] = {ast.FloorDiv: _DIV, ast.Mod: _MOD}


def _flow(kernel: ast.FunctionDef) -> _Flow:
    """Follow every name through the assignments of the function, a step further with each round."""
    assigned = list(_assignments(kernel))
    flow = _Flow()
    for pattern, known in ((_GROUP, flow.groups), (_PROGRAMS, flow.counts)):
        known |= {name for name in _names(kernel) if pattern.search(name)}
        known |= {name for name, value in assigned if any(map(pattern.search, _names(value)))}
    for _ in range(_DEEPEST):
        before = dict(flow.origins)
        for name, value in assigned:
            flow.origins[name] = flow.origins.get(name, frozenset()) | flow.origins_of(value)
        if flow.origins == before:
            break
    return flow


def _assignments(kernel: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(kernel):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                yield name, value
            case _:
                pass


def _names(node: ast.AST) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name))


def _last(node: ast.expr) -> str:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""
