"""Calls without a normal form: they stay calls of PyTorch, spelled so that a file can repeat them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from egg.expert.graph import LITERAL, Operand, Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered


def library(builder: Builder, call: Call) -> Lowered:
    """One node for the whole call: by position as far as the schema allows, the rest by name."""
    target = functional(call.target)
    inputs: list[Value] = []

    def placed(value: Any) -> Any:
        if isinstance(value, Value):
            inputs.append(value)
            return Operand(len(inputs) - 1)
        if isinstance(value, list | tuple):
            return tuple(placed(item) for item in value)
        return value

    schema = list(target._schema.arguments)
    kept = [a for a in schema if not _left_out(a, call.arguments.get(a.name))]
    last = max((schema.index(a) for a in kept if not a.kwarg_only), default=-1)
    arguments = tuple(placed(call.arguments.get(a.name)) for a in schema[: last + 1])
    keywords = {a.name: placed(call.arguments[a.name]) for a in kept if a.kwarg_only}
    made = builder.node(
        "library",
        inputs,
        call.results,
        call.name,
        target=spelling(target),
        arguments=arguments,
        keywords=keywords,
    )
    several = len(made) + len(call.empty) > 1 or _makes_list(target)
    return made if several else made[0]


def literal(builder: Builder, call: Call) -> Lowered:
    (made,) = builder.node(
        "library", [], call.results, LITERAL, target=LITERAL, arguments=(call["numbers"],), keywords={}
    )
    return made


def functional(target: Any) -> Any:
    """The form of an operator that writes nothing: ``index_put`` for ``index_put_``."""
    name = target._schema.name.removeprefix("aten::")
    if not target._schema.is_mutable or not name.endswith("_") or name.startswith("__"):
        return target
    packet = getattr(torch.ops.aten, name.rstrip("_"), None)
    return getattr(packet, target._overloadname, target) if packet is not None else target


def spelling(target: Any) -> str:
    """As a person writes it where there is such a name: ``torch.bincount``; else through ``torch.ops``."""
    name = target._schema.name.removeprefix("aten::")
    public: Callable[..., Any] | None = getattr(torch, name, None)
    if callable(public) and not name.startswith("_"):
        return f"torch.{name}"
    return f"torch.ops.{target._schema.name.replace('::', '.')}.{target._overloadname}"


def _left_out(argument: Any, value: Any) -> bool:
    """Defaults go without saying, and where a tensor lives follows from its neighbours."""
    if argument.name in ("pin_memory", "layout"):
        return True
    if not argument.has_default_value():
        return False
    default = argument.default_value
    return value is default or (isinstance(value, type(default)) and value == default)


def _makes_list(target: Any) -> bool:
    returns = target._schema.returns
    return len(returns) == 1 and "List" in str(returns[0].type)
