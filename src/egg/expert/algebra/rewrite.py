"""What a rule says: this value instead, or these nodes instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from egg.expert.emit.names import numbered
from egg.expert.graph import Graph, Node, Value, contiguous_stride
from egg.expert.sizes import Size


@dataclass(frozen=True)
class Rewrite:
    """In the place of a node with one result: another value, or nodes of which the last makes that result."""

    value: str = ""
    nodes: tuple[Node, ...] = ()
    values: tuple[Value, ...] = ()
    """New ones among the results of ``nodes``."""


Rule = Callable[[Graph, Node], Rewrite | None]


def same(value: str) -> Rewrite:
    """Another value is the same thing."""
    return Rewrite(value)


def instead(*nodes: Node, values: Sequence[Value] = ()) -> Rewrite:
    return Rewrite("", nodes, tuple(values))


@dataclass
class Draft:
    """Nodes for a rewrite, built one after the other; :meth:`done` gives the last the old node's result."""

    graph: Graph
    node: Node
    nodes: list[Node] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)

    def value(self, name: str) -> Value:
        return next((v for v in self.values if v.name == name), None) or self.graph.value(name)

    def add(
        self,
        op: str,
        inputs: Sequence[str | None],
        shape: Sequence[Size],
        stem: str,
        dtype: str = "",
        **attributes: Any,
    ) -> str:
        """A node with one new result."""
        base = f"{self.node.output}_{stem}"
        taken = self.graph.values.keys() | {v.name for v in self.values}
        name = numbered(base, taken)
        sizes = tuple(shape)
        kind = dtype or self.graph.result(self.node).dtype
        self.values.append(Value(name, sizes, kind, contiguous_stride(sizes)))
        self.nodes.append(Node(op, tuple(inputs), (name,), attributes, stem))
        return name

    def done(self) -> Rewrite:
        """The last node makes what the old one made."""
        last = replace(self.nodes[-1], outputs=self.node.outputs, label=self.node.label)
        return Rewrite("", (*self.nodes[:-1], last), tuple(self.values[:-1]))


def only_reader(graph: Graph, name: str) -> bool:
    """Whether one node alone reads a value, so that nothing is computed twice if it is taken apart."""
    return len(graph.consumers[name]) == 1 and name not in graph.results


def made_by(graph: Graph, name: str | None, op: str) -> Node | None:
    node = graph.producer(name) if name is not None else None
    return node if node is not None and node.op == op else None


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
