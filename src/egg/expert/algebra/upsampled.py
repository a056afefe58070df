"""Convolutions of images that were doubled before, computed on the images as they were.

``conv(interpolate(x, scale_factor=2))`` multiplies most elements several times: of three neighbours in the
doubled image two are the same. Results at even and at odd places (*phases*) are convolutions of ``x`` itself,
with the taps that meet the same element summed: two taps instead of three along each dimension, four instead
of nine in all. The doubled image is never written.

The library computes all phases in one call, with a channel for every phase of a result, and the pass that
adds the bias reads them interleaved. With ``p`` of padding, output ``2 * i + phase`` reads the operand from
``i + (phase - p) // 2`` on. That is the same place for both phases where ``p`` is even; where it is odd, the
second one is a step ahead, so the call makes one position more along every dimension, and reading another
phase is a step in position and in channel at once: strides, as everything else.

The sums of taps are rounded to the dtype of the weight, once more than the reference rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from egg.expert.emit.names import numbered
from egg.expert.graph import HALF, HELD, Graph, Node, Value, contiguous_stride
from egg.expert.sizes import ONE, Size, Symbol, as_size, product

FACTOR = 2
PHASES = "phases"
"""The attribute of such a node: the steps between the two phases of a result, per dimension: 0 or 1."""
DIMENSIONS = (2, 3)


def by_phases(graph: Graph, left: Callable[[str], bool]) -> Graph:
    """Such convolutions of 16-bit operands on what was doubled, where ``left`` says that the library computes
    the one that makes a value."""
    draft = _Draft(graph)
    for node in graph.nodes:
        source = _doubled(graph, node) if node.op == "conv" and left(node.output) else None
        if source is None:
            draft.nodes.append(node)
        else:
            draft.add_phases(node, source)
    if len(draft.nodes) == len(graph.nodes):
        return graph
    made = graph.rebuilt(draft.nodes_that_are_read(), draft.values)
    return replace(made, symbols={**graph.symbols, **draft.symbols})


def steps_of(node: Node) -> tuple[int, ...]:
    """Per dimension, how much further the second phase of a result reads than the first."""
    return tuple(as_size(size).value % FACTOR for size in node["padding"])


def _doubled(graph: Graph, node: Node) -> Value | None:
    """What the operand of a convolution was before it was doubled, where the convolution keeps its size."""
    x, weight, made = (graph.value(str(name)) for name in (*node.inputs[:2], node.output))
    dimensions = made.rank - 2
    if x.dtype not in HALF or dimensions not in DIMENSIONS or x.rank != made.rank:
        return None
    ordinary = not node["transposed"] and weight.origin in HELD
    steps = (*node["stride"], *node["dilation"], node["groups"])
    if not ordinary or any(as_size(step) != ONE for step in steps) or made.shape[2:] != x.shape[2:]:
        return None
    padding = [as_size(size) for size in node["padding"]]
    widths = zip(padding, weight.shape[2:], strict=True)
    if any(pad.factors or width.factors or width.number < 3 for pad, width in widths):
        return None
    return _before(graph, x)


def _before(graph: Graph, x: Value) -> Value | None:
    """The operand of ``reshape``, ``expand`` and ``reshape`` that repeat every element twice along each
    spatial dimension: so capturing has the nearest neighbours of a doubled image."""
    names, found = ("reshape", "expand", "reshape"), x.name
    spread: tuple[Size, ...] = ()
    for how in names:
        view = graph.producer(found)
        if view is None or view.op != "view" or view["how"] != how:
            return None
        spread = graph.value(found).shape if how == "expand" else spread
        found = str(view.inputs[0])
    source = graph.value(found)
    wanted = list(source.shape[:2])
    for size in source.shape[2:]:
        wanted += [size, Size(FACTOR)]
    return source if source.rank == x.rank and spread == tuple(wanted) else None


@dataclass
class _Draft:
    """The nodes of a graph as they are replaced one after the other."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, Value] = field(init=False)
    symbols: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = dict(self.graph.values)

    def add_phases(self, node: Node, source: Value) -> None:
        """The call, and views that interleave its phases, with the bias behind them."""
        made, steps = self.graph.result(node), steps_of(node)
        attributes = {**node.attributes, PHASES: steps}
        phases = self._value(f"{made.name}_phases", _interleaved(source, made), made.dtype)
        phases = replace(phases, stride=self._strides(source, made, steps))
        self.values[phases.name] = phases
        self.nodes.append(Node("conv", (source.name, node.inputs[1]), (phases.name,), attributes, node.label))
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if bias is None:
            self.nodes.append(Node("view", (phases.name,), (made.name,), {"how": "reshape"}, "reshape"))
            return
        joined = self._value(f"{made.name}_joined", made.shape, made.dtype)
        self.values[joined.name] = replace(joined, stride=made.stride)
        shape = (*self.graph.value(bias).shape, *(ONE for _ in made.shape[2:]))
        spread = self._value(f"{made.name}_bias", shape, self.graph.value(bias).dtype)
        adding = {"fn": "add", "scalars": ()}
        self.nodes += [
            Node("view", (phases.name,), (joined.name,), {"how": "reshape"}, "reshape"),
            Node("view", (bias,), (spread.name,), {"how": "reshape"}, "reshape"),
            Node("pointwise", (joined.name, spread.name), (made.name,), adding, "add"),
        ]

    def nodes_that_are_read(self) -> tuple[Node, ...]:
        """Without views that only led to doubled images."""
        needed, kept = set(self.graph.results), list[Node]()
        for node in reversed(self.nodes):
            if node.op != "view" or not needed.isdisjoint(node.outputs):
                kept.append(node)
                needed.update(name for name in node.inputs if name is not None)
        return tuple(reversed(kept))

    def _strides(self, source: Value, made: Value, steps: tuple[int, ...]) -> tuple[Size, ...]:
        """Of one phase after the other in the channels of a dense result with the channels last."""
        dimensions = len(steps)
        channels = made.shape[1]
        each = channels * FACTOR**dimensions
        sizes = [self._sum(size, step, made) for size, step in zip(source.shape[2:], steps, strict=True)]
        found = [product(sizes) * each, ONE]
        for at, step in enumerate(steps):
            position = product(sizes[at + 1 :])
            channel = FACTOR ** (dimensions - 1 - at)
            along = position * FACTOR**dimensions * step
            found += [position * each, channels * self._sum(along, channel, made)]
        return tuple(found)

    def _sum(self, size: Size, more: int, made: Value) -> Size:
        """A size and a number, under a new name where the size has one."""
        if not size.factors or not more:
            return Size(size.number + more) if not size.factors else size
        text = f"{size.code()} + {more}"
        known = {rule: name for name, rule in self.symbols.items()}
        name = known.get(text) or self._fresh(f"{made.name}_size")
        self.symbols[name] = text
        return Size(1, (Symbol(name, tuple(value + more for value in size.values)),))

    def _value(self, name: str, shape: tuple[Size, ...], dtype: str) -> Value:
        value = Value(self._fresh(name), shape, dtype, contiguous_stride(shape))
        self.values[value.name] = value
        return value

    def _fresh(self, stem: str) -> str:
        return numbered(stem, {*self.values, *self.graph.symbols, *self.symbols})


def _interleaved(source: Value, made: Value) -> tuple[Size, ...]:
    """A result with the two phases of every dimension behind it."""
    found = [source.shape[0], made.shape[1]]
    for size in source.shape[2:]:
        found += [size, Size(FACTOR)]
    return tuple(found)
