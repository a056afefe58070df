"""From a graph to groups: what is fused with what, and which pattern writes it.

The rule of an expert, applied greedily: products and convolutions are where the time goes, so each is an
anchor and takes along whatever can ride on its result for free; what is left is memory traffic, so as much
of it as possible shares one pass. Whether something can ride along is not guessed here: the pattern is
asked to write the larger group, and what it cannot write it says (:class:`~egg.expert.parts.Unfit`).

Groups never wait for each other in a circle: a group takes a node only if nothing on a path between the
two lies outside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from egg.expert.graph import Graph, Node, Origin
from egg.expert.parts import Group, Part, Terms, Unfit

Writer = Callable[[Graph, Group, Terms], Part]

ANCHORS: Mapping[str, tuple[str, ...]] = {
    "matmul": ("product", "library"),
    "conv": ("convolution", "library"),
    "attention": ("attention", "library"),
    "recurrent": ("recurrent", "library"),
}
"""Nodes that a group grows around, and the patterns that may write them, best first."""
LOOPED = frozenset(
    {"pointwise", "where", "view", "cat", "pad", "constant", "triangle", "reduce", "softmax", "norm", "pool",
     "gather", "scan"}
)  # fmt: skip
"""What passes over memory: any of them may share a loop."""
FREE = frozenset({"view", "constant"})
"""What costs nothing by itself: no group is made for it alone unless somebody needs it in memory."""
LARGEST_STEP = 12
"""Nodes that are looked at for where a diamond closes."""
LONGEST_NAME = 4
"""Operators that a group's name mentions."""


@dataclass(frozen=True)
class Structure:
    """A program as groups in an order that can be executed, each written."""

    graph: Graph
    groups: tuple[Group, ...]
    parts: tuple[Part, ...]

    @property
    def kernels(self) -> int:
        return len({name for part in self.parts for name in part.kernels})

    @property
    def left_to_pytorch(self) -> tuple[str, ...]:
        """Operators that no kernel of ours computes."""
        left = (node for group in self.groups if group.pattern == "library" for node in group.nodes)
        return tuple(dict.fromkeys(node.label or node.op for node in left if node.op not in FREE))


@dataclass(frozen=True)
class Choices:
    """What is decided from outside: patterns to leave out, and settings per group name."""

    without: frozenset[str] = frozenset()
    """Patterns that are not to be used: ``convolution`` leaves convolutions to the library."""
    alone: frozenset[str] = frozenset()
    """Patterns whose groups take nothing along: for when a fused tail costs more than it saves."""
    settings: Mapping[str, Mapping[str, int | str | bool]] = field(default_factory=dict)
    """By group name."""


def structured(
    graph: Graph, terms: Terms, writers: Mapping[str, Writer], choices: Choices | None = None
) -> Structure:
    """Partition ``graph`` and write every group."""
    return _Partition(graph, terms, writers, choices or Choices()).whole()


