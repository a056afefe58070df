"""One call of a graph as Python.

An ATen operator is spelled as people spell it (``F.linear``, ``torch.softmax``, ``x.transpose``) where a
function or method of PyTorch is that operator under its own signature: the generated bindings are, wrappers
written in Python are not. Everything else is spelled in full, ``torch.ops.aten.name.overload``.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.node import _get_qualified_name
from torch.nn import functional

_INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.floordiv: "//",
    operator.mod: "%", operator.pow: "**", operator.matmul: "@", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=",
    operator.eq: "==", operator.ne: "!=", operator.lshift: "<<", operator.rshift: ">>",
}  # fmt: skip
_SIGNS = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
_IN_PLACE = {operator.iadd: "add_", operator.imul: "mul_", operator.isub: "sub_", operator.itruediv: "div_"}
_BUILTINS = {getattr: "getattr", max: "max", min: "min", float: "float", int: "int", len: "len", abs: "abs"}
_SPELLED_OUT = frozenset(
    {"to", "einsum", "tensor_split", "size", "sym_size", "copy", "index_put", "index_put_", "where"}
)
"""Operators whose function or method of that name takes other arguments, or does more."""
_SILENT = {"pin_memory": (False, None), "layout": (torch.strided, None), "non_blocking": (False,)}
"""Arguments that say nothing."""


class Unprintable(Exception):
    """A call that no text stands for."""


def call_text(
    node: fx.Node,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    where: str,
    elsewhere: Callable[[torch.device], bool],
) -> str:
    """The call that ``node`` makes, its operands already texts; ``where`` is the device it runs on."""
    target: Any = node.target
    named = {name: value for name, value in kwargs.items() if not _silent(name, value)}

    def shown(value: Any) -> str:
        if isinstance(value, torch.device):
            return f'torch.device("{value.type}")' if elsewhere(value) else where
        return literal(value, shown)

    if node.op == "call_method":
        return f"{_operand(args[0])}.{target}({_arguments(args[1:], named, shown)})"
    if target is operator.getitem:
        return f"{_operand(args[0])}[{_index(args[1], shown)}]"
    if target in _SIGNS:
        return f"{_SIGNS[target]}{_operand(args[0])}"
    if target in _INFIX and len(args) == 2:
        return f"({shown(args[0])} {_INFIX[target]} {shown(args[1])})"
    if target in _IN_PLACE:
        return f"{_operand(args[0])}.{_IN_PLACE[target]}({shown(args[1])})"
    if target is operator.setitem:
        return f"{_operand(args[0])}.__setitem__({shown(args[1])}, {shown(args[2])})"
    if target in _BUILTINS:
        return f"{_BUILTINS[target]}({_arguments(args, named, shown)})"
    if isinstance(target, torch._ops.OpOverload):
        return _operator(node, args, named, shown)
    return f"{_qualified(target)}({_arguments(args, named, shown)})"


def _operator(
    node: fx.Node, args: Sequence[Any], named: Mapping[str, Any], shown: Callable[[Any], str]
) -> str:
    target: Any = node.target
    namespace, name = target._schema.name.split("::")
    overload = target._overloadname
    if namespace != "aten":
        if name == "convert_element_type":
            return f"{_operand(args[0])}.to({shown(args[1])})"
        if name == "iota":
            return _counted(args[0], named, shown)
        if namespace not in ("prims", "prim", "quantized", "torchvision"):
            raise Unprintable(
                f"the program calls {target._schema.name}, an operator that is not PyTorch's own"
            )
        return f"torch.ops.{namespace}.{name}.{overload}({_arguments(args, named, shown)})"
    if name in ("sym_size", "size") and len(args) == 2:
        return f"{_operand(args[0])}.shape[{shown(args[1])}]"
    if name in ("item", "_local_scalar_dense"):
        return f"{_operand(args[0])}.item()"
    if name == "lift_fresh_copy":
        return f"{_operand(args[0])}.clone()"
    if name == "to" and overload == "dtype" and not named and len(args) == 2:
        return f"{_operand(args[0])}.to({shown(args[1])})"
    if name == "_to_copy" and named.keys() == {"dtype"}:
        return f"{_operand(args[0])}.to({shown(named['dtype'])})"
    if name == "_weight_norm" and isinstance(dims := _but_one(node, args), list):
        size = f"torch.linalg.vector_norm({shown(args[0])}, 2, {dims}, True)"
        return f"{shown(args[0])} * ({shown(args[1])} / {size})"
    given = _arguments(args, named, shown)
    if name not in _SPELLED_OUT and not overload.endswith("out"):
        if isinstance(getattr(functional, name, None), types.BuiltinFunctionType):
            return f"F.{name}({given})"
        if isinstance(getattr(torch, name, None), types.BuiltinFunctionType):
            return f"torch.{name}({given})"
        first = target._schema.arguments[0].name if target._schema.arguments else ""
        if (
            first == "self"
            and args
            and isinstance(getattr(torch.Tensor, name, None), types.MethodDescriptorType)
        ):
            return f"{_operand(args[0])}.{name}({_arguments(args[1:], named, shown)})"
    return f"torch.ops.aten.{name}.{overload}({given})"


def _counted(length: Any, named: Mapping[str, Any], shown: Callable[[Any], str]) -> str:
    """``prims.iota``, which takes how many numbers there are, as ``torch.arange``, which takes where they
    end."""
    start, step = named.get("start", 0), named.get("step", 1)
    numbers = all(type(number) is int for number in (length, start, step))
    end = start + length * step if numbers else f"{shown(start)} + {shown(length)} * {shown(step)}"
    kind = {name: named[name] for name in ("dtype", "device") if name in named}
    return f"torch.arange({_arguments([start], {}, shown)}, {end}, {_arguments([step], kind, shown)})"


def _but_one(node: fx.Node, args: Sequence[Any]) -> list[int] | None:
    """The dimensions that a weight norm runs over: all but one, or all of them."""
    weight = node.args[0].meta.get("val") if isinstance(node.args[0], fx.Node) else None
    if not isinstance(weight, torch.Tensor):
        return None
    kept = args[2] if len(args) > 2 else 0
    return [dim for dim in range(weight.dim()) if dim != kept]


def _qualified(target: Any) -> str:
    """The dotted name of a function of PyTorch or of ``math``."""
    name = _get_qualified_name(target) if callable(target) else ""
    if name.startswith("torch."):
        return name.replace("torch.nn.functional.", "F.")
    raise Unprintable(f"the program calls {name or target}, which is not PyTorch's own")


def _arguments(args: Sequence[Any], named: Mapping[str, Any], shown: Callable[[Any], str]) -> str:
    return ", ".join([*map(shown, args), *(f"{name}={shown(value)}" for name, value in named.items())])


def _index(value: Any, shown: Callable[[Any], str]) -> str:
    if isinstance(value, tuple) and value:
        items = ", ".join(_index(item, shown) for item in value)
        return f"{items}," if len(value) == 1 else items
    if isinstance(value, slice):
        start, stop = ("" if v is None else shown(v) for v in (value.start, value.stop))
        return f"{start}:{stop}" + ("" if value.step is None else f":{shown(value.step)}")
    if value is Ellipsis:
        return "..."
    return shown(value)


def _operand(value: Any) -> str:
    """What stands before a dot."""
    text = literal(value)
    return f"({text})" if isinstance(value, int | float) else text


def _silent(name: str, value: Any) -> bool:
    return name in _SILENT and any(value is usual or value == usual for usual in _SILENT[name])


def literal(value: Any, shown: Callable[[Any], str] | None = None) -> str:
    """A value as Python: numbers, dtypes and layouts by name, lists and tuples of such."""
    each = shown or literal
    if isinstance(value, str) and type(value) is not str:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, bool | int | float | complex | str) or value is None:
        return repr(value)
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(each, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(each, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, slice):
        return f"slice({each(value.start)}, {each(value.stop)}, {each(value.step)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{each(k)}: {each(v)}" for k, v in value.items()) + "}"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        node: Any = value.node
        if node.has_hint():
            return repr(node.hint)
    if isinstance(value, torch.device):
        return f'torch.device("{value.type}")'
    raise Unprintable(f"the program uses {value!r} of type {type(value).__name__}")
