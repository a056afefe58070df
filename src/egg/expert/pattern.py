"""What planning and fusion ask of an operator pattern, and the table that they ask.

A pattern writes groups of operators as kernels. It is one object: the operators that its groups grow around
(:class:`Anchor`), how it writes a group, what that costs, how else it could be written, what to change after
a refusal, and flags for what its kernels can do beside their own operators. Planning iterates over the
table (:data:`egg.expert.patterns.PATTERNS`) and asks; no other module knows a pattern by its name.

A pattern has one of three roles, read off its object: it *grows around anchors*, it *passes over memory*
(:attr:`Pattern.streams`: the operators that may share a pass), or it *leaves operators to PyTorch*
(:attr:`Pattern.fallback`, the last resort).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from egg.core.bottleneck import Bottleneck, Limiter
from egg.core.stage import Category
from egg.expert.cost import Cost, Grades, Machine
from egg.expert.emit.spelling import Speller
from egg.expert.graph import Graph, Node
from egg.expert.moves import Move, Recipe, Without
from egg.expert.parts import Group, Part, Target, Use

FREE = frozenset({"view", "constant"})
"""What costs nothing by itself: no group is made for it alone unless it is needed in memory."""

MARGIN = 1.3
"""How many times faster a library's call must promise to be: estimates of ours and theirs err apart."""
CALIBRATED = 1.05
"""The same where both sides were measured, and the library's call is the safe choice."""
CROWDED = frozenset({Limiter.SPILLS, Limiter.OCCUPANCY_REGISTERS})
"""Limiters of a program that holds too much in registers."""
BELIEVED = 0.5
"""Of what a diagnosis says could be gained, as much as another way to write a group usually gets (an
exponent)."""


@dataclass(frozen=True)
class Anchor:
    """A kind of node that a pattern's groups grow around."""

    op: str
    operations: Callable[[Graph, Node], float]
    """Multiplications and additions of such a node."""
    library_seconds: Callable[[Graph, Node, str | None, Machine], float]
    """What PyTorch's own call takes on the GPU; the third argument is the grade that was asked for."""
    call: Callable[[Speller, Node], str]
    """That call as a line of ``forward``."""


@dataclass(frozen=True)
class Alternative:
    """Another way to write a program, with the bottleneck that it is meant to relieve."""

    category: Category
    against: str
    sentence: str
    moves: tuple[Move, ...]
    expectation: str
    skills: tuple[str, ...] = ()
    """Whose advice it follows, where one of them is offered."""
    relief: Mapping[str, float] | None = None
    """By the value that means a group (:meth:`Patterns.anchor_value`): how many times faster its kernels
    should be for reasons that no estimate sees."""


@dataclass(frozen=True)
class LibraryChoice:
    """How the alternative is put that leaves a pattern's groups to PyTorch."""

    against: str
    sentence: str
    """With ``{}`` for the names of the groups."""
    skills: tuple[str, ...]


@dataclass(frozen=True)
class Switch:
    """An option of a pattern that the memory stage may turn on."""

    use: Use
    """What it makes of a part, and the name of the setting."""
    limiters: frozenset[Limiter]
    category: Category
    skills: tuple[str, ...]
    effect: str
    vendor: str


@dataclass(frozen=True)
class Repair:
    """Moves that write a refused program more carefully, and the sentence that explains them."""

    moves: tuple[Move, ...]
    sentence: str


class Symptom(StrEnum):
    """What a refusal says of a file, as far as repairs care."""

    INEXACT = "inexact"
    """A result is near, but not near enough."""
    FAILING = "failing"
    """A kernel does not compile, does not run, or computes something else."""


@dataclass(frozen=True)
class Refused:
    """A refusal as a pattern is asked about it."""

    symptom: Symptom
    recipe: Recipe
    """Of the file that was refused."""
    excess: float | None = None
    """How many times the allowed error the worst result has."""
    located: bool = False
    """Whether the refusal points at the groups in question."""


@dataclass(frozen=True)
class Finer:
    """A finer grade of a pattern's products, as a repair of a result that is not exact enough."""

    grade: str
    sentence: str


def first_value(group: Group) -> str:
    """The value by which moves mean a group without an anchor."""
    return next((node.outputs[0] for node in group.nodes if node.outputs), "")


def left_to_pytorch(groups: Iterable[Group]) -> tuple[Move, ...]:
    """PyTorch has every operator of these groups; what is free goes where it is read."""
    return tuple(
        Without(group.pattern, node.outputs[0])
        for group in groups
        for node in group.nodes
        if node.outputs and node.op not in FREE
    )


