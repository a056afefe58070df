"""What patterns hand over: one group of the graph, written as text that a file is put together from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from egg.expert.graph import Graph, Node, Value
from egg.expert.sizes import Size
from egg.hardware.gpus import Gpu

Setting = int | str | bool
REACH = 2**31 - 2**24
"""Elements that offsets of 32 bits reach, those that a loop looks at last included: beyond the end by all
programs' blocks."""


class Unfit(Exception):
    """A pattern cannot write a group; the sentence says why. The next pattern on the list is tried."""


@dataclass(frozen=True)
class Group:
    """Nodes that become one piece of code, in an order that can be executed."""

    name: str
    """What it does, as an identifier: ``linear_gelu_residual``. Kernels are named after it."""
    nodes: tuple[Node, ...]
    pattern: str
    """Which pattern writes it: ``loops``, ``product``, ``library`` ..."""

    def reads(self, graph: Graph) -> tuple[str, ...]:
        """Values made elsewhere, in the order they are met."""
        own = {name for node in self.nodes for name in node.outputs}
        met = dict.fromkeys(name for node in self.nodes for name in node.inputs if name is not None)
        return tuple(name for name in met if name not in own)

    def writes(self, graph: Graph) -> tuple[str, ...]:
        """Values that are read outside the group, or that the program returns."""
        inside = {id(node) for node in self.nodes}
        made = [name for node in self.nodes for name in node.outputs]
        return tuple(
            name
            for name in made
            if name in graph.results or any(id(reader) not in inside for reader in graph.consumers[name])
        )

    def allocates(self, graph: Graph) -> tuple[str, ...]:
        """Those of its :meth:`writes` that it makes a tensor for; the others are lent one."""
        return tuple(name for name in self.writes(graph) if not graph.value(name).lent)


class WithBias:
    """What a pattern reads of ``node``: an operator of two operands that adds a third to their product."""

    graph: Graph
    node: Node

    def operand(self, at: int) -> Value:
        return self.graph.value(str(self.node.inputs[at]))

    @cached_property
    def bias(self) -> Value | None:
        return self.graph.operand(self.node, 2)

    @cached_property
    def result(self) -> Value:
        return self.graph.result(self.node)


@dataclass(frozen=True)
class Target:
    """What a pattern writes for."""

    gpu: Gpu
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """Values that are decided elsewhere, by name: of a pattern's constants (``BLOCK_M``) and of its options
    (``grade``). What is not here the pattern chooses by its own rules."""


@dataclass(frozen=True)
class Constant:
    """A module-level constant of the file: a tile size, a number of warps. A sweep may try ``choices``."""

    name: str
    value: Setting
    choices: tuple[Setting, ...] = ()
    why: str = ""
    """Half a line behind it, where the number needs a reason."""


class Use(StrEnum):
    """What a part does that planning asks about."""

    PACKING = "packing"
    """Operands are brought into another order or other numbers first."""
    KEPT_WEIGHTS = "kept_weights"
    """Packed weights stay until they change."""
    DESCRIPTORS = "descriptors"
    """Tiles are brought by the copy engine."""
    COOPERATIVE = "cooperative"
    """All steps are one launch whose programs wait for each other."""
    STEPPED = "stepped"
    """The host launches step by step, in a loop."""


@dataclass(frozen=True)
class Launch:
    """One statement of the host that launches a kernel."""

    kernel: str
    times: int = 1
    """How often a call makes it, at the program's own size."""
    kept: bool = False
    """Whether it is made only where a weight has changed."""


@dataclass(frozen=True)
class Part:
    """A group as text.

    ``kernels`` and ``helpers`` are whole definitions, each under a unique name (two parts may share one if
    the text is the same). ``call`` are the lines of ``forward`` that compute the group's results: a value is
    the local variable of its name, a parameter ``self.`` and its path (:func:`spelled`).
    """

    kernels: Mapping[str, str]
    """By name: the whole ``@triton.jit`` definition, docstring included."""
    call: tuple[str, ...]
    constants: tuple[Constant, ...] = ()
    helpers: Mapping[str, str] = field(default_factory=dict)
    """Host functions the call needs, by name."""
    functions: tuple[str, ...] = ()
    """Those of them that were written for this group; the others serve many."""
    sizes: tuple[str, ...] = ()
    """Named sizes that the call mentions; ``forward`` defines them at its top."""
    summary: str = ""
    """What is fused and why, in a sentence."""
    launches: tuple[Launch, ...] = ()
    uses: frozenset[Use] = frozenset()
    counts: tuple[str, ...] = ()
    """Numbers of elements, in named sizes, that must stay below :data:`REACH`: offsets up to there have 32
    bits. A call with more of them is refused before anything is launched."""

    raises: tuple[str, ...] = ()
    """Functions of PyTorch whose errors ``forward`` raises for it (:mod:`egg.expert.emit.failures`)."""

    @property
    def launched(self) -> tuple[str, ...]:
        """The kernels that are launched, each once, in the order of their definitions."""
        names = {launch.kernel for launch in self.launches}
        return tuple(name for name in self.kernels if name in names)


def within_reach(counts: Iterable[Size]) -> tuple[str, ...]:
    """Counts as a part states them, where kernels are written with offsets of 32 bits. Plain numbers were
    looked at already."""
    return tuple(dict.fromkeys(count.code() for count in counts if count.factors))


def spelled(graph: Graph, name: str) -> str:
    """How ``forward`` spells a value: ``self.layers[0].weight`` for the parameter ``layers.0.weight``."""
    value = graph.value(name)
    if value.origin not in ("parameter", "constant"):
        return value.name
    steps = value.path.split(".")
    return "self" + "".join(f"[{step}]" if step.isdigit() else f".{step}" for step in steps)