class _Partition:
    """The state of one partition: which group each node is in, so far."""

    def __init__(self, graph: Graph, terms: Terms, writers: Mapping[str, Writer], choices: Choices) -> None:
        self._graph = graph
        self._terms = terms
        self._writers = {name: writer for name, writer in writers.items() if name not in choices.without}
        self._choices = choices
        self._order = {id(node): at for at, node in enumerate(graph.nodes)}
        self._home: dict[int, list[Node]] = {}
        """The group of each node that has one; groups are lists that grow."""
        self._pattern: dict[int, str] = {}
        """By the identity of a group's list."""

    def whole(self) -> Structure:
        for node in self._graph.nodes:
            if node.op in ANCHORS:
                self._grow_anchor(node)
        for node in self._graph.nodes:
            if id(node) not in self._home and node.op in LOOPED:
                self._join_loop(node)
        for node in self._graph.nodes:
            if id(node) not in self._home:
                self._settle([node], "library")
        return self._finished()

    # -- anchors -----------------------------------------------------------------------------------

    def _grow_anchor(self, node: Node) -> None:
        """The anchor alone first; then what comes before it and what follows, as far as it can be written."""
        pattern = next(p for p in ANCHORS[node.op] if p == "library" or self._writes([node], p))
        group = self._settle([node], pattern)
        if pattern == "library" or pattern in self._choices.alone:
            return
        self._take_producers(group, node, pattern)
        self._take_followers(group, node, pattern)

    def _take_producers(self, group: list[Node], node: Node, pattern: str) -> None:
        """Producers that only this group reads, nearest first."""
        waiting = [name for name in node.inputs if name is not None]
        while waiting:
            producer = self._graph.producer(waiting.pop())
            if producer is None or producer.op not in LOOPED or id(producer) in self._home:
                continue
            if not self._only_read_by(producer, group) or not self._writes([*group, producer], pattern):
                continue
            self._add(group, producer)
            waiting += [name for name in producer.inputs if name is not None]

    def _take_followers(self, group: list[Node], last: Node, pattern: str) -> None:
        """Step by step, as long as all that a step reads besides is there before."""
        while len(last.outputs) == 1 and (step := self._next_step(last)):
            side = [node for reader in step for node in self._side_producers(reader, [*group, *step])]
            grown = [*group, *side, *step]
            if self._circular(grown) or not self._writes(grown, pattern):
                return
            for taken in (*side, *step):
                self._add(group, taken)
            last = step[-1]

    def _next_step(self, last: Node) -> list[Node]:
        """The fewest nodes behind ``last`` with one value going out: its only reader, or a diamond such as
        ``x * sigmoid(x)`` up to where it closes. Empty where there are none."""
        taken: list[Node] = []
        while True:
            inside = {id(node) for node in taken}
            made = [last.output, *(node.output for node in taken)]
            leaving = [
                name
                for name in made
                if name in self._graph.results
                or any(id(r) not in inside for r in self._graph.consumers[name])
            ]
            if taken and leaving == [taken[-1].output]:
                return taken
            if (
                not leaving
                or any(name in self._graph.results for name in leaving)
                or len(taken) >= LARGEST_STEP
            ):
                return []
            reader = next(r for r in self._graph.consumers[leaving[0]] if id(r) not in inside)
            if reader.op not in LOOPED or id(reader) in self._home or len(reader.outputs) != 1:
                return []
            taken = sorted([*taken, reader], key=lambda node: self._order[id(node)])

    def _side_producers(self, reader: Node, group: list[Node]) -> list[Node]:
        """Free producers of a reader's other operands (views of parameters, constants), which come along."""
        found: list[Node] = []
        waiting = [name for name in reader.inputs if name is not None]
        while waiting:
            producer = self._graph.producer(waiting.pop())
            if producer is None or producer.op not in FREE or id(producer) in self._home or producer in group:
                continue
            found.append(producer)
            waiting += [name for name in producer.inputs if name is not None]
        return list(reversed(found))

    # -- loops -------------------------------------------------------------------------------------

    def _join_loop(self, node: Node) -> None:
        """With the group of a producer where one pass can do both; the latest producer first."""
        for group in self._producing_groups(node):
            grown = [*group, node]
            if not self._circular(grown) and self._writes(grown, "loops"):
                self._add(group, node)
                return
        self._settle([node], "loops" if self._writes([node], "loops") else "library")

    def _producing_groups(self, node: Node) -> Iterable[list[Node]]:
        seen: list[list[Node]] = []
        producers = [self._graph.producer(name) for name in node.inputs if name is not None]
        for producer in sorted((p for p in producers if p is not None), key=lambda p: -self._order[id(p)]):
            group = self._home.get(id(producer))
            if (
                group is not None
                and self._pattern[id(group)] == "loops"
                and not any(g is group for g in seen)
            ):
                seen.append(group)
        return seen

    # -- questions ---------------------------------------------------------------------------------

    def _writes(self, nodes: list[Node], pattern: str) -> bool:
        """Whether a pattern can write these nodes as one group."""
        if pattern not in self._writers:
            return False
        try:
            self._written(self._group(nodes, pattern))
        except Unfit:
            return False
        return True

    def _written(self, group: Group) -> Part:
        settings = {**self._terms.settings, **self._choices.settings.get(group.name, {})}
        return self._writers[group.pattern](self._graph, group, Terms(self._terms.gpu, settings))

    def _only_read_by(self, node: Node, group: list[Node]) -> bool:
        inside = {id(member) for member in group}
        return all(
            name not in self._graph.results and all(id(r) in inside for r in self._graph.consumers[name])
            for name in node.outputs
        )

    def _circular(self, nodes: list[Node]) -> bool:
        """Whether a path leaves these nodes and comes back: then something would wait for itself.

        Nodes in one group stand for each other on the way, since a group runs as a whole.
        """
        inside = {id(node) for node in nodes}
        seen: set[int] = set()
        waiting = [r for node in nodes for r in self._readers(node) if id(r) not in inside]
        while waiting:
            node = waiting.pop()
            if id(node) in inside:
                return True
            if id(node) in seen:
                continue
            seen.add(id(node))
            for member in self._home.get(id(node), [node]):
                waiting += self._readers(member)
        return False

    def _readers(self, node: Node) -> list[Node]:
        return [reader for name in node.outputs for reader in self._graph.consumers[name]]

    # -- bookkeeping -------------------------------------------------------------------------------

    def _settle(self, nodes: list[Node], pattern: str) -> list[Node]:
        group = list(nodes)
        self._pattern[id(group)] = pattern
        for node in group:
            self._home[id(node)] = group
        return group

    def _add(self, group: list[Node], node: Node) -> None:
        group.append(node)
        group.sort(key=lambda member: self._order[id(member)])
        self._home[id(node)] = group

    def _group(self, nodes: Iterable[Node], pattern: str) -> Group:
        ordered = tuple(sorted(nodes, key=lambda node: self._order[id(node)]))
        return Group(group_name(ordered), ordered, pattern)

    def _finished(self) -> Structure:
        """Groups by first need, each under a name of its own, each written."""
        found: list[list[Node]] = []
        for node in self._graph.nodes:
            group = self._home[id(node)]
            if not any(group is other for other in found):
                found.append(group)
        groups = [self._group(group, self._pattern[id(group)]) for group in self._sorted(found)]
        named = _with_own_names(groups)
        return Structure(self._graph, named, tuple(self._written(group) for group in named))

    def _sorted(self, groups: list[list[Node]]) -> list[list[Node]]:
        """In an order that can be executed, and otherwise as the program has them."""
        waiting, done, ordered = list(groups), set[str](), list[list[Node]]()
        done |= {name for name, value in self._graph.values.items() if value.origin is not Origin.NODE}
        while waiting:
            ready = next(group for group in waiting if self._needs(group) <= done)
            waiting.remove(ready)
            ordered.append(ready)
            done |= {name for node in ready for name in node.outputs}
        return ordered

    def _needs(self, group: list[Node]) -> set[str]:
        made = {name for node in group for name in node.outputs}
        return {name for node in group for name in node.inputs if name is not None} - made


def group_name(nodes: tuple[Node, ...]) -> str:
    """What a group does, as an identifier: the first few operators that are more than a change of shape."""
    words = [_word(node) for node in nodes if node.op not in FREE]
    kept = words if len(words) <= LONGEST_NAME else [*words[: LONGEST_NAME - 1], words[-1]]
    return "_".join(dict.fromkeys(kept)) or "views"


def _word(node: Node) -> str:
    word = {"pointwise": node.get("fn"), "reduce": node.get("fn"), "norm": f"{node.get('kind')}_norm"}.get(
        node.op
    )
    return str(word or node.op)


def _with_own_names(groups: list[Group]) -> tuple[Group, ...]:
    """Two groups that do the same are numbered."""
    counts: dict[str, int] = {}
    named = []
    for group in groups:
        counts[group.name] = counts.get(group.name, 0) + 1
        number = counts[group.name]
        named.append(group if number == 1 else Group(f"{group.name}_{number}", group.nodes, group.pattern))
    return tuple(named)
