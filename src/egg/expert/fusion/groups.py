"""The groups of a partition so far: which node is in which, and what a pattern answers about a larger one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from egg.expert.fusion.choices import Choices
from egg.expert.fusion.local import local, own_names, signature
from egg.expert.fusion.purpose import group_name
from egg.expert.fusion.unit_order import UnitOrder
from egg.expert.graph import Graph, Node
from egg.expert.moves import FILE
from egg.expert.parts import Group, Part, Target, Unfit
from egg.expert.pattern import Pattern, Patterns


class Groups:
    """Groups are lists of nodes that grow; a node is in one at most."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        patterns: Patterns,
        choices: Choices,
        answers: dict[Any, int | None] | None = None,
    ) -> None:
        self.graph, self.target, self.patterns, self.choices = graph, target, patterns, choices
        self.streamed = patterns.streaming.streams
        """What passes over memory: any of them may share a pass."""
        self.order = {id(node): at for at, node in enumerate(graph.nodes)}
        self.units = UnitOrder(graph)
        self.home: dict[int, list[Node]] = {}
        """The group of each node that has one."""
        self.pattern: dict[int, Pattern] = {}
        """By the identity of a group's list."""
        self.answers: dict[Any, int | None] = {} if answers is None else answers
        """How many launches a pattern makes of groups like one under such choices; ``None`` where it does not
        write them."""

    def of(self, graph: Graph) -> Groups:
        """None yet, of another graph for the same purpose: what patterns answered still holds."""
        return Groups(graph, self.target, self.patterns, self.choices, self.answers)

    def settle(self, nodes: list[Node], pattern: Pattern) -> list[Node]:
        """A new group."""
        group = list(nodes)
        self.pattern[id(group)] = pattern
        for node in group:
            self.home[id(node)] = group
        return group

    def add(self, group: list[Node], *nodes: Node) -> None:
        """Nodes join a group, in the order of the graph; groups that they were in before are forgotten."""
        inside = {id(member) for member in group}
        group += (node for node in nodes if id(node) not in inside)
        group.sort(key=lambda member: self.order[id(member)])
        self.units.join(group)
        for node in nodes:
            self.home[id(node)] = group

    def is_free_pass(self, node: Node) -> bool:
        """Whether a node passes over memory and is in no group yet."""
        return node.op in self.streamed and id(node) not in self.home

    def home_of(self, node: Node) -> tuple[Pattern, Sequence[Node]]:
        """The pattern that writes a node's group, and its members."""
        group = self.home[id(node)]
        return self.pattern[id(group)], group

    def count(self) -> int:
        return len({id(group) for group in self.home.values()})

    def writes(self, nodes: list[Node], pattern: Pattern) -> bool:
        """Whether a pattern can write these nodes as one group."""
        return self.launches(nodes, pattern) is not None

    def launches(self, nodes: list[Node], pattern: Pattern) -> int | None:
        """How many launches a pattern makes of these nodes as one group; ``None`` where it does not write
        them. Its answer for another group like it counts."""
        if pattern.name in self.choices.without or (pattern.anchors and self._makes_float8(nodes)):
            return None
        group = self._group(nodes, pattern)
        of_all, settings = (self.choices.settings.get(name, {}) for name in (FILE, group.name))
        key = (
            pattern.name,
            self.target.gpu.name,
            self.choices.grades.get(pattern.name),
            *(tuple(chosen.items()) for chosen in (self.target.settings, of_all, settings)),
            signature(self.graph, group.nodes, exact=False),
        )
        if key not in self.answers:
            own = local(self.graph, group, own_names(self.graph, group.nodes))
            try:
                self.answers[key] = len(self.written(own.graph, own.group).launches)
            except Unfit:
                self.answers[key] = None
        return self.answers[key]

    def _makes_float8(self, nodes: Iterable[Node]) -> bool:
        """Whether one of them makes 8-bit floats, which only passes over memory store."""
        return any(self.graph.value(name).dtype.startswith("float8") for n in nodes for name in n.outputs)

    def written(self, graph: Graph, group: Group) -> Part:
        """As its pattern writes it under the choices that were made for it."""
        grade = self.choices.grades.get(group.pattern)
        graded = {} if grade is None else {"grade": grade}
        own, of_all = (self.choices.settings.get(name, {}) for name in (group.name, FILE))
        settings = {**graded, **self.target.settings, **of_all, **own}
        return self.patterns[group.pattern].write(graph, group, Target(self.target.gpu, settings))

    def _group(self, nodes: Iterable[Node], pattern: Pattern) -> Group:
        ordered = tuple(sorted(nodes, key=lambda node: self.order[id(node)]))
        return Group(group_name(ordered), ordered, pattern.name)

    def only_read_by(self, node: Node, group: list[Node]) -> bool:
        """Whether nothing outside ``group`` needs what ``node`` makes."""
        inside = {id(member) for member in group}
        return all(
            name not in self.graph.results and all(id(r) in inside for r in self.graph.consumers[name])
            for name in node.outputs
        )

    def is_read_elsewhere(self, name: str) -> bool:
        """A copy that nothing makes any more (its reader got a copy of its own) is read nowhere."""
        if name not in self.graph.producers:
            return False
        inside = {id(member) for member in self.home_of(self.graph.producers[name])[1]}
        return any(id(reader) not in inside for reader in self.graph.consumers[name])
