"""Convolutions whose windows do not overlap, as products.

Where the kernel of a transposed convolution is as wide as its stride, every position of the operand makes a
block of the result of its own, and nothing is added to it: the block is the product of the position's
channels with the weight, ``[inputs, taps * outputs]``. All positions together are one matrix product, and its
columns fall into place by views (a pixel shuffle): the result's axis ``i * stride + tap`` is split into
position and tap. With the channels last, the columns of a row are runs of ``outputs`` elements in memory, or
longer ones along the innermost axis, so the kernel of the product stores whole runs where the result lies.

An ordinary convolution of that kind (patches of an image, a reduction before attention) is the same the other
way round: every position of the result sums a block of the operand that no other reads, so the blocks are
rows of a matrix, ``[positions, taps * inputs]``, read as they lie. A kernel for overlapping windows would
copy the operand first.

Weights with the channels last are read as they lie. One that lies otherwise is turned by a small kernel
first, since tiles of it would be read element by element.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from egg.expert.emit.names import underscored
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.sizes import ONE, Size, as_size, product

RUN = 8
"""Elements of 16 bits that one load brings: blocks are read in place where their runs are multiples of it."""


def is_disjoint(graph: Graph, node: Node) -> bool:
    """Whether a convolution is a product that makes blocks of the result (transposed) or sums blocks of the
    operand."""
    x, weight, made = (graph.value(str(name)) for name in (*node.inputs[:2], node.outputs[0]))
    if not x.rank == weight.rank == made.rank or weight.origin is not Origin.PARAMETER:
        return False
    rank, transposed = weight.rank - 2, bool(node.get("transposed"))
    steps, beside = _each(node["stride"], rank), _each(node["padding"], rank)
    if transposed:
        beside += _each(node.get("output_padding", 0), rank)
    plain = all(as_size(step) == ONE for step in (*_each(node["dilation"], rank), node.get("groups", 1)))
    whole = all(as_size(size) == as_size(0) for size in beside)
    if not plain or not whole or weight.shape[2:] != steps:
        return False
    if transposed:
        return made.shape[2:] == _times(x.shape[2:], steps)
    return (weight.shape[1] * weight.shape[-1]).value % RUN == 0


def blocks_as_products(graph: Graph, convolutions: Collection[str]) -> Graph:
    """The same program with products in the place of the convolutions that make these values."""
    draft = _Draft(dict(graph.values))
    for node in graph.nodes:
        if not node.outputs or node.outputs[0] not in convolutions:
            draft.nodes.append(node)
        elif node.get("transposed"):
            draft.make_blocks(node)
        else:
            draft.sum_blocks(node)
    return graph.rebuilt(tuple(draft.nodes), draft.values)


@dataclass
class _Draft:
    """The nodes of a graph as they are replaced one after the other."""

    values: dict[str, Value]
    nodes: list[Node] = field(default_factory=list)

    def make_blocks(self, node: Node) -> None:
        """Positions times the weight, the columns put in their places, and the bias of each channel."""
        x, weight, made = (self.values[str(name)] for name in (*node.inputs[:2], node.outputs[0]))
        rank, (inputs, outputs), taps = weight.rank - 2, weight.shape[:2], weight.shape[2:]
        positions = (x.shape[0], *x.shape[2:])
        left = self._reshaped(self._last(x, made), (product(positions), inputs), f"{made.name}_rows")
        columns = product(taps) * outputs
        right = self._reshaped(self._last_weight(weight, made), (inputs, columns), f"{made.name}_weight")
        times = self._product(left, right, node)
        blocks = self._reshaped(times, (*positions, *taps, outputs), f"{made.name}_blocks")
        pairs = [at for axis in range(1, rank + 1) for at in (axis, axis + rank)]
        spread = self._permuted(blocks, (0, 2 * rank + 1, *pairs), f"{made.name}_spread")
        images = self._reshaped(spread, made.shape, f"{made.name}_images")
        self.values[images] = replace(self.values[images], stride=made.stride)
        self._finish(images, node, made)

    def sum_blocks(self, node: Node) -> None:
        """Blocks times the weight; the rows of the result are positions, their columns channels."""
        x, weight, made = (self.values[str(name)] for name in (*node.inputs[:2], node.outputs[0]))
        rank, (outputs, inputs), taps = weight.rank - 2, weight.shape[:2], weight.shape[2:]
        positions = (made.shape[0], *made.shape[2:])
        split = [size for pair in zip(made.shape[2:], taps, strict=True) for size in pair]
        whole = self._cut(self._last(x, made), (x.shape[0], *_times(made.shape[2:], taps), inputs), made)
        blocks = self._reshaped(whole, (x.shape[0], *split, inputs), f"{made.name}_blocks")
        order = (0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1)
        joined = self._permuted(blocks, order, f"{made.name}_joined")
        depth = product(taps) * inputs
        left = self._reshaped(joined, (product(positions), depth), f"{made.name}_rows")
        matrix = self._reshaped(self._last_weight(weight, made), (outputs, depth), f"{made.name}_weight")
        right = self._permuted(matrix, (1, 0), f"{made.name}_columns")
        times = self._product(left, right, node, *(name for name in node.inputs[2:3] if name is not None))
        images = self._reshaped(times, (*positions, outputs), f"{made.name}_images")
        back = (0, rank + 1, *range(1, rank + 1))
        self.nodes.append(Node("view", (images,), (made.name,), {"how": "permute", "dims": back}, "permute"))

    def _product(self, left: str, right: str, node: Node, *bias: str) -> str:
        shape = (self.values[left].shape[0], self.values[right].shape[1])
        made = self.values[node.outputs[0]]
        name = self._dense("matmul", (left, right, *bias), shape, f"{made.name}_product", made.dtype)
        self.nodes[-1] = replace(self.nodes[-1], label=node.label)
        return name

    def _last(self, x: Value, made: Value) -> str:
        """The operand with its channels as the last dimension, as they lie."""
        return self._permuted(x.name, (0, *range(2, x.rank), 1), f"{made.name}_last")

    def _cut(self, source: str, shape: tuple[Size, ...], made: Value) -> str:
        """Without the border that makes no whole block."""
        given = self.values[source]
        if given.shape == shape:
            return source
        ends: dict[str, Any] = {"starts": (0,) * given.rank, "steps": (1,) * given.rank}
        name = self._dense("view", (source,), shape, f"{made.name}_cut", given.dtype, how="slice", **ends)
        self.values[name] = replace(self.values[name], stride=given.stride)
        return name

    def _last_weight(self, weight: Value, made: Value) -> str:
        """The weight with the taps before its second channels: as it lies, or copied."""
        turned = self._permuted(weight.name, (0, *range(2, weight.rank), 1), f"{made.name}_matrix")
        value = self.values[turned]
        if value.contiguous:
            return turned
        copying: dict[str, Any] = {"fn": "cast", "scalars": ()}
        return self._dense("pointwise", (turned,), value.shape, f"{made.name}_turned", value.dtype, **copying)

    def _finish(self, images: str, node: Node, made: Value) -> None:
        """Last comes a pointwise operator, so that a kernel of ours stores the result in its layout wherever
        the product is computed."""
        bias = next((name for name in node.inputs[2:3] if name is not None), None)
        inputs, function = [images], "cast"
        if bias is not None:
            value = self.values[bias]
            shape = (*value.shape, *(ONE for _ in made.shape[2:]))
            spread = self._reshaped(bias, shape, f"{made.name}_bias")
            inputs, function = [images, spread], "add"
        attributes = {"fn": function, "scalars": ()}
        self.nodes.append(Node("pointwise", tuple(inputs), (made.name,), attributes, function))

    def _reshaped(self, source: str, shape: tuple[Size, ...], name: str) -> str:
        return self._dense("view", (source,), shape, name, self.values[source].dtype, how="reshape")

    def _permuted(self, source: str, dims: Sequence[int], name: str) -> str:
        given = self.values[source]
        shape, stride = (tuple(sizes[dim] for dim in dims) for sizes in (given.shape, given.stride))
        made = self._dense("view", (source,), shape, name, given.dtype, how="permute", dims=tuple(dims))
        self.values[made] = replace(self.values[made], stride=stride)
        return made

    def _dense(
        self, op: str, inputs: tuple[str, ...], shape: tuple[Size, ...], name: str, dtype: str, **how: Any
    ) -> str:
        """A node with one new value, which is contiguous."""
        name = underscored(name, self.values)
        self.values[name] = Value(name, shape, dtype, contiguous_stride(shape))
        self.nodes.append(Node(op, inputs, (name,), how, str(how.get("how", how.get("fn", op)))))
        return name


def _times(sizes: Sequence[Size], steps: Sequence[Size]) -> tuple[Size, ...]:
    return tuple(size * step for size, step in zip(sizes, steps, strict=True))


def _each(value: Any, rank: int) -> tuple[Size, ...]:
    """One per dimension, also where a single one is for all."""
    given: list[Any] = list(value) if isinstance(value, tuple | list) else [value]
    return tuple(as_size(size) for size in (given if len(given) == rank else given * rank))
