"""Values, sizes and numbers of a graph as ``forward`` writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from egg.expert.graph import Graph, Node, Operand, Origin
from egg.expert.index import Expr
from egg.expert.parts import Unfit, spelled
from egg.expert.sizes import Size

UNCHECKED = {
    "linalg_inv": "inv_ex", "inverse": "inv_ex", "linalg_solve": "solve_ex", "linalg_cholesky": "cholesky_ex",
}  # fmt: skip
"""Functions of ``torch.linalg`` that wait for an error code from the GPU, and the same without waiting: the
code is noted, and ``forward`` raises at its end (:mod:`egg.expert.emit.failures`). So they can be recorded in
a CUDA graph."""
MOST_ROWS = 32
"""Of matrices whose factorisation is one launch for a whole batch."""


def unchecked(graph: Graph, node: Node) -> str | None:
    """The function of ``torch.linalg`` that a call is written as to be recorded: of small matrices only."""
    name = str(node["target"]).split(".")[3 if str(node["target"]).startswith("torch.ops.") else -1]
    found = UNCHECKED.get(name) or UNCHECKED.get(f"linalg_{name}")
    sizes = graph.value(str(node.inputs[0])).shape[-2:] if found is not None else ()
    return found if all(size.value <= MOST_ROWS for size in sizes) else None


def number_text(value: Any) -> str:
    """A number, or a size, as Python has it; infinities are no names there."""
    if isinstance(value, Size | Expr):
        return value.code()
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def per_dimension(values: Any) -> str:
    """A setting per dimension: ``2`` where all agree, else a tuple."""
    if isinstance(values, int | Size):
        return number_text(values)
    texts = [number_text(value) for value in values]
    if len(set(texts)) == 1:
        return texts[0]
    return f"({', '.join(texts)})"


def call(function: str, *arguments: str | None, **keywords: str | None) -> str:
    """A call; keywords that are ``None`` are left out, and so are absent arguments at the end."""
    given = list(arguments)
    while given and given[-1] is None:
        given.pop()
    named = [f"{name}={value}" for name, value in keywords.items() if value is not None]
    return f"{function}({', '.join([*map(str, given), *named])})"


def unless(default: Any, value: Any, spell: Callable[[Any], str] = number_text) -> str | None:
    """A setting, left out where it is what PyTorch takes anyway."""
    if value is None:
        return None
    same = all(item == default for item in value) if isinstance(value, list | tuple) else value == default
    return None if same else spell(value)


@dataclass(frozen=True)
class Speller:
    """Spells what the nodes of one graph are made of."""

    graph: Graph

    def operand(self, node: Node, place: int = 0) -> str:
        return spelled(self.graph, str(node.inputs[place]))

    def optional(self, node: Node, place: int) -> str | None:
        name = node.inputs[place] if place < len(node.inputs) else None
        return None if name is None else spelled(self.graph, name)

    def listed(self, names: Iterable[str | None]) -> str:
        return ", ".join("None" if name is None else spelled(self.graph, name) for name in names)

    def size(self, size: Size) -> str:
        return size.code()

    def whole(self, value: Expr) -> str:
        return value.code()

    def shape(self, shape: tuple[Size, ...]) -> str:
        """As one argument that every function takes: a tuple."""
        texts = [size.code() for size in shape]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def scalar_operands(self, node: Node) -> tuple[list[str | None], list[bool]]:
        """A pointwise node's operands in ATen's order, numbers among them, and which are tensors.

        ``scalars`` has a place for every operand, ``None`` where a tensor stands; a place that is left over
        when the tensors are used up is an operand that is absent.
        """
        tensors = [spelled(self.graph, name) for name in node.inputs if name is not None]
        operands: list[str | None] = []
        kinds: list[bool] = []
        for value in node.get("scalars") or ():
            kinds.append(value is None and bool(tensors))
            operands.append(number_text(value) if value is not None else tensors.pop(0) if tensors else None)
        return [*operands, *tensors], [*kinds, *(True for _ in tensors)]

    def device(self) -> str:
        """Where the program runs: with its first tensor."""
        for name in self.graph.arguments:
            if name is not None:
                return f"{spelled(self.graph, name)}.device"
        for name, value in self.graph.values.items():
            if value.origin is not Origin.NODE:
                return f"{spelled(self.graph, name)}.device"
        raise Unfit("a program without any tensor runs nowhere")

    def transposed_parameter(self, name: str) -> str | None:
        """The matrix whose transpose a value is, if it is a parameter of the module."""
        producer = self.graph.producer(name)
        if producer is None or producer.op != "view" or producer["how"] != "permute":
            return None
        source = self.graph.value(str(producer.inputs[0]))
        held = source.origin is Origin.PARAMETER and tuple(producer["dims"]) == (1, 0)
        return source.name if held else None

    def argument(self, value: Any, node: Node) -> str:
        """An argument of a call that is left as it is, however it is nested."""
        if isinstance(value, Operand):
            return self.operand(node, value.place)
        if isinstance(value, list | tuple):
            texts = [self.argument(item, node) for item in value]
            return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"
        if isinstance(value, str):
            return f'"{value}"'
        if type(value).__name__ == "device":
            return self.device()
        return number_text(value)


def begun(graph: Graph, node: Node) -> str:
    """The tensor that a scatter puts its elements into: the one it begins as, or a copy of that."""
    given, made = graph.value(str(node.inputs[2])), graph.result(node)
    text = spelled(graph, given.name)
    if given.shape != made.shape:
        text += f".view({', '.join(size.code() for size in made.shape)})"
    return text if node.get("in_place") else f"{text}.clone()"
