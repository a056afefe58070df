"""Concatenations without a copy: the kernel that makes a piece stores it where it belongs in the whole.

Joining tensors moves every element twice and computes nothing. Where a piece comes out of a kernel of ours,
that kernel may as well store into its part of the joined tensor: the piece is then *lent* a place, with the
strides of the whole, and its other readers read it there. What is left of the concatenation is the
room for it (:data:`~egg.expert.graph` calls such a node ``joined``), made before the first of its pieces.

Pieces that no kernel of ours makes (arguments, results of libraries, what lies elsewhere already) are copied
by a concatenation of their own, which stores into the whole in turn and may take along what comes before it.
A joined tensor that is a piece of another one lives in that: a dense block has all its lists in one tensor.

Which operators share a kernel decides what is worth it, so this looks at a finished partition and rewrites
the graph for a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from egg.expert.algebra.channels_last import lies_last
from egg.expert.cost import LAUNCH
from egg.expert.emit.names import numbered
from egg.expert.graph import Graph, Node, Value
from egg.expert.pattern import Pattern
from egg.expert.sizes import Size
from egg.hardware.gpus import Gpu

FREE = frozenset({"view", "constant", "cat"})
"""What makes nothing by itself: in the group of a concatenation it is read from elsewhere."""
SHOWING = frozenset({"view", "library"})
"""What may show its operand as it lies, where it is left to PyTorch: a reader of a view, a caller of the
program included, expects the strides that it has of a tensor without gaps."""
WORTH = 5e-6
"""Seconds that must be saved where some pieces are copied all the same: groups that store in place share
their kernels with fewer others."""
MOST_ELEMENTS = 2**31 - 2**24
"""Of a joined tensor: places in it are counted in 32 bits."""

Home = Callable[[Node], tuple[Pattern, Sequence[Node]]]
"""The pattern and the nodes of the group that a node is in."""


def placed(
    graph: Graph, home: Home, gpu: Gpu, refused: Collection[str] = (), kept: Collection[str] = ()
) -> Graph:
    """The graph with ``joined`` in the place of concatenations that need no copy; the same where none is.

    ``refused``: pieces that no kernel could store in place. ``kept``: concatenations that stay as they are.
    """
    return _Placing(graph, home, gpu, frozenset(refused), frozenset(kept)).placed()


def makers(graph: Graph) -> dict[str, Node]:
    """By lent value that some kernel must store: what makes it."""
    lent = (name for name, value in graph.values.items() if value.lent)
    found = {name: graph.producers[name] for name in lent}
    return {name: node for name, node in found.items() if node.op != "joined"}


def rooms_first(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[int]:
    """The places of ``groups`` in an order that makes every room before its pieces, outer rooms first."""
    first = {name: at for at, nodes in enumerate(groups) for node in nodes for name in node.outputs}

    def earliest(node: Node) -> int:
        producers = (graph.producer(str(name)) for name in node.inputs)
        inner = [earliest(p) for p in producers if p is not None and p.op == "joined"]
        return min([*inner, *(first[str(name)] for name in node.inputs)])

    def rank(at: int) -> tuple[int, bool, int]:
        nodes = groups[at]
        if len(nodes) == 1 and nodes[0].op == "joined":
            return earliest(nodes[0]), False, -at
        return at, True, 0

    return sorted(range(len(groups)), key=rank)


@dataclass
class _Placing:
    graph: Graph
    home: Home
    gpu: Gpu
    refused: frozenset[str]
    kept: frozenset[str]

    def __post_init__(self) -> None:
        self._whole: dict[str, str] = {}
        """By lent piece: the tensor that it is a part of."""
        self._values: dict[str, Value] = dict(self.graph.values)
        self._joined: set[str] = set()

    def placed(self) -> Graph:
        nodes: list[Node] = []
        for node in self.graph.nodes:
            if node.op == "cat" and node.output not in self.kept and (pieces := self._pieces(node)):
                nodes += self._apart(node, pieces)
            else:
                nodes.append(node)
        if not self._joined:
            return self.graph
        for name in self._whole:
            whole = self._values[self._outermost(name)]
            self._values[name] = replace(self._values[name], stride=whole.stride, room=whole.name)
        return self.graph.rebuilt(tuple(nodes), self._values)

    def _outermost(self, name: str) -> str:
        while name in self._whole:
            name = self._whole[name]
        return name

    # -- whether -----------------------------------------------------------------------------------

    def _pieces(self, node: Node) -> set[str]:
        """Pieces of a concatenation to be stored in place; none where it is no gain."""
        whole = self.graph.result(node)
        pattern, group = self.home(node)
        if pattern.anchors or not self._leaves(node, group):
            return set()
        if not (whole.contiguous or _lies_last(whole)):
            return set()
        if whole.elements.value > MOST_ELEMENTS or len(node.inputs) < 2:
            return set()
        names = [str(name) for name in node.inputs]
        lent = {name for name in names if names.count(name) == 1 and self._can_be_lent(name, whole, group)}
        readers = {id(reader) for reader in self.graph.consumers[node.output]}
        fused = any(id(member) in readers for member in group)  # its pass over the pieces is made in any case
        saved = sum(self.graph.value(name).bytes for name in lent if not self._inside(name, group))
        saved *= 1 if fused else 2
        kernels = sum(self._inside(name, group) for name in lent)
        kernels += sum(names[0] not in lent for names in self._segments(node, lent))
        price = (kernels - (not fused)) * LAUNCH + WORTH if kernels else 0.0
        return lent if saved / self.gpu.bandwidth > price else set()

    def _leaves(self, node: Node, group: Sequence[Node]) -> bool:
        """Whether the joined tensor is needed in memory, and not only on the way to something else."""
        inside = {id(member) for member in group}
        read = any(id(reader) not in inside for reader in self.graph.consumers[node.output])
        return read or node.output in self.graph.results

    def _inside(self, name: str, group: Sequence[Node]) -> bool:
        return any(name in node.outputs for node in group)

    def _can_be_lent(self, name: str, whole: Value, group: Sequence[Node]) -> bool:
        value, producer = self.graph.value(name), self.graph.producer(name)
        if producer is None or name in self.refused or name in self._whole or name in self.graph.results:
            return False
        if value.dtype != whole.dtype or not value.elements.value:
            return False
        if not (value.contiguous if whole.contiguous else _lies_last(value)):
            return False
        if self._shown(name):
            return False
        if name in self._joined:
            return True
        pattern, own = self.home(producer)
        return pattern.stores_by_strides and producer.op not in FREE and self._computes(own)

    def _shown(self, name: str) -> bool:
        readers = self.graph.consumers[name]
        return any(reader.op in SHOWING and self.home(reader)[0].fallback for reader in readers)

    def _computes(self, group: Iterable[Node]) -> bool:
        return any(node.op not in FREE for node in group)

    # -- how ---------------------------------------------------------------------------------------

    def _segments(self, node: Node, lent: Collection[str]) -> list[list[str]]:
        """The pieces in order: a lent one by itself, and neighbours that are copied together, which are those
        whose common size is a plain number."""
        found: list[list[str]] = []
        open_run = False
        for name in map(str, node.inputs):
            plain = name not in lent and not self.graph.value(name).shape[node["dim"]].factors
            if open_run and plain:
                found[-1].append(name)
            else:
                found.append([name])
            open_run = plain
        return found

    def _apart(self, node: Node, lent: set[str]) -> list[Node]:
        """The room, and before it concatenations for what must be copied into it."""
        copies: list[Node] = []
        pieces: list[str] = []
        for names in self._segments(node, lent):
            if names[0] not in lent:
                copies.append(self._copy(node, names))
            pieces.append(names[0] if names[0] in lent else copies[-1].output)
        self._whole |= dict.fromkeys(pieces, node.output)
        self._joined.add(node.output)
        return [*copies, replace(node, op="joined", inputs=tuple(pieces))]

    def _copy(self, node: Node, names: Sequence[str]) -> Node:
        whole, dim = self.graph.result(node), int(node["dim"])
        sizes = [self.graph.value(name).shape[dim] for name in names]
        size = sizes[0] if len(sizes) == 1 else Size(sum(size.number for size in sizes))
        shape = (*whole.shape[:dim], size, *whole.shape[dim + 1 :])
        made = replace(whole, name=self._fresh(f"{whole.name}_part"), shape=shape)
        self._values[made.name] = made
        return replace(node, inputs=tuple(names), outputs=(made.name,))

    def _fresh(self, stem: str) -> str:
        return numbered(stem, self._values.keys() | self.graph.symbols.keys())


def _lies_last(value: Value) -> bool:
    return value.rank > 2 and lies_last(value)
