"""The straight-line methods of a plan: a closed list of statements over names that were bound before.

Each statement makes tensors by an allowed function or method, launches a kernel, or changes in place what
was made in the same call. Memory is followed by name: what may lie in an input, a parameter or a buffer is
written to only where it is a buffer that the task itself moves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from triton import language

from egg.evaluator.plan.stores import Stores, parameters, type_of
from egg.evaluator.plan.vocabulary import (
    FRESH,
    IN_PLACE,
    METHODS,
    MOVES,
    OPTIONS,
    RENORMED,
    VALUES,
    WRITTEN,
    WRITTEN_BY_NAME,
    is_function,
)  # fmt: skip

Roots = frozenset[str]
"""Inputs, parameters and buffers in whose memory a tensor may lie."""
NEW: Roots = frozenset()
LIBRARY = ("torch", "triton")


class _Wrong(Exception):
    def __init__(self, node: ast.AST, what: str) -> None:
        super().__init__(what)
        self.line, self.what = getattr(node, "lineno", 0), what


@dataclass
class Straight:
    """Reads methods of one plan."""

    given: tuple[str, ...]
    state: frozenset[str]
    moving: frozenset[str]
    kernels: Mapping[str, ast.FunctionDef]
    stores: Stores
    names: dict[str, Roots] = field(default_factory=dict)

    def read(self, method: ast.FunctionDef, taken: set[str]) -> Iterator[tuple[int, str]]:
        """What is wrong in it, with lines; ``taken`` are the names of the module."""
        wanted = ["self", *self.given]
        a = method.args
        plain = [*a.posonlyargs, *a.args]
        if (
            [p.arg for p in plain] != wanted or a.vararg or a.kwarg or a.kwonlyargs or a.defaults
            or method.decorator_list or method.returns or any(p.annotation for p in plain)
            or getattr(method, "type_params", None)
        ):  # fmt: skip
            yield (
                method.lineno,
                f"{method.name} must take {', '.join(wanted)} and have no decorators or defaults",
            )
        if shared := set(self.given) & taken:
            yield method.lineno, f"{method.name} takes {sorted(shared)[0]}, which the module binds too"
        self.names = {name: frozenset((name,)) for name in self.given}
        self.taken = taken | {"self"}
        for node in method.body[:-1]:
            try:
                self._statement(node)
            except _Wrong as wrong:
                yield wrong.line, wrong.what
        last = method.body[-1]
        try:
            if not isinstance(last, ast.Return) or last.value is None:
                raise _Wrong(last, f"{method.name} must end with a return of names")
            self._returned(last.value)
        except _Wrong as wrong:
            yield wrong.line, wrong.what

    # statements

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                roots = self._made(value)
                for name in names:
                    self._bind(name, roots)
            case ast.Expr(value=ast.Call(func=ast.Subscript()) as call):
                self._launch(call)
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name)) as call) if _changes(name):
                self._made(call)
            case _:
                raise _Wrong(node, f"not a statement of a plan: `{ast.unparse(node).splitlines()[0][:80]}`")

    def _bind(self, target: ast.expr, roots: Roots) -> None:
        if not isinstance(target, ast.Name):
            raise _Wrong(target, f"assigns to `{ast.unparse(target)[:60]}`, which is no name")
        if target.id in self.names or target.id in self.taken or target.id.startswith("__"):
            raise _Wrong(target, f"binds {target.id} a second time")
        self.names[target.id] = roots

    def _launch(self, call: ast.Call) -> None:
        subscript = call.func
        assert isinstance(subscript, ast.Subscript)
        name = subscript.value.id if isinstance(subscript.value, ast.Name) else ""
        if name not in self.kernels:
            raise _Wrong(
                call, f"launches `{ast.unparse(subscript.value)[:60]}`, which is no kernel of the file"
            )
        grid = subscript.slice
        if not isinstance(grid, ast.Tuple) or not all(_is_count(n) for n in grid.elts) or len(grid.elts) > 3:
            raise _Wrong(call, "a grid that is not a tuple of numbers")
        named = parameters(self.kernels[name])
        stored = self.stores.of(name)
        given = [*zip(named, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
        if len(call.args) > len(named) or any(isinstance(a, ast.Starred) for a in call.args):
            raise _Wrong(call, f"kernel {name} takes {len(named)} arguments")
        for parameter, value in given:
            if parameter is None:
                raise _Wrong(call, "arguments that are not written out")
            if parameter not in named and (parameter not in OPTIONS or not is_literal(value)):
                raise _Wrong(call, f"{parameter} is not among the options of a launch that a plan holds")
            roots = self._argument(value)
            if stored and type_of(parameter) in stored and not (_is_descriptor(value) or is_literal(value)):
                raise _Wrong(call, f"kernel {name} asks the type of the address {parameter}: use .element_ty")
            if stored is None or parameter in stored:
                self._writes(call, roots, f"kernel {name} may store through {parameter}")

    def _argument(self, node: ast.expr) -> Roots:
        """Of a launch: a tensor, a number, a kernel, a type, a descriptor, or several."""
        if isinstance(node, ast.Name) and node.id in self.kernels:
            return NEW
        if _path(node)[:2] == ["triton", "language"] and len(_path(node)) == 3 and is_type(_path(node)[2]):
            return NEW
        if isinstance(node, ast.Tuple):
            return NEW.union(*map(self._argument, node.elts))
        if isinstance(node, ast.Call) and _is_descriptor(node):
            rest = [*node.args[1:], *(k.value for k in node.keywords)]
            if not node.args or not all(map(is_literal, rest)):
                raise _Wrong(node, "a descriptor of something else than a tensor and numbers")
            return self._operand(node.args[0])
        return NEW if is_literal(node) else self._operand(node)

    def _writes(self, node: ast.AST, roots: Roots, what: str) -> None:
        kept = sorted(roots - self.moving)
        if kept:
            raise _Wrong(node, f"{what}, which may lie in the memory of {', '.join(kept[:3])}")

    # expressions

    def _made(self, node: ast.expr) -> Roots:
        """A call that makes a tensor, or a part of one."""
        if isinstance(node, ast.Subscript):
            return self._part(node)
        if not isinstance(node, ast.Call):
            raise _Wrong(node, f"not a call of a plan: `{ast.unparse(node)[:80]}`")
        path = _path(node.func)
        if path[:1] and path[0] in LIBRARY:
            dotted = ".".join(path)
            if not is_function(dotted) and dotted != "torch.tensor":
                raise _Wrong(node, f"{dotted} is not among the functions of a plan")
            roots = self._given(node)
            if path[-1] == "as_strided" and roots and (len(node.args) != 3 or node.keywords):
                raise _Wrong(node, "a place in memory: only in a tensor of the call's own is it known")
            if path[-1].endswith("_") and node.args:
                self._writes(node, self._operand(node.args[0]), f"{dotted} writes to its argument")
            self._statistics(node, dotted)
            return NEW if path[-1] in FRESH else roots
        if not isinstance(node.func, ast.Attribute) or node.func.attr not in METHODS:
            raise _Wrong(node, f"`{ast.unparse(node.func)[:60]}` is not among the calls of a plan")
        receiver, name = self._operand(node.func.value), node.func.attr
        if name == "as_strided":
            raise _Wrong(node, "write torch.as_strided")
        roots = self._given(node)
        if _changes(name):
            self._writes(node, receiver, f".{name} writes")
            return receiver
        copied = name == "to" and any(k.arg == "copy" and _is_true(k.value) for k in node.keywords)
        return NEW if copied or name in FRESH else receiver | roots

    def _statistics(self, call: ast.Call, dotted: str) -> None:
        """What a function writes to beside its result."""
        named = {k.arg: k.value for k in call.keywords}
        place = IN_PLACE.get(dotted, len(call.args))
        if place < len(call.args) and not _is_false(call.args[place]):
            raise _Wrong(call, "a function is called to work in place")
        if dotted.rpartition(".")[2] in RENORMED:
            norm = call.args[3] if len(call.args) > 3 else named.get("max_norm")
            if norm is not None and not (isinstance(norm, ast.Constant) and norm.value is None):
                raise _Wrong(call, f"{dotted} scales its table in place")
        if dotted in WRITTEN:
            *places, moves = WRITTEN[dotted]
            flag = call.args[moves : moves + 1] or [named[name] for name in MOVES if name in named]
            if flag and _is_false(flag[0]):
                return
            moved = [call.args[p] for p in places if p < len(call.args)]
            for value in [*moved, *(named[name] for name in WRITTEN_BY_NAME if name in named)]:
                self._writes(call, self._value(value), f"{dotted} moves statistics")

    def _given(self, call: ast.Call) -> Roots:
        """The arguments of a function: tensors, literals, and the device of a tensor."""
        found = NEW
        for value in call.args:
            makes = _changes(_path(call.func)[-1]) if _path(call.func) else False
            found |= self._made(value) if makes and isinstance(value, ast.Call) else self._value(value)
        for keyword in call.keywords:
            if keyword.arg in (None, "out", "generator"):
                raise _Wrong(call, f"the argument {keyword.arg or '**'} is not among those of a plan")
            if keyword.arg == "device":
                self._device(keyword.value)
            elif keyword.arg == "inplace" and not _is_false(keyword.value):
                raise _Wrong(call, "a function is called to work in place")
            else:
                found |= self._value(keyword.value)
        return found

    def _device(self, node: ast.expr) -> None:
        if isinstance(node, ast.Attribute) and node.attr == "device":
            self._operand(node.value)
        elif not (isinstance(node, ast.Constant) and node.value == "cuda"):
            raise _Wrong(node, "a device that is not that of a tensor")

    def _value(self, node: ast.expr) -> Roots:
        if is_literal(node):
            return NEW
        if isinstance(node, ast.List | ast.Tuple):
            return NEW.union(*map(self._value, node.elts))
        return self._operand(node)

    def _operand(self, node: ast.expr) -> Roots:
        """A name, a tensor of the task's state, or a member of an input."""
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                raise _Wrong(node, f"{node.id} is not bound before")
            return self.names[node.id]
        held = _state_path(node)
        if held is not None:
            if held not in self.state:
                raise _Wrong(node, f"self.{held} is no parameter or buffer of the task's")
            return frozenset((held,))
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            base = node.value
            while isinstance(base, ast.Subscript) and isinstance(base.slice, ast.Constant):
                base = base.value
            if isinstance(base, ast.Name) and base.id in self.given and type(node.slice.value) in (int, str):
                return self.names[base.id]
        raise _Wrong(node, f"`{ast.unparse(node)[:60]}` is no name")

    def _part(self, node: ast.Subscript) -> Roots:
        roots = self._operand(node.value)
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for index in indices:
            if isinstance(index, ast.Slice):
                if not all(b is None or _is_number(b) for b in (index.lower, index.upper, index.step)):
                    raise _Wrong(node, "a slice that is not of numbers")
            elif not _is_number(index) and not (
                isinstance(index, ast.Constant) and index.value in (None, ...)
            ):
                self._operand(index)
        return roots

    def _returned(self, node: ast.expr) -> None:
        match node:
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:
                    self._returned(item)
            case ast.Dict(keys=keys, values=values):
                if not all(isinstance(k, ast.Constant) for k in keys):
                    raise _Wrong(node, "a dictionary with keys that are no constants")
                for value in values:
                    self._returned(value)
            case _ if is_literal(node):
                pass
            case _:
                self._operand(node)


def is_literal(node: ast.expr) -> bool:
    """Numbers, texts, plain values of torch by name, and tuples and lists of these."""
    match node:
        case ast.Constant(value=value):
            return value is None or type(value) in (bool, int, float, str)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return is_literal(operand) and not isinstance(operand, ast.Tuple | ast.List)
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return all(map(is_literal, items))
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return name in VALUES
    return False


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def is_type(name: str) -> bool:
    """Whether the language has a type of numbers of this name."""
    return type(vars(language).get(name)) is language.dtype


def _is_descriptor(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _path(node.func) == ["TensorDescriptor"]


def _is_number(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_count(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 0


def _changes(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _path(node: ast.expr) -> list[str]:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _state_path(node: ast.expr) -> str | None:
    """The name in the task's state that ``self.a[0].b`` stands for; ``None`` for what does not begin so."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
        elif isinstance(node.slice, ast.Constant) and type(node.slice.value) is int:
            parts.append(str(node.slice.value))
        else:
            return None
        node = node.value
    return ".".join(reversed(parts)) if isinstance(node, ast.Name) and node.id == "self" else None
