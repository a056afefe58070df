"""Loads whose mask is a larger tile than their addresses: Triton before 3.9 wants the addresses of all of it.

A value that is the same along one side of a tile (the bias of a channel, at all positions) is loaded from
addresses along the other side alone. Where it is only there at some positions (inside a border that its
reader pads) its load has the tile's mask, which does not fit: from one address no Triton takes it, from
a row of addresses only newer ones do, and the interpreter takes both. So the addresses are repeated over
the mask. Which sides an expression has follows from the lines of the kernel: program ids, sizes and loop
counters have none, ``arange`` has one, brackets say where it lies.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from itertools import zip_longest

from egg.expert.emit.names import Edit, edited

Sides = tuple[bool, ...] | None
"""For every axis of a tile whether it has more than one element; none of a number, ``None``: not known."""

NUMBERS = frozenset({"program_id", "num_programs"})
ELEMENTWISE = frozenset(
    {"where", "minimum", "maximum", "load", "exp", "exp2", "log", "log2", "abs", "sqrt", "rsqrt", "floor",
     "ceil", "fma", "sigmoid", "cdiv", "sin", "cos", "erf", "clamp", "multiple_of", "max_contiguous"}
)  # fmt: skip
_MADE = frozenset({"zeros", "full"})


@lru_cache(maxsize=512)
def with_tile_addresses(text: str) -> str:
    """The kernel with addresses repeated over the mask of their load where that has more sides."""
    if "mask=" not in text:
        return text
    tree = ast.parse(text)
    sides = _Sides(tree)
    edits: list[Edit] = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load" and node.args):
            continue
        at, masks = node.args[0], [keyword.value for keyword in node.keywords if keyword.arg == "mask"]
        own, wanted = sides.of(at), sides.of(masks[0]) if masks else None
        if own is None or wanted is None or (both := _joined(own, wanted)) == own:
            continue
        known = [(part, sides.of(part)) for part in _conditions(masks[0])]
        parts = [part for part, found in known if found is not None and _joined(own, found) == both]
        end = at.end_col_offset or 0
        repeated = ast.unparse(parts[0] if parts else masks[0])
        edits.append((at.end_lineno or 0, end, end, f" + 0 * ({repeated})"))
    return edited(text, edits)


def _conditions(mask: ast.expr) -> list[ast.expr]:
    """What a mask is the conjunction of."""
    match mask:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return [*_conditions(left), *_conditions(right)]
    return [mask]


class _Sides:
    """The sides of a kernel's variables and of what is computed from them."""

    def __init__(self, tree: ast.Module) -> None:
        self._names: dict[str, Sides] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.arg):
                self._names[node.arg] = ()
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AugAssign | ast.For)]
        assigned.sort(key=lambda node: node.lineno)
        for _ in range(2):
            for node in assigned:
                self._assign(node)

    def _assign(self, node: ast.Assign | ast.AugAssign | ast.For) -> None:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, made in list(zip(targets, map(self.of, values), strict=True)):
                    self._name(target, made)
                return
            case ast.For(target=target):
                targets, made = [target], ()
            case ast.AugAssign(target=target, value=value):
                targets, made = [target], self._joint((target, value))
            case ast.Assign(targets=targets, value=value):
                made = self.of(value)
        for target in targets:
            self._name(target, made)

    def _name(self, target: ast.expr, made: Sides) -> None:
        if isinstance(target, ast.Name):
            before = self._names.get(target.id, made)
            self._names[target.id] = made if made == before else None
        else:
            inner = (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name))
            self._names |= dict.fromkeys(inner)

    def of(self, node: ast.expr) -> Sides:
        match node:
            case ast.Constant():
                return ()
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.Subscript(value=value, slice=ast.Tuple(elts=places)):
                return self._in_brackets(self.of(value), places)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="tl" | "libdevice" as module), attr=name)):
                return self._called(node, name, module)
            case ast.Call(func=ast.Attribute(value=value, attr="to")):
                return self.of(value)
            case ast.BinOp(left=left, right=right):
                return self._joint((left, right))
            case ast.UnaryOp(operand=operand):
                return self.of(operand)
            case ast.Compare(left=left, comparators=others):
                return self._joint((left, *others))
            case ast.BoolOp(values=values):
                return self._joint(values)
        return None

    def _called(self, node: ast.Call, name: str, module: str) -> Sides:
        if name == "arange":
            return (True,)
        if name in NUMBERS:
            return ()
        if name in _MADE and isinstance(shape := node.args[0], ast.Tuple | ast.List):
            return tuple(not (isinstance(size, ast.Constant) and size.value == 1) for size in shape.elts)
        return self._joint(node.args) if name in ELEMENTWISE or module == "libdevice" else None

    def _in_brackets(self, own: Sides, places: Iterable[ast.expr]) -> Sides:
        """``x[:, None]``."""
        left, made = list(own or ()), list[bool]()
        for place in places:
            if isinstance(place, ast.Slice) and left:
                made.append(left.pop(0))
            elif isinstance(place, ast.Constant) and place.value is None:
                made.append(False)
            else:
                return None
        return tuple(made) if own is not None and not left else None

    def _joint(self, nodes: Iterable[ast.expr]) -> Sides:
        made: Sides = ()
        for node in nodes:
            one = self.of(node)
            if one is None:
                return None
            made = _joined(made, one)
        return made


def _joined(one: tuple[bool, ...], other: tuple[bool, ...]) -> tuple[bool, ...]:
    """Of two operands: axes that one of them lacks are its first ones."""
    pairs = zip_longest(reversed(one), reversed(other), fillvalue=False)
    return tuple(a or b for a, b in pairs)[::-1]