class Pattern(ABC):
    """One way to write a group of operators. A subclass has no state: one instance serves every program."""

    name: str
    """As moves, recipes and logs call it."""
    anchors: tuple[Anchor, ...] = ()
    """Nodes that its groups grow around; none for a pattern that passes over memory."""
    streams: frozenset[str] = frozenset()
    """Kinds of node that may share a pass over memory, for a pattern whose groups are such passes."""
    fallback: bool = False
    """Whether it leaves its operators to PyTorch, and takes any of them."""

    # -- what its kernels can do beside their own operators ------------------------------------------

    stores_by_strides: bool = False
    """Whether a result may be stored into a part of a larger tensor."""
    computes_operands: bool = False
    """Whether its kernels can compute what they read."""
    shares_sizes: bool = False
    """Whether groups that differ in numbers alone may share a kernel with named sizes."""
    spreads_operands: bool = False
    """Whether its epilogue computes large operands from far smaller ones instead of loading them."""
    takes_rows: bool = False
    """Whether its epilogue gathers rows of a table that is far smaller."""
    leaves_passes: bool = False
    """Whether an anchor that it does not write is left to a pass over memory, and not to PyTorch."""
    takes_operands: bool = False
    """Whether what it takes along behind its anchor brings its operands, where nothing else reads them."""
    takes_neighbours: bool = False
    """Whether its groups take along what is before, behind and beside their anchors, anchors among it
    (:meth:`takes_whole`), and are made before those of other patterns."""
    weighed_first: bool = False
    """Whether the library may be faster by factors, so that the first file already chooses by price."""

    # -- grades and giving up ------------------------------------------------------------------------

    grade: str = "fp32"
    """How exact its products of fp32 operands are where nothing is asked for."""
    finer: tuple[Finer, ...] = ()
    """The grades that repairs turn to, the coarsest first."""
    keeps: int = 0
    """Repairs give up patterns with a smaller number first."""
    left: LibraryChoice | None = None
    """How leaving it to the library is put; ``None`` where that is no alternative."""
    switches: tuple[Switch, ...] = ()

    def anchor(self, group: Group) -> Node:
        """The node that one of its groups grew around."""
        return next(node for node in group.nodes if any(node.op == anchor.op for anchor in self.anchors))

    @abstractmethod
    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        """The group as kernels and the lines that call them; :class:`~egg.expert.parts.Unfit` where it
        cannot be written so."""

    @abstractmethod
    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        """Seconds of a group as ``part`` writes it."""

    def shared(self, parts: Sequence[Part]) -> Sequence[Part]:
        """The parts of the pattern's groups, in the order they run, without work that an earlier one did."""
        return parts

    def margin(self, graph: Graph, group: Group) -> float | None:
        """How many times faster the library's call must promise to be for the first file to leave a group to
        it; ``None`` where only a measured base decides that."""
        return MARGIN if self.weighed_first else None

    def waits_for(self, nodes: Iterable[Node]) -> bool:
        """Whether followers that cannot be written yet may fit together with what follows them."""
        return False

    def takes_whole(self, node: Node) -> bool:
        """Whether a group may take a node along that others grow around."""
        return False

    def producers(
        self, graph: Graph, anchor: Node, taken: Sequence[Node], passes: Sequence[Node]
    ) -> Sequence[Node]:
        """Of the producers ``taken`` along in front of an anchor, those worth it. ``passes``: nodes without
        a group that need a pass of their own."""
        return taken

    def alternatives(self, group: Group, part: Part, found: Bottleneck | None) -> Iterator[Alternative]:
        """Other ways to write a heavy group; ``found``: what its longest kernel waits for."""
        yield from ()

    def repairs(self, graph: Graph, groups: Sequence[Group], refused: Refused) -> Iterator[Repair]:
        """What to change of the pattern's own groups before anything is given up, mildest first."""
        yield from ()


class Patterns(Mapping[str, Pattern]):
    """The patterns of a team by name, in the order in which they are asked."""

    def __init__(self, *patterns: Pattern) -> None:
        self._by_name = {pattern.name: pattern for pattern in patterns}
        self._by_op: dict[str, list[Pattern]] = {}
        for pattern in patterns:
            for anchor in pattern.anchors:
                self._by_op.setdefault(anchor.op, []).append(pattern)
        (self.fallback,) = (pattern for pattern in patterns if pattern.fallback)
        (self.streaming,) = (pattern for pattern in patterns if pattern.streams)
        self.anchored = tuple(pattern for pattern in patterns if pattern.anchors)
        """Those that grow around anchors."""

    def __getitem__(self, name: str) -> Pattern:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def around(self, op: str) -> tuple[Pattern, ...]:
        """The patterns that may write a node of this kind as an anchor, best first; PyTorch at last."""
        found = self._by_op.get(op, ())
        return (*found, self.fallback) if found else ()

    def anchor(self, op: str) -> tuple[Pattern, Anchor]:
        """What is known of a kind of node that groups grow around."""
        pattern = self._by_op[op][0]
        return pattern, next(anchor for anchor in pattern.anchors if anchor.op == op)

    def anchor_of(self, group: Group) -> Node | None:
        """The node that a group grew around; ``None`` for a pass over memory."""
        pattern = self._by_name[group.pattern]
        if pattern.anchors:
            return pattern.anchor(group)
        return next((n for n in group.nodes if n.op in self._by_op and not pattern.streams), None)

    def anchor_value(self, group: Group) -> str:
        """The value by which moves mean a group: its anchor's, or its first."""
        anchor = self.anchor_of(group)
        return anchor.outputs[0] if anchor is not None and anchor.outputs else first_value(group)

    def with_(self, *patterns: Pattern) -> Patterns:
        """With others under the same names."""
        changed = {pattern.name: pattern for pattern in patterns}
        return Patterns(*(changed.get(name, pattern) for name, pattern in self._by_name.items()))
