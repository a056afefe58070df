"""For which sizes of its inputs a capture is the module's program.

An export with symbolic sizes is one path through the module's code. Where the code asked for a size (``if
x.shape[0] > 4``, a broadcast, a size of 1), the export noted the answer as a guard. Here the guards become
Python conditions on the sizes of the inputs; the text of the task knows nothing of them. A capture without
symbols is for its own sizes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy
import torch
from torch import fx
from torch.utils._sympy.printers import PythonPrinter

LEAST = 2
"""Sizes of 0 and 1 are programs of their own: something is empty, or repeated."""
_FUNCTIONS: Mapping[str, Any] = {"math": math, "min": min, "max": max, "abs": abs, "__builtins__": {}}


@dataclass(frozen=True)
class Sizes:
    """The shapes of the inputs in terms of symbols, and what holds for these."""

    shapes: tuple[tuple[int | str, ...], ...]
    conditions: tuple[str, ...] = ()

    def outside(self, shapes: Sequence[Sequence[int]]) -> str:
        """Why the capture is not for these shapes, in half a sentence; empty where it is."""
        bound: dict[str, int] = {}
        for wanted, given in zip(self.shapes, shapes, strict=True):
            if len(wanted) != len(given):
                return f"an input has {len(given)} dimensions, not {len(wanted)}"
            for dim, size in zip(wanted, given, strict=True):
                if isinstance(dim, int):
                    if dim != size:
                        return f"an input has the size {size}, not {dim}"
                elif dim.isidentifier() and bound.setdefault(dim, size) != size:
                    return f"inputs have the sizes {size} and {bound[dim]} where the program had equal ones"
        if any(size < LEAST for size in bound.values()):
            return "an input has a size of 0 or 1"
        pairs = zip(self.shapes, shapes, strict=True)
        for dim, size in (pair for wanted, given in pairs for pair in zip(wanted, given, strict=True)):
            if isinstance(dim, str) and self._value(dim, bound) != size:
                return f"an input has the size {size}, not {dim}"
        for condition in self.conditions:
            if not self._value(condition, bound):
                return f"the sizes do not satisfy {condition}"
        return ""

    def _value(self, text: str, bound: Mapping[str, int]) -> Any:
        return eval(self._codes[text], dict(_FUNCTIONS), dict(bound))

    @cached_property
    def _codes(self) -> dict[str, Any]:
        texts = {*self.conditions, *(d for shape in self.shapes for d in shape if isinstance(d, str))}
        return {text: compile(text, "<sizes>", "eval") for text in texts}

    def __reduce__(self) -> tuple[Any, ...]:
        return Sizes, (self.shapes, self.conditions)


def sizes_of(module: fx.GraphModule, names: Sequence[str]) -> Sizes:
    """The sizes for which an exported graph holds; ``names``: its placeholders of inputs, in order."""
    nodes = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    tensors = [nodes[name].meta["val"] for name in names]
    shapes = tuple(tuple(map(_dimension, tensor.shape)) for tensor in tensors)
    symbols = {d for shape in shapes for d in shape if isinstance(d, str) and d.isidentifier()}
    environment: Any = next((t.fake_mode.shape_env for t in tensors if hasattr(t, "fake_mode")), None)
    if environment is None or not symbols:
        return Sizes(shapes)
    conditions: list[str] = []
    for guard in environment.guards:
        expression = environment.simplify(guard.expr)
        free = {str(symbol) for symbol in expression.free_symbols}
        if expression is sympy.true or not free:
            continue
        if not free <= symbols:
            raise UnknownSize(f"{expression} speaks of a size that no input has")
        conditions.append(PythonPrinter().doprint(expression))
    for symbol, limits in environment.var_to_range.items():
        if str(symbol) in symbols:
            conditions += _limits(str(symbol), limits)
    return Sizes(shapes, tuple(dict.fromkeys(conditions)))


class UnknownSize(Exception):
    """A guard on something that is no size of an input: the graph cannot be used at other sizes."""


def _limits(symbol: str, limits: Any) -> list[str]:
    found: list[str] = []
    if limits.lower.is_Integer and int(limits.lower) > LEAST:
        found.append(f"{symbol} >= {int(limits.lower)}")
    if limits.upper.is_Integer and int(limits.upper) < 2**31:
        found.append(f"{symbol} <= {int(limits.upper)}")
    return found


def _dimension(size: Any) -> int | str:
    if not isinstance(size, torch.SymInt):
        return int(size)
    expression = size.node.expr
    return int(expression) if expression.is_Integer else PythonPrinter().doprint(expression)
