"""A group as its kernels see it: what is stored and where, what is gathered, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from egg.expert.algebra.overwritten import IN_PLACE
from egg.expert.graph import Graph, Node
from egg.expert.index import Index
from egg.expert.parts import REACH, Group
from egg.expert.patterns.loops.domain import Anchored, Domain, place, places, spread_from
from egg.expert.patterns.loops.statistics import Statistic, statistic_of
from egg.expert.sizes import ONE, Size, product


@dataclass(frozen=True)
class Plan:
    """How a group is laid out: by rule or from outside, see :mod:`egg.expert.patterns.loops.tiles`."""

    mode: str
    """``pointwise`` (no row is needed as a whole), ``strips`` (of a pool), ``resident``, ``looped`` or
    ``split``."""
    block_x: int
    """Rows per program; with one row the tile is a vector."""
    block_r: int
    """Elements of a row at a time; for ``resident`` the whole row, and the launch finds it from the size."""
    warps: int
    splits: int = 1
    x_divides: bool = False
    """Rows per program divide the rows at every size, so no mask is needed; likewise along the row."""
    r_divides: bool = False
    folded: bool = False
    """Every thread has whole columns of a tile whose rows lie along the lanes: it joins what it loaded at
    once and keeps one state per row, so that its registers are free for loads on their way."""
    lanes: int = 0
    """The same along a single row: a state for each of so many elements per warp, as many as it loads at a
    time. How many that makes follows the warps of the launch."""
    skips: bool = False
    """Lanes beyond the row load nothing through an index: without that they all load what is at 0."""
    apart: bool = False
    """Of shared rows: joining their states is a kernel of its own, and so is applying them."""
    tile: tuple[int, int] = (0, 0)
    """Where states are applied in another order than that of the rows: the sides of the tile there."""

    @property
    def rows(self) -> bool:
        return self.block_x > 1 and self.mode != "strips"


def gone_over_for(group: Group, name: str) -> str:
    """The value whose elements a kernel meets one by one to write a result: of a scatter its source."""
    made = (node for node in group.nodes if node.op == "scatter" and node.output == name)
    return next((str(node.inputs[0]) for node in made), name)


def updates_of(group: Group) -> dict[str, str]:
    """Buffers that are overwritten, by the value that is written into each."""
    updates = (node for node in group.nodes if node.op == "update" and not node.get(IN_PLACE))
    return {str(node.inputs[1]): str(node.inputs[0]) for node in updates}


def stored(graph: Graph, group: Group) -> dict[str, None]:
    """What the kernels of a group store, whether it is a result or goes into a buffer."""
    onto = (node.output for node in group.nodes if node.op == "scatter" and node.get(IN_PLACE))
    return dict.fromkeys((*group.writes(graph), *updates_of(group), *onto))


@dataclass(frozen=True)
class Work:
    """A group, analysed: what every kernel of it needs to know."""

    graph: Graph
    group: Group
    domain: Domain
    anchors: Anchored

    @cached_property
    def nodes(self) -> dict[str, Node]:
        return {name: node for node in self.group.nodes for name in node.outputs}

    @cached_property
    def statistics(self) -> dict[str, Statistic]:
        return {
            name: statistic_of(self.graph, self.nodes[name])
            for name in self.anchors.splits
            if self.nodes[name].op != "scan"
        }

    @cached_property
    def scans(self) -> list[Node]:
        return [node for node in self.group.nodes if node.op == "scan"]

    @cached_property
    def selections(self) -> list[Node]:
        """Operators that take the first elements of rows in order."""
        return [self.nodes[name] for name in self.anchors.splits if self.nodes[name].op == "selection"]

    def domain_of(self, anchor: str) -> Domain:
        """The loops that an anchor runs over: those of whole rows, or of what was selected."""
        return self.anchors.domain_of(anchor, self.domain)

    @cached_property
    def places(self) -> dict[str, Index]:
        if self.domain.turned:
            first = gone_over_for(self.group, next(iter(self._stored)))
            return spread_from(self.graph, self.group.nodes, {first: self.domain.index(self.domain.main)})
        if not self.anchors.splits:
            return {}
        return places(self.graph, self.group.nodes, self.domain, self.anchors)

    @cached_property
    def writes(self) -> dict[str, Index]:
        """What is stored, and where it is at the tile's positions."""
        gone_over = {name: gone_over_for(self.group, name) for name in self._stored}
        return {name: place(self.graph, own, self.domain, self.places) for name, own in gone_over.items()}

    @cached_property
    def _stored(self) -> dict[str, None]:
        return stored(self.graph, self.group)

    @cached_property
    def scatters(self) -> dict[str, Node]:
        """Results whose places are only known when it runs; in :attr:`writes` stand those of the sources."""
        return {node.output: node for node in self.group.nodes if node.op == "scatter"}

    @cached_property
    def updates(self) -> dict[str, str]:
        return updates_of(self.group)

    @cached_property
    def made(self) -> list[str]:
        """Results that the call makes a tensor for: those that are not only written into a buffer."""
        return list(self.group.writes(self.graph))

    def is_full(self, name: str) -> bool:
        """Whether a result has an element for each position of the tile, not one per row."""
        symbols = frozenset[str]().union(*(at.symbols() for at in self.writes[name]))
        if self.domain.reduced_size == ONE:
            return True
        return self.domain.names[2] in symbols

    @cached_property
    def _levels(self) -> dict[str, int]:
        levels: dict[str, int] = {}
        for node in self.group.nodes:
            below = max((levels.get(name, 0) for name in node.inputs if name is not None), default=0)
            for name in node.outputs:
                levels[name] = below + (1 if node.outputs[0] in self.statistics else 0)
        return levels

    def level(self, name: str) -> int:
        """How many gatherings, one after the other, a value needs before it can be computed."""
        return self._levels.get(name, 0)

    def gathered(self, level: int) -> list[Statistic]:
        return [s for name, s in self.statistics.items() if self.level(name) == level]

    @cached_property
    def depth(self) -> int:
        return max((self.level(name) for name in self.statistics), default=0)

    @cached_property
    def single_pass(self) -> bool:
        """Nothing is read twice anyhow: a block-wise pass needs fewer registers and loses nothing."""
        return self.depth == 1 and not any(self.is_full(name) and self.level(name) for name in self.writes)

    @cached_property
    def size_names(self) -> frozenset[str]:
        found: set[str] = set(self.graph.symbols)
        for name in {*self.group.reads(self.graph), *self.nodes}:
            value = self.graph.value(name)
            for size in (*value.shape, *value.stride):
                found |= {symbol.name for symbol in size.factors}
        return frozenset(name for name in found if name.isidentifier())

    @property
    def sizes(self) -> tuple[str, ...]:
        """Named sizes in the order of the program's."""
        symbols = self.graph.symbols
        own = (name for name in symbols if name in self.size_names)
        return (*own, *sorted(self.size_names - set(symbols)))

    @cached_property
    def far(self) -> bool:
        return any(count.value >= REACH for count in self.counts)

    @cached_property
    def counts(self) -> list[Size]:
        """Of what is read and written, and of the positions that are gone over."""
        names = dict.fromkeys((*self.group.reads(self.graph), *self.writes))
        domain = self.domain
        over = domain.outer_size * domain.kept_size * domain.reduced_size
        return [over, *(self.graph.value(name).reach for name in names)]

    @cached_property
    def far_along(self) -> bool:
        """Whether steps along a row alone can lead that far: then lanes count in 64 bits, too."""
        if not self.far:
            return False
        split = self.domain.main
        first = min(split.reduced_dims, default=0)
        together = split.reduced_dims == tuple(range(first, first + len(split.reduced_dims)))
        names = (*self.group.reads(self.graph), *self.writes)
        plain = together and all(self.graph.value(name).contiguous for name in names)
        return not plain or product(split.shape[first:]).value >= REACH
