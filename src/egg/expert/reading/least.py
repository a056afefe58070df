"""The smallest sizes at which nothing that a program computes is empty and no slice reaches too far.

PyTorch shortens ``x[:4]`` of three rows and makes ``x[1:]`` of one row empty. The graph has 4 rows and
``rows - 1`` there, so the program is this graph only where all sizes it computes are 1 or more and every
slice lies within its operand. Both are found again at smaller values of one size, all others as they are.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import CodeType
from typing import Any

from egg.expert.graph import Graph, Origin
from egg.expert.reading.branches import callers
from egg.expert.sizes import Size, Symbol, as_size

Values = Mapping[str, Any]


def least_sizes(graph: Graph) -> dict[str, int]:
    """By named size of the caller the least value, where that is more than 1."""
    program = _Sizes(graph)
    found = {symbol.name: program.least(symbol) for symbol in callers(graph)}
    return {name: least for name, least in found.items() if least > 1}


def slices_within(graph: Graph) -> tuple[tuple[str, str], ...]:
    """How far slices reach and what of, where no least value of a size guarantees that."""
    found: list[tuple[str, str]] = []
    for node in graph:
        if node.op != "view" or node["how"] != "slice":
            continue
        source, result = graph.value(str(node.inputs[0])), graph.result(node)
        for start, step, whole, part in zip(
            node["starts"], node["steps"], source.shape, result.shape, strict=True
        ):
            reaching = [symbol.name for size in (as_size(start), part) for symbol in size.factors]
            roots = {root for name in reaching for root in _roots(graph, name)}
            if roots - {root for symbol in whole.factors for root in _roots(graph, symbol.name)}:
                last = part.code() if step == 1 else f"({part.code()} - 1) * {step} + 1"
                reach = last if start == 0 else f"{as_size(start).code()} + {last}"
                found.append((reach, whole.code()))
    return tuple(dict.fromkeys(found))


def selections_within(graph: Graph) -> tuple[tuple[str, str], ...]:
    """How many elements are taken of rows and how long those are, where one has a name that the other has
    not."""
    found: list[tuple[str, str]] = []
    for node in graph:
        if node.op == "selection" and not node["whole"]:
            whole, taken = (graph.value(str(n)).shape[node["dim"]] for n in (node.inputs[0], node.outputs[0]))
            if whole.factors or taken.factors:
                found.append((taken.code(), whole.code()))
    return tuple(dict.fromkeys(found))


def heads_within(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Heads of queries and heads that keys were repeated to, both ways, where they have different names:
    how often is a number of the program, and another module has other heads."""
    found: list[tuple[str, str]] = []
    for node in graph:
        if node.op != "attention":
            continue
        query, *others = (graph.value(str(name)) for name in node.inputs[:3])
        for other in others:
            for ours, theirs in zip(query.shape[:-2], other.shape[:-2], strict=False):
                if ours.value == theirs.value and ours != theirs:
                    found += [(ours.code(), theirs.code()), (theirs.code(), ours.code())]
    return tuple(dict.fromkeys(found))


def _roots(graph: Graph, name: str) -> set[str]:
    """The sizes that one is computed from."""
    text = graph.symbols.get(name, "")
    used = set(re.findall(r"[A-Za-z_]\w*", text)) & graph.symbols.keys() - {name}
    if ".shape[" in text or not used:
        return {name}
    return {root for other in used for root in _roots(graph, other)}


@dataclass
class _Sizes:
    graph: Graph
    _codes: dict[str, CodeType] = field(default_factory=dict)
    _own: dict[str, Any] = field(default_factory=dict)
    """Sizes that no other is computed into, at the program's own size."""

    def __post_init__(self) -> None:
        known = {symbol.name: symbol for size in _all(self.graph) for symbol in size.factors}
        for name, text in self.graph.symbols.items():
            if ".shape[" not in text and "self." not in text:
                self._codes[name] = compile(text, "<size>", "eval")
            elif name in known:
                self._own[name] = known[name].values[0]

    def least(self, symbol: Symbol) -> int:
        """Halves the range between a value that is too small and one that is not: sizes grow with it."""
        small, enough = 0, symbol.values[0]
        if self._holds(symbol.name, 1) or not self._holds(symbol.name, enough):
            return 1
        while enough - small > 1:
            middle = (small + enough) // 2
            small, enough = (small, middle) if self._holds(symbol.name, middle) else (middle, enough)
        return enough

    def _holds(self, name: str, value: int) -> bool:
        values: dict[str, Any] = {**self._own, name: value}
        for other, code in self._codes.items():
            with contextlib.suppress(NameError, ZeroDivisionError):  # a number of forward; a fraction of 0
                values.setdefault(other, eval(code, {"__builtins__": {}, "float": float}, values))
        try:
            shapes = [v.shape for v in self.graph.values.values() if v.origin is Origin.NODE]
            dims = (_at(size, values) for shape in shapes for size in shape)
            return all(n >= 1 for n in dims) and all(self._slices(values))
        except KeyError:
            return False

    def _slices(self, values: Values) -> Iterator[bool]:
        for node in self.graph:
            if node.op != "view" or node["how"] != "slice":
                continue
            source = self.graph.value(str(node.inputs[0]))
            result = self.graph.result(node)
            rows = zip(node["starts"], node["steps"], source.shape, result.shape, strict=True)
            for start, step, whole, part in rows:
                first = _at(as_size(start), values)
                yield first >= 0 and first + (_at(part, values) - 1) * step < _at(whole, values)


def _at(size: Size, values: Values) -> Any:
    return size.number * prod(values[symbol.name] for symbol in size.factors)


def _all(graph: Graph) -> Iterator[Size]:
    for value in graph.values.values():
        yield from (*value.shape, *value.stride)
