"""Transposed convolutions whose windows do not overlap, as products.

Where the kernel of a transposed convolution is as wide as its stride, every position of the operand makes a
block of the result of its own, and nothing is added to it: the block is the product of the position's
channels with the weight, ``[inputs, taps * outputs]``. All positions together are one matrix product, and its
columns fall into place by views (a pixel shuffle): the result's axis ``i * stride + tap`` is split into
position and tap. With the channels last, the columns of a row are runs of ``outputs`` elements in memory, or
longer ones along the innermost axis, so the kernel of the product stores whole runs where the result lies.

The weight is ``[inputs, outputs, *taps]``. With its channels last, a row of the product's operand is dense;
a weight that lies otherwise is turned by a small kernel first, since tiles of it would be read element by
element.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from egg.expert.emit.names import underscored
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.sizes import ONE, Size, as_size, product


def makes_blocks(graph: Graph, node: Node) -> bool:
    """Whether each position of a transposed convolution's operand makes a block of the result by itself."""
    x, weight, made = (graph.value(str(name)) for name in (*node.inputs[:2], node.outputs[0]))
    if not node.get("transposed") or not x.rank == weight.rank == made.rank:
        return False
    rank = weight.rank - 2
    steps = _each(node["stride"], rank)
    beside = (*_each(node["padding"], rank), *_each(node.get("output_padding", 0), rank))
    plain = all(as_size(step) == ONE for step in (*_each(node["dilation"], rank), node.get("groups", 1)))
    whole = all(as_size(size) == as_size(0) for size in beside)
    apart = weight.shape[2:] == steps
    covered = made.shape[2:] == tuple(size * step for size, step in zip(x.shape[2:], steps, strict=True))
    return plain and whole and apart and covered and weight.origin is Origin.PARAMETER


def blocks_as_products(graph: Graph, convolutions: Collection[str]) -> Graph:
    """The same program with products in the place of the convolutions that make these values."""
    draft = _Draft(dict(graph.values))
    for node in graph.nodes:
        if node.outputs and node.outputs[0] in convolutions:
            draft.add_product(node)
        else:
            draft.nodes.append(node)
    return graph.rebuilt(tuple(draft.nodes), draft.values)


@dataclass
class _Draft:
    """The nodes of a graph as they are replaced one after the other."""

    values: dict[str, Value]
    nodes: list[Node] = field(default_factory=list)

    def add_product(self, node: Node) -> None:
        """Positions times the weight, the columns put in their places, and the bias of each channel."""
        x, weight, made = (self.values[str(name)] for name in (*node.inputs[:2], node.outputs[0]))
        rank, (inputs, outputs), taps = weight.rank - 2, weight.shape[:2], weight.shape[2:]
        positions = (x.shape[0], *x.shape[2:])
        rows, columns = product(positions), product(taps) * outputs
        inner = (0, *range(2, x.rank), 1)
        last = self._permuted(x, inner, f"{made.name}_last")
        left = self._dense("view", (last,), (rows, inputs), f"{made.name}_rows", x.dtype, how="reshape")
        turned = self._turned_weight(weight, inner, made.name)
        right = self._dense(
            "view", (turned,), (inputs, columns), f"{made.name}_weight", x.dtype, how="reshape"
        )
        times = self._dense("matmul", (left, right), (rows, columns), f"{made.name}_product", made.dtype)
        self.nodes[-1] = replace(self.nodes[-1], label=node.label)
        shape = (*positions, *taps, outputs)
        blocks = self._dense("view", (times,), shape, f"{made.name}_blocks", made.dtype, how="reshape")
        pairs = [at for axis in range(1, rank + 1) for at in (axis, axis + rank)]
        spread = self._permuted(self.values[blocks], (0, 2 * rank + 1, *pairs), f"{made.name}_spread")
        images = self._dense("view", (spread,), made.shape, f"{made.name}_images", made.dtype, how="reshape")
        self.values[images] = replace(self.values[images], stride=made.stride)
        self._finish(images, node, made)

    def _turned_weight(self, weight: Value, inner: Sequence[int], name: str) -> str:
        """The weight with its outputs innermost: as it lies, or copied."""
        turned = self._permuted(weight, inner, f"{name}_matrix")
        value = self.values[turned]
        if value.contiguous:
            return turned
        copying: dict[str, Any] = {"fn": "cast", "scalars": ()}
        return self._dense("pointwise", (turned,), value.shape, f"{name}_turned", value.dtype, **copying)

    def _finish(self, images: str, node: Node, made: Value) -> None:
        """Last comes a pointwise operator, so that a kernel of ours stores the result in its layout wherever
        the product is computed."""
        bias = next((name for name in node.inputs[2:3] if name is not None), None)
        inputs, function = [images], "cast"
        if bias is not None:
            value = self.values[bias]
            shape = (*value.shape, *(ONE for _ in made.shape[2:]))
            spread = self._dense("view", (bias,), shape, f"{made.name}_bias", value.dtype, how="reshape")
            inputs, function = [images, spread], "add"
        attributes = {"fn": function, "scalars": ()}
        self.nodes.append(Node("pointwise", tuple(inputs), (made.name,), attributes, function))

    def _permuted(self, source: Value, dims: Sequence[int], name: str) -> str:
        shape = tuple(source.shape[dim] for dim in dims)
        made = self._dense("view", (source.name,), shape, name, source.dtype, how="permute", dims=tuple(dims))
        stride = tuple(source.stride[dim] for dim in dims)
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


def _each(value: Any, rank: int) -> tuple[Size, ...]:
    """One per dimension, also where a single one is for all."""
    given: list[Any] = list(value) if isinstance(value, tuple | list) else [value]
    return tuple(as_size(size) for size in (given if len(given) == rank else given * rank))
