"""Values that are computed where they are read, each time, since that is cheaper than storing them once.

A statistic of a tensor reads it as fp32, and so does a product further on: the cast to fp32 has two readers,
so the group of the first would store it for the second, twice the bytes of what it was cast from. What
follows from one tensor by cheap arithmetic need not be stored where that tensor is in memory anyhow and is no
larger: every group gets operators of its own. A product or a convolution reads its operands many times and
straight into its tiles, so it is only given casts, from something narrower.

Likewise views: the host takes microseconds to make one, a kernel an offset. And what follows from a constant:
places that are counted need not be read.

Which operators share a kernel decides what would be stored, so this looks at a finished partition and
rewrites the graph for a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from egg.expert.emit.names import numbered
from egg.expert.emit.triton.scalar import cheap
from egg.expert.graph import Graph, Node, Origin, Value
from egg.expert.pattern import Pattern
from egg.expert.sizes import ONE

LONGEST = 4
"""Operators that are computed again for one value, at most."""
MOST_PIECES = 4
"""Tensors that are joined again for each reader: every element is looked for in all of them."""
LITTLE = 4
"""How many times a reader's largest value has the bytes of a tensor that is read anew, though it is larger
than what follows from it."""
SIMPLE = frozenset({"pointwise", "where", "view", "constant", "norm", "cat", "pad", "triangle"})
"""What is an instruction or a few per element once statistics are there."""

SMALL_POWERS = ((2,), (3,), (4,))
"""Exponents that take two products at most."""

Home = Callable[[Node], tuple[Pattern, Sequence[Node]]]
"""The pattern and the nodes of the group that a node is in."""


def recomputed(graph: Graph, home: Home, refused: Collection[str] = ()) -> tuple[Graph, Mapping[str, str]]:
    """The graph with operators of its own for each group that reads what is cheaper not to store, and by the
    value that each of those makes: whose copy it is.

    ``refused``: values that some group could not compute by itself.
    """
    found = _Recompute(graph, home, frozenset(refused))
    return found.rewritten(), found.copies


@dataclass
class _Recompute:
    graph: Graph
    home: Home
    refused: frozenset[str]

    def __post_init__(self) -> None:
        self.copies: dict[str, str] = {}
        self._values: dict[str, Value] = dict(self.graph.values)
        self._gone: set[str] = set()
        """Values that are no longer stored."""
        self._overwritten = {node.inputs[0] for node in self.graph.nodes if node.op == "update"}

    def rewritten(self) -> Graph:
        made: dict[int, list[Node]] = {}
        """By the node whose value they compute again: they stand behind it."""
        instead: dict[int, dict[str, str]] = {}
        """By reader: what it reads in the place of what."""
        for node in self.graph.nodes:
            readers = self._foreign_readers(node)
            way = self._way(node) if readers else []
            groups = [self.home(reader) for reader in readers]
            if not way or not all(self._worth(node, way, pattern) for pattern, _ in groups):
                continue
            self._gone.add(node.output)
            for together in self._sharing(node, readers):
                steps = self._copied(way)
                made.setdefault(id(node), []).extend(steps)
                for reader in together:
                    instead.setdefault(id(reader), {})[node.output] = steps[-1].output
        if not self.copies:
            return self.graph
        nodes: list[Node] = []
        for node in self.graph.nodes:
            other = instead.get(id(node), {})
            nodes.append(node.with_inputs(*(other.get(str(n), n) for n in node.inputs)) if other else node)
            nodes += made.get(id(node), [])
        return self.graph.rebuilt(tuple(nodes), self._values)

    def _sharing(self, node: Node, readers: Sequence[Node]) -> list[list[Node]]:
        """Readers that get one copy: those of a group. What a reader repeats (factors that all heads share)
        would be a result of another size where the first of several readers is joined with it, so each has
        its own."""
        size = self.graph.result(node).elements
        found: dict[tuple[int, int], list[Node]] = {}
        for reader in readers:
            repeats = reader.op in ("pointwise", "where") and self.graph.result(reader).elements != size
            key = id(self.home(reader)[1]), id(reader) if repeats else 0
            found.setdefault(key, []).append(reader)
        return list(found.values())

    def _foreign_readers(self, node: Node) -> list[Node]:
        """Its readers in other groups; none where it is stored in any case."""
        if len(node.outputs) != 1 or node.output in self.graph.results or node.output in self.refused:
            return []
        inside = {id(member) for member in self.home(node)[1]}
        return [reader for reader in self.graph.consumers[node.output] if id(reader) not in inside]

    def _way(self, node: Node) -> list[Node]:
        """From something in memory, no larger, or from a constant to the value; empty where there is none."""
        found: list[Node] = []
        step: Node | None = node
        if counted := self._from_constant(node):
            return counted
        if self._joins_for_slices(node):
            return [node]
        while step is not None and len(found) < LONGEST and _is_cheap(step):
            found.append(step)
            source = str(step.inputs[0])
            if self._in_memory(source):
                larger = self.graph.value(source).bytes > self.graph.result(node).bytes
                larger = larger and not self._is_little(source, node)
                only_views = all(member.op == "view" for member in found)
                return found[::-1] if only_views or not larger else []
            step = self.graph.producer(source)
        return []

    def _is_little(self, source: str, node: Node) -> bool:
        """Whether a tensor is far smaller than what each reader of ``node`` goes over: factors of a rotation,
        which all heads share, stay in the cache, and a kernel of their own would take longer."""
        groups = (self.home(reader)[1] for reader in self._foreign_readers(node))
        sizes = (max(self._made_bytes(member) for member in group) for group in groups)
        return LITTLE * self.graph.value(source).bytes <= min(sizes, default=0)

    def _made_bytes(self, node: Node) -> float:
        return max((self.graph.value(name).bytes for name in node.outputs), default=0)

    def _joins_for_slices(self, node: Node) -> bool:
        """A concatenation of tensors in memory that is only read in slices, each element once: as many bytes
        are read of the pieces, and nothing is stored."""
        if node.op != "cat" or len(node.inputs) > MOST_PIECES:
            return False
        readers = self.graph.consumers[node.output]
        slices = [r for r in readers if r.op == "view" and r["how"] == "slice"]
        read = sum(self.graph.result(r).bytes for r in slices)
        whole = len(slices) == len(readers) and read <= self.graph.result(node).bytes
        return whole and all(self._lies_in_memory(str(name)) for name in node.inputs)

    def _lies_in_memory(self, name: str) -> bool:
        """Itself, or what it is a view of."""
        producer = self.graph.producer(name)
        while producer is not None and producer.op == "view":
            name = str(producer.inputs[0])
            producer = self.graph.producer(name)
        return self._in_memory(name)

    def _from_constant(self, node: Node) -> list[Node]:
        found: list[Node] = []
        step: Node | None = node
        while step is not None and len(found) < LONGEST:
            found.append(step)
            if step.op == "constant":
                return found[::-1]
            step = self.graph.producer(str(step.inputs[0])) if _is_cheap(step) else None
        return []

    def _in_memory(self, name: str) -> bool:
        if name in self._overwritten:
            return False
        if self.graph.value(name).origin is not Origin.NODE or name in self.graph.results:
            return True
        producer = self.graph.producer(name)
        if producer is None or name in self._gone:
            return False
        inside = {id(member) for member in self.home(producer)[1]}
        return any(id(reader) not in inside for reader in self.graph.consumers[name])

    def _worth(self, node: Node, way: Sequence[Node], pattern: Pattern) -> bool:
        """Views alone are worth it where the host would make them."""
        if all(step.op == "view" for step in way):
            made = self.home(node)[0].fallback and all(moves_nothing(self.graph, step) for step in way)
            return made and bool(pattern.streams)
        if pattern.streams or node.op == "cat":
            return True
        if way[0].op == "constant":
            return False
        before, after = self.graph.value(str(way[0].inputs[0])), self.graph.result(way[-1])
        casts = all(node.op == "view" or node["fn"] == "cast" for node in way)
        return pattern.computes_operands and casts and before.bytes < after.bytes

    def _copied(self, way: Sequence[Node]) -> list[Node]:
        steps: list[Node] = []
        for node in way:
            value = replace(self.graph.result(node), name=self._fresh(node.output))
            self._values[value.name] = value
            self.copies[value.name] = way[-1].output
            inputs = (steps[-1].output,) if steps else node.inputs
            steps.append(replace(node, inputs=inputs, outputs=(value.name,)))
        return steps

    def _fresh(self, stem: str) -> str:
        return numbered(stem, self._values.keys() | self.graph.symbols.keys(), first=2)


def moves_nothing(graph: Graph, node: Node) -> bool:
    """A view whose elements lie a fixed distance and fixed strides from those of its operand, so that no
    address gets a division by it."""
    if node.op != "view":
        return False
    if node["how"] == "reshape":
        before, after = (graph.value(name).shape for name in (str(node.inputs[0]), node.output))
        return [size for size in before if size != ONE] == [size for size in after if size != ONE]
    return node["how"] in ("slice", "permute", "expand", "windows")


def repeats(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether a group would compute values anew that are worth keeping.

    A value that is read as it is and by a slice or backwards besides is computed for both positions. That is
    no loss where it follows cheaply from memory, and what there is one of per row does not count. But if it
    follows from another value like it, that is computed four times, and so on. A view of what lies in memory
    is only read.
    """
    made = {name: node for node in nodes for name in node.outputs}
    inside = {id(node) for node in nodes}
    readers = {name: [r for r in graph.consumers[name] if id(r) in inside] for name in made}
    twice = {
        name for name, those in readers.items()
        if len(those) > 1 and any(r.op == "view" and r["how"] in ("slice", "flip", "windows") for r in those)
        and not _is_shown(made, name)
    }  # fmt: skip
    for name in twice:
        size, waiting, met = graph.value(name).elements.value, [name], set[str]()
        while waiting:
            step = waiting.pop()
            if step in met or step not in made or graph.value(step).elements.value * 4 <= size:
                continue
            if made[step].op == "selection":  # stays in registers, whatever is read of it
                continue
            met.add(step)
            node = made[step]
            if (step in twice and step != name) or node.op not in SIMPLE or not _is_light(node):
                return True
            waiting += [n for n in node.inputs if n is not None]
    return False


def _is_shown(made: Mapping[str, Node], name: str) -> bool:
    """Whether nothing but views lies between a value and what is made elsewhere."""
    while name in made and made[name].op == "view":
        name = str(made[name].inputs[0])
    return name not in made


def _is_light(node: Node) -> bool:
    return node.op != "pointwise" or cheap(node["fn"]) or _is_small_power(node)


def _is_small_power(node: Node) -> bool:
    """``x ** 2``, in front of most statistics: a product or two."""
    return node["fn"] == "pow" and tuple(node.get("scalars") or ())[1:] in SMALL_POWERS


def _is_cheap(node: Node) -> bool:
    """A view, or a pointwise function of one tensor that takes no special function."""
    if node.op not in ("view", "pointwise") or len(node.inputs) != 1 or node.inputs[0] is None:
        return False
    return _is_light(node)
