"""Selections of a few elements from long rows: the best of each piece of a row, then the best of those.

A kernel orders a row that it holds in registers, so a long row is cut into pieces that are short enough. The
first elements of a row are among the first of its pieces, and what is left is a row of as many as that, with
the places that they came from beside them. Pieces and rows are rows to all that follows: fusion puts what
comes before into the first kernel, and what comes behind into the last.

A row that is no multiple of its pieces is continued with elements that come behind all others; of equal
elements the first is first, so none of them is ever taken before one of the row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from egg.expert.emit.names import numbered
from egg.expert.emit.ordering import in_turns, longest
from egg.expert.graph import FLOATS, Graph, Node, Value, contiguous_stride
from egg.expert.sizes import Size, Symbol

PIECE = 4096
"""Elements of a piece, at most."""


def cut_selections(graph: Graph) -> Graph:
    """The graph with selections of pieces in the place of those whose rows are too long."""
    while node := next((node for node in graph.nodes if _is_long(graph, node)), None):
        graph = _Cut(graph, node).done()
    return graph


def _is_long(graph: Graph, node: Node) -> bool:
    """Few elements of a long row. Many of them stay the library's: networks on 64-bit numbers in the few
    programs that long rows are were slower on an H200 (100 of 91,000 elements)."""
    if node.op != "selection" or node["whole"]:
        return False
    source = graph.value(str(node.inputs[0]))
    long = source.shape[node["dim"]].value > longest(graph, node)
    return long and in_turns(graph, node) and source.dtype in FLOATS


@dataclass
class _Cut:
    """One selection in two steps."""

    graph: Graph
    node: Node

    def __post_init__(self) -> None:
        self._values = dict(self.graph.values)
        self._symbols = dict(self.graph.symbols)
        self._nodes: list[Node] = []

    def done(self) -> Graph:
        node, dim = self.node, int(self.node["dim"])
        source, first = self.graph.value(str(node.inputs[0])), self.graph.value(node.outputs[0])
        before, behind = source.shape[:dim], source.shape[dim + 1 :]
        count, taken = source.shape[dim], first.shape[dim]
        pieces, length = self._pieces(count)
        rows, padded = source, pieces * length
        if padded != count:
            rows = self._padded(source, dim, padded)
        rows = self._view(rows, (*before, pieces, length, *behind), "pieces")
        values, places = self._selected(rows, dim + 1, (*before, pieces, taken, *behind))
        values = self._view(values, (*before, pieces * taken, *behind), "best")
        if self._reads(node.outputs[1]):
            places = self._placed(places, pieces, length, dim)
            places = self._view(places, (*before, pieces * taken, *behind), "best_at")
            chosen = self._value("chosen", first.shape, "int64")
            self._add("selection", [values], [first, chosen], node.attributes)
            found = self.graph.value(node.outputs[1])
            self._add("gather", [places, chosen], [found], {"how": "gather", "dim": dim})
        else:
            self._add("selection", [values], [first, self.graph.value(node.outputs[1])], node.attributes)
        return replace(self.graph, symbols=self._symbols).rebuilt(tuple(self._all()), self._values)

    def _all(self) -> Iterator[Node]:
        for node in self.graph.nodes:
            yield from self._nodes if node is self.node else [node]

    def _pieces(self, count: Size) -> tuple[Size, Size]:
        """How many there are, and how long; without a rest where the length has such a divisor."""
        if not count.factors:
            fewest = math.ceil(count.number / PIECE)
            for pieces in range(fewest, 2 * fewest + 1):
                if count.number % pieces == 0:
                    return Size(pieces), Size(count.number // pieces)
            return Size(fewest), Size(math.ceil(count.number / fewest))
        text = f"({count.code()} + {PIECE - 1}) // {PIECE}"
        name = next((name for name, known in self._symbols.items() if known == text), "")
        if not name:
            name = self._fresh("pieces")
            self._symbols[name] = text
        return Size(1, (Symbol(name, tuple(-(-value // PIECE) for value in count.values)),)), Size(PIECE)

    def _padded(self, source: Value, dim: int, length: Size) -> Value:
        shape = (*source.shape[:dim], length, *source.shape[dim + 1 :])
        last = -math.inf if self.node["largest"] else math.nan
        made = self._value("padded", shape, source.dtype)
        return self._add("pad", [source], [made], {"before": (0,) * source.rank, "value": last})[0]

    def _selected(self, rows: Value, dim: int, shape: tuple[Size, ...]) -> tuple[Value, Value]:
        made = self._value("best", shape, rows.dtype), self._value("best_at", shape, "int64")
        self._add("selection", [rows], made, {**self.node.attributes, "dim": dim})
        return made

    def _placed(self, places: Value, pieces: Size, length: Size, dim: int) -> Value:
        """Places in the row instead of those in its pieces."""
        starts = self._value("starts", (pieces,), "int64")
        self._add("constant", [], [starts], {"range": (0, length.number)})
        ones = (Size(1),) * places.rank
        starts = self._view(starts, (*ones[:dim], pieces, *ones[dim + 1 :]), "starts")
        made = self._value("best_at", places.shape, "int64")
        return self._add("pointwise", [places, starts], [made], {"fn": "add", "scalars": ()})[0]

    def _view(self, value: Value, shape: tuple[Size, ...], stem: str) -> Value:
        made = self._value(stem, shape, value.dtype)
        return self._add("view", [value], [made], {"how": "reshape"})[0]

    def _add(
        self, op: str, inputs: list[Value], made: list[Value] | tuple[Value, ...], attributes: object
    ) -> list[Value]:
        assert isinstance(attributes, dict)
        names = tuple(value.name for value in made)
        label = self.node.label if op == "selection" else ""
        self._nodes.append(Node(op, tuple(value.name for value in inputs), names, attributes, label))
        return list(made)

    def _value(self, stem: str, shape: tuple[Size, ...], dtype: str) -> Value:
        name = self._fresh(f"{self.node.outputs[0]}_{stem}")
        self._values[name] = Value(name, shape, dtype, contiguous_stride(shape))
        return self._values[name]

    def _fresh(self, stem: str) -> str:
        return numbered(stem, {*self._values, *self._symbols})

    def _reads(self, name: str) -> bool:
        return name in self.graph.results or bool(self.graph.consumers[name])
