"""The convolution of a group as loops: output positions, output channels, input channels and taps.

Ordinary and transposed convolutions are one thing here. Along each spatial axis the outputs fall into
*phases* (one for an ordinary convolution, as many as the stride for a transposed one); within a phase,
output number ``q`` reads the input at ``q * step + origin + j * reach`` for the taps ``j`` of that phase,
and multiplies with the weight at ``first + j * pace``. So each phase of a transposed convolution is an
ordinary small convolution, and nothing is ever multiplied with an interleaved zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from egg.expert.algebra.upsampled import PHASES
from egg.expert.graph import FLOATS, Graph, Node, Value
from egg.expert.index import Expr, Index, as_expr, loop_index, unflat
from egg.expert.parts import REACH, Group, Unfit, WithBias, within_reach
from egg.expert.patterns.convolution.axis import Axis
from egg.expert.patterns.convolution.pooled import Windows
from egg.expert.patterns.convolution.sums import TILED
from egg.expert.sizes import ONE, Size, aligned, as_size, named, product

LETTERS = ("d", "h", "w")
MANY_PHASES = 3
"""From which on a program does not hold the sums of all phases side by side."""
MOST_TAPS = 8
"""Along the innermost axis, up to which every output looks at all of them."""
SLOW = frozenset({"sin", "cos", "tan"})
"""Functions with a branch for large arguments."""


def plain(value: Any, what: str) -> int:
    """A number that belongs to the structure of the program."""
    size = as_size(value)
    if size.factors:
        if len(set(size.values)) > 1:
            raise Unfit(f"{what} changes with the size of the program")
        return size.value
    return size.number


@dataclass(frozen=True)
class Form(WithBias):
    """One ``conv`` node and its loops."""

    graph: Graph
    group: Group
    node: Node
    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, graph: Graph, group: Group) -> Form:
        found = [node for node in group.nodes if node.op == "conv"]
        if len(found) != 1:
            raise Unfit(f"{len(found)} convolutions in one group")
        node = found[0]
        if PHASES in node.attributes:
            raise Unfit("phases of a doubled image, which the library computes in one call")
        x, weight, out = (
            graph.value(str(node.inputs[0])),
            graph.value(str(node.inputs[1])),
            graph.result(node),
        )
        rank = weight.rank - 2
        if not 1 <= rank <= 3 or x.rank != rank + 2:
            raise Unfit(
                f"a convolution of {rank} spatial dimensions without a batch" if rank <= 3 else "rank"
            )
        if any(value.dtype not in FLOATS for value in (x, weight)) or x.dtype != weight.dtype:
            raise Unfit(f"a convolution of {x.dtype} with {weight.dtype}")
        if any(not size.value for size in (*x.shape, *out.shape)):
            raise Unfit("an empty convolution")
        axes = tuple(
            Axis(
                LETTERS[3 - rank + at],
                plain(weight.shape[2 + at], "a kernel's width"),
                plain(_each(node["stride"], at), "a stride"),
                plain(_each(node["padding"], at), "padding"),
                plain(_each(node["dilation"], at), "a dilation"),
                bool(node.get("transposed", False)),
                x.shape[2 + at],
                out.shape[2 + at],
            )
            for at in range(rank)
        )
        form = cls(graph, group, node, axes)
        if form.positions * 2 >= REACH:
            raise Unfit("more output positions than 32 bits count")
        if any(image.value >= REACH for image in form.images):
            raise Unfit("images larger than 32 bits count: only the batch's part of an address has 64")
        return form

    @property
    def images(self) -> tuple[Size, Size]:
        """Elements of an image before and behind it."""
        return product(self.x.shape[1:]), product(self.result.shape[1:])

    @property
    def counts(self) -> tuple[str, ...]:
        """What 32 bits must count at other sizes: all output positions twice, and elements of an image."""
        steps = [f"({axis.count_text})" if " " in axis.count_text else axis.count_text for axis in self.axes]
        positions = " * ".join((self.batch.code(), *steps, "2"))
        return positions, *within_reach(self.images)

    @cached_property
    def x(self) -> Value:
        return self.operand(0)

    @cached_property
    def weight(self) -> Value:
        return self.operand(1)

    @property
    def transposed(self) -> bool:
        return bool(self.node.get("transposed", False))

    @property
    def batch(self) -> Size:
        return self.x.shape[0]

    @property
    def slow_elements(self) -> int:
        """Elements of the group's functions that have a branch for large arguments, and long code."""
        slow = (node for node in self.group.nodes if node.op == "pointwise" and node["fn"] in SLOW)
        return sum(self.graph.result(node).elements.value for node in slow)

    @property
    def groups(self) -> Size:
        return as_size(self.node.get("groups", 1))

    @cached_property
    def inputs(self) -> Size:
        """Input channels of one group."""
        return _share(self.x.shape[1], self.groups) if self.transposed else self.weight.shape[1]

    @cached_property
    def outputs(self) -> Size:
        """Output channels of one group."""
        return self.weight.shape[1] if self.transposed else _share(self.weight.shape[0], self.groups)

    @cached_property
    def windows(self) -> Windows | None:
        """Those of pools behind it, by which output positions are counted then."""
        return Windows.of(self.graph, self.group.nodes, self.node, bool(self.phased), self.imaged)

    @property
    def imaged(self) -> bool:
        """A tile has positions of one image only: see :mod:`~egg.expert.patterns.convolution.sums`."""
        return any(node.op in TILED for node in self.group.nodes)

    @property
    def phases(self) -> int:
        return prod(axis.phases for axis in self.axes)

    @property
    def phased(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis.phases > 1)

    @property
    def joined(self) -> Axis | None:
        """The innermost axis, where a program computes both phases of its positions and writes whole rows."""
        return self.axes[-1] if self.axes[-1].phases == 2 else None

    @property
    def apart(self) -> tuple[Axis, ...]:
        """Axes whose phases are programs (or turns) of their own."""
        return tuple(axis for axis in self.phased if axis is not self.joined)

    @property
    def width(self) -> int:
        """Outputs that one position of a tile stands for."""
        return 1 if self.joined is None else self.joined.phases

    @property
    def uniform(self) -> bool:
        return all(axis.uniform for axis in self.axes)

    @property
    def taps(self) -> int:
        """Of the whole kernel."""
        return prod(axis.kernel for axis in self.axes)

    @property
    def most_taps(self) -> int:
        """Of one phase."""
        return prod(axis.most_taps for axis in self.axes)

    @property
    def mean_taps(self) -> float:
        return prod(sum(axis.taps(phase) for phase in range(axis.phases)) / axis.phases for axis in self.axes)

    @property
    def pointwise(self) -> bool:
        """One tap, every input used once: a product over channels."""
        return all(a.kernel == 1 and a.stride == 1 and not a.padding for a in self.axes)

    @property
    def depthwise(self) -> bool:
        return self.inputs == ONE and self.outputs == ONE and self.groups != ONE

    @property
    def plane(self) -> Size:
        """Output positions of one image."""
        return product(axis.out for axis in self.axes)

    @property
    def positions(self) -> int:
        """Per phase, at the program's own size."""
        return self.batch.value * prod(axis.count.value for axis in self.axes)

    @property
    def flops(self) -> float:
        one = self.inputs.value * self.outputs.value * self.groups.value * self.mean_taps
        return 2.0 * self.positions * self.phases * one

    def computed(self, value: Value) -> bool:
        """Whether a value is made in this group, rather than read from memory."""
        return any(value.name in node.outputs for node in self.group.nodes)

    def in_rows(self) -> Form:
        """The same with outputs of the innermost axis counted as they lie, where there are many phases: a
        program then writes whole rows, for the price of products with zeros."""
        last = self.axes[-1]
        if last.phases < MANY_PHASES or last.kernel > MOST_TAPS:
            return self
        return replace(self, axes=(*self.axes[:-1], replace(last, dense=True)))

    # -- indices -----------------------------------------------------------------------------------

    def output_index(self) -> Index:
        """Of the result: by ``n``, ``c`` and ``s``, or by one index per axis where there are phases."""
        n, c = loop_index("n", self.batch), loop_index("c", self.groups * self.outputs)
        if not self.phased:
            return (n, c, *unflat(loop_index("s", self.plane), tuple(axis.out for axis in self.axes)))
        return (n, c, *(self.output_at(axis) for axis in self.axes))

    def output_at(self, axis: Axis) -> Expr:
        step = loop_index(f"q{axis.letter}", axis.count)
        if axis.phases == 1:
            return step
        return step * axis.phases + loop_index(f"r{axis.letter}", axis.phases)

    def input_at(self, axis: Axis, tap: Expr) -> Expr:
        """Where a tap of an output position reads the input."""
        step = loop_index(f"q{axis.letter}", axis.count) * axis.step
        origin = as_expr(axis.origin(0)) if axis.phases == 1 else loop_index(f"origin_{axis.letter}", 2**20)
        return step + origin + tap * axis.reach

    def tap_at(self, axis: Axis, tap: Expr) -> Expr:
        """Which tap of the kernel the ``tap``-th of a phase is."""
        if axis.phases == 1:
            return tap * axis.pace
        return tap * axis.pace + loop_index(f"first_{axis.letter}", axis.kernel + 1)

    def weight_index(self, inner: Expr, outer: Expr, taps: Index) -> Index:
        """Of the weight, at channels within the group."""
        group = loop_index("group", self.groups)
        if self.transposed:
            return (group * self.inputs + inner, outer, *taps)
        return (group * self.outputs + outer, inner, *taps)

    def outside(self, at: tuple[Expr, ...]) -> tuple[str, ...]:
        """Tests that input positions exist, as far as that is not certain."""
        tests: list[str] = []
        for axis, place in zip(self.axes, at, strict=True):
            unsure = axis.phases > 1
            if unsure or place.may_be_negative():
                tests.append(f"({place} >= 0)")
            if unsure or not place.below(axis.size):
                tests.append(f"({place} < {axis.size})")
        return tuple(tests)


def _share(channels: Size, groups: Size) -> Size:
    """Channels of one group; as a quotient where their names do not tell it."""
    exact = channels.over(groups)
    if exact is not None:
        return exact
    values = tuple(c // g for c, g in aligned(channels.values, groups.values))
    divisor = f"({groups})" if " " in groups.code() else groups.code()
    channels_text = f"({channels})" if " " in channels.code() else channels.code()
    return named(f"({channels_text} // {divisor})", values)


def _each(value: Any, at: int) -> Any:
    """Attributes stand per dimension; a single one is for all of them."""
    if isinstance(value, (tuple, list)):
        every: list[Any] = list(value)
        return every[at] if len(every) > 1 else every[0]
    return value
