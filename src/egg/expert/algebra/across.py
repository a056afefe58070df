"""Products over a dimension that is not the innermost one in memory, as batched products.

Token mixing, spatial gating and axial layers multiply along another dimension than the last one:
``linear(x.transpose(1, 2))``. PyTorch copies such an operand, multiplies, and adds the bias in another pass;
what reads the result transposed again meets elements that lie far apart. But a library's batched product
takes operands transposed, and one matrix for all of the batch: ``y[b, n, m] = w[n, k] @ x[b, k, m]`` has its
operand and its result as they lie, and copies nothing. So a library's product of such an operand is written
that way round where its result, or what follows from it element by element, is transposed back. Elsewhere the
result lies as before, and only the copy is left out (:mod:`egg.expert.patterns.product.pytorch`). The bias is
added by what follows: the library would fill the whole result with it first.

A convolution of one tap over images with contiguous positions is such a product as well, over the channels of
every image: nothing needs its channels last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from egg.expert.emit.names import underscored
from egg.expert.graph import BYTES, FLOATS, HALF, Graph, Node, Origin, Value, contiguous_stride
from egg.expert.sizes import ONE, Size, product

FOLLOWING = frozenset({"pointwise", "where"})
"""Their results may lie as their operands do."""
ALIGNMENT = 16
"""Bytes that rows of an operand must be a multiple of: the library's fast products load no others."""

MANY_COLUMNS = 1024
"""Columns from which on padding takes little of what it saves."""

Left = Callable[[str], bool]
"""Whether the operator that makes a value is computed by a library."""


def products_across(graph: Graph, left: Left) -> Graph:
    """The same program with the library's products over other dimensions written as batched ones."""
    if not any(_is_candidate(graph, node, left) for node in graph.nodes):
        return graph
    draft = _Draft(graph, left, dict(graph.values))
    for node in graph.nodes:
        draft.take(node)
    return graph.rebuilt(tuple(draft.nodes), draft.values)


def convolutions_across(graph: Graph, names: Collection[str]) -> Graph:
    """Convolutions of one tap as products of the weight with each image, whose positions are contiguous."""
    draft = _Draft(graph, lambda _: False, dict(graph.values))
    for node in graph.nodes:
        if node.outputs and node.outputs[0] in names:
            draft.multiply_images(node)
        else:
            draft.add(node)
    return graph.rebuilt(tuple(draft.nodes), draft.values)


def is_aligned(rows: Size, dtype: str) -> bool:
    """Whether rows of so many elements begin where the library's fast products can load them."""
    return rows.value * BYTES[dtype] % ALIGNMENT == 0


def begins_odd(made: Value) -> bool:
    """Whether a 16-bit product of many columns has rows that begin at odd places. The library has kernels
    of an older kind for it (:mod:`egg.expert.algebra.padded_rows`): a copied operand is the least of it."""
    return (
        made.dtype in HALF
        and made.shape[-1].value >= MANY_COLUMNS
        and not is_aligned(made.shape[-1], made.dtype)
    )


def batch_dimensions(value: Value) -> int | None:
    """So many of the first dimensions are a batch, where a product sums over the last one and the others are
    neighbours in memory: a batched product reads that as transposed matrices. ``None`` for other layouts."""
    shape, stride, last = value.shape, value.stride, value.rank - 2
    if last < 1 or stride[last] != ONE or stride[-1] == ONE or any(step.number == 0 for step in stride):
        return None
    batch = last
    while batch > 0 and stride[batch - 1] == stride[batch] * shape[batch]:
        batch -= 1
    together = all(stride[dim] == stride[dim + 1] * shape[dim + 1] for dim in range(batch - 1))
    return batch if batch > 0 and together and is_aligned(stride[-1], value.dtype) else None


def rows_of_one_matrix(value: Value) -> bool:
    """Whether all dimensions but the last go on where the next ends: a view makes one matrix of them."""
    shape, stride = value.shape, value.stride
    return all(
        shape[dim] == ONE or stride[dim] == stride[dim + 1] * shape[dim + 1] for dim in range(value.rank - 2)
    )


def lies_so(values: Mapping[str, Value], makers: Mapping[str, Node], value: Value) -> bool:
    """Whether a view has the strides of what it shows: layouts that were chosen for that may differ."""
    maker = makers.get(value.name)
    if maker is None or maker.op != "view":
        return True
    source = values[str(maker.inputs[0])]
    match maker["how"]:
        case "permute":
            same = value.stride == tuple(source.stride[dim] for dim in maker["dims"])
        case "reshape":
            same = source.contiguous and value.contiguous
        case _:
            same = source.stride == value.stride
    return same and lies_so(values, makers, source)


# -- which products ------------------------------------------------------------------------------------


def _is_candidate(graph: Graph, node: Node, left: Left) -> bool:
    if node.op != "matmul" or not left(node.output):
        return False
    operand = graph.value(str(node.inputs[0]))
    across = _has_one_matrix(graph.values, node) and batch_dimensions(operand) is not None
    return (across and lies_so(graph.values, graph.producers, operand)) or _adds_a_column(
        graph, graph.values, node
    )


def _has_one_matrix(values: Mapping[str, Value], node: Node) -> bool:
    """Whether the right operand is a matrix for all of the batch, and the bias one of its columns."""
    operand, matrix, *bias = (values[name] for name in node.inputs if name is not None)
    same = operand.dtype == matrix.dtype == values[node.output].dtype and operand.dtype in FLOATS
    plain = all(added.shape == matrix.shape[-1:] and added.dtype == operand.dtype for added in bias)
    return same and plain and operand.rank >= 3 and matrix.rank == 2


def _adds_a_column(graph: Graph, values: Mapping[str, Value], node: Node) -> bool:
    """Whether a batched product of one left matrix adds a number for each row, and is not returned."""
    if len(node.inputs) < 3 or node.inputs[2] is None or node.output in graph.results:
        return False
    matrix, operand, bias = (values[str(name)] for name in node.inputs)
    return (matrix.rank, operand.rank) == (2, 3) and bias.shape == (matrix.shape[0], ONE)


def _is_free(graph: Graph, name: str) -> bool:
    """Whether the plan may choose where a value lies."""
    value = graph.value(name)
    return value.origin is Origin.NODE and value.contiguous and not value.lent and name not in graph.results


def _is_turned_back(graph: Graph, left: Left, name: str, batch: int) -> bool:
    """Whether a product's last dimension is moved in front of its rows, there or behind operators that
    follow its layout: pointwise ones, and the library's products over that dimension."""
    waiting, seen = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or not _is_free(graph, name):
            continue
        seen.add(name)
        value = graph.value(name)
        front = (*range(batch), value.rank - 1, *range(batch, value.rank - 1))
        for reader in graph.consumers[name]:
            if reader.op == "view" and reader["how"] == "permute" and tuple(reader["dims"]) == front:
                return True
            if reader.op in FOLLOWING and graph.result(reader).shape == value.shape:
                waiting.append(reader.output)
            operand = reader.op == "matmul" and reader.inputs[0] == name and left(reader.output)
            if operand and _has_one_matrix(graph.values, reader):
                waiting.append(reader.output)
    return False


# -- as batched products -------------------------------------------------------------------------------


@dataclass
class _Draft:
    """The new program, one node of the old after the other."""

    graph: Graph
    left: Left
    values: dict[str, Value]
    nodes: list[Node] = field(default_factory=list)
    makers: dict[str, Node] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    turned: dict[str, tuple[Size, ...]] = field(default_factory=dict)
    """Values that lie otherwise than in the old program, with the strides that they had there."""

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.makers.update(dict.fromkeys(node.outputs, node))

    def take(self, node: Node) -> None:
        node = node.with_inputs(*(None if n is None else self.renamed.get(n, n) for n in node.inputs))
        if node.op != "matmul" or not self.left(node.output):
            self.add(node)
            self._follow(node)
            return
        if _adds_a_column(self.graph, self.values, node):
            self.add(node.with_inputs(*node.inputs[:2]))
            self._read_as(node.output, node.output, node.inputs[2])
            return
        operand = self.values[str(node.inputs[0])]
        across = _has_one_matrix(self.values, node) and lies_so(self.values, self.makers, operand)
        batch = batch_dimensions(operand) if across else None
        if batch is None or node.output in self.graph.results or begins_odd(self.values[node.output]):
            self.add(node)
        elif _is_turned_back(self.graph, self.left, node.output, batch):
            self._turn(node, operand, batch)
        else:
            self._multiply_in_place(node, operand, batch)

    def _follow(self, node: Node) -> None:
        """A permutation moves strides; what lay as its operands in the old program does so in the new."""
        if len(node.outputs) != 1:
            return
        made, operands = self.values[node.output], [self.values[name] for name in node.inputs if name]
        if node.op == "view" and node["how"] == "permute" and operands[0].name in self.turned:
            self.turned[made.name] = made.stride
            stride = tuple(operands[0].stride[dim] for dim in node["dims"])
            self.values[made.name] = replace(made, stride=stride)
        if node.op not in FOLLOWING or made.lent or made.name in self.graph.results:
            return
        alike = [value for value in operands if value.shape == made.shape]
        stride = alike[0].stride if alike else ()
        if alike and all(v.stride == stride and self.turned.get(v.name) == made.stride for v in alike):
            self.turned[made.name] = made.stride
            self.values[made.name] = replace(made, stride=stride)

    def _turn(self, node: Node, operand: Value, batch: int) -> None:
        """The weight times each matrix as it lies; readers get a view of the shape that the product had."""
        made, rank = self.values[node.output], operand.rank
        lead, rows = operand.shape[:batch], operand.shape[batch:-1]
        columns, depth = made.shape[-1], operand.shape[-1]
        front = (*range(batch), rank - 1, *range(batch, rank - 1))
        right = self._permuted(operand.name, front, f"{made.name}_operand")
        stride = (operand.stride[batch - 1], operand.stride[-1], ONE)
        flat = (product(lead), depth, product(rows))
        right = self._reshaped(right, flat, f"{made.name}_matrices", stride)
        weight = self._permuted(str(node.inputs[1]), (1, 0), f"{made.name}_weight")
        shape = (product(lead), columns, product(rows))
        self.values[made.name] = replace(made, shape=shape, stride=contiguous_stride(shape))
        self.add(Node("matmul", (weight, right), (made.name,), node.attributes, node.label))
        spread = self._reshaped(made.name, (*lead, columns, *rows), f"{made.name}_spread")
        back = (*range(batch), *range(batch + 1, rank), batch)
        result = self._permuted(spread, back, f"{made.name}_turned")
        self.turned[result] = made.stride
        self._read_as(made.name, result, (*node.inputs, None)[2])

    def _multiply_in_place(self, node: Node, operand: Value, batch: int) -> None:
        """The product of transposed matrices, with a result that lies as before."""
        made = self.values[node.output]
        lead, rows = product(operand.shape[:batch]), product(operand.shape[batch:-1])
        stride = (operand.stride[batch - 1], ONE, operand.stride[-1])
        flat = (lead, rows, operand.shape[-1])
        left = self._reshaped(operand.name, flat, f"{made.name}_matrices", stride)
        shape = (lead, rows, made.shape[-1])
        self.values[made.name] = replace(made, shape=shape, stride=contiguous_stride(shape))
        self.add(Node("matmul", (left, node.inputs[1]), (made.name,), node.attributes, node.label))
        result = self._reshaped(made.name, made.shape, f"{made.name}_spread")
        self._read_as(made.name, result, (*node.inputs, None)[2])

    def multiply_images(self, node: Node) -> None:
        """A convolution of one tap: its weight times each image."""
        x, weight, made = (self.values[str(name)] for name in (*node.inputs[:2], node.output))
        (outputs, inputs), images = weight.shape[:2], x.shape[0]
        positions = product(x.shape[2:])
        right = self._reshaped(x.name, (images, inputs, positions), f"{made.name}_matrices")
        given = [self._reshaped(weight.name, (outputs, inputs), f"{made.name}_matrix"), right]
        if len(node.inputs) > 2 and (bias := node.inputs[2]) is not None:
            given.append(self._reshaped(bias, (outputs, ONE), f"{made.name}_column"))
        times, shape = underscored(f"{made.name}_product", self.values), (images, outputs, positions)
        self.values[times] = replace(made, name=times, shape=shape, stride=contiguous_stride(shape))
        self.add(Node("matmul", tuple(given), (times,), {}, node.label))
        self.add(Node("view", (times,), (made.name,), {"how": "reshape"}, "reshape"))

    # -- parts of a rewrite ------------------------------------------------------------------------

    def _read_as(self, old: str, result: str, bias: str | None) -> None:
        """What readers of ``old`` read from now on: the result, with the bias."""
        if bias is not None:
            name = underscored(f"{old}_biased", self.values)
            self.values[name] = replace(self.values[result], name=name)
            self.add(Node("pointwise", (result, bias), (name,), {"fn": "add", "scalars": ()}, "add"))
            if result in self.turned:
                self.turned[name] = self.turned[result]
            result = name
        if result != old:
            self.renamed[old] = result

    def _permuted(self, source: str, dims: Sequence[int], name: str) -> str:
        """A permutation of a value, or of what that is a permutation of."""
        maker = self.makers.get(source)
        if maker is not None and maker.op == "view" and maker["how"] == "permute":
            source, dims = str(maker.inputs[0]), [maker["dims"][dim] for dim in dims]
        if list(dims) == sorted(dims):
            return source
        value = self.values[source]
        shape, stride = (tuple(sizes[dim] for dim in dims) for sizes in (value.shape, value.stride))
        return self._viewed(source, shape, stride, name, how="permute", dims=tuple(dims))

    def _reshaped(
        self, source: str, shape: tuple[Size, ...], name: str, stride: tuple[Size, ...] | None = None
    ) -> str:
        """Another shape of the same elements; dense, where no strides are given."""
        if self.values[source].shape == shape:
            return source
        return self._viewed(source, shape, stride or contiguous_stride(shape), name, how="reshape")

    def _viewed(
        self, source: str, shape: tuple[Size, ...], stride: tuple[Size, ...], name: str, **how: object
    ) -> str:
        name = underscored(name, self.values)
        self.values[name] = Value(name, shape, self.values[source].dtype, stride)
        self.add(Node("view", (source,), (name,), how, str(how["how"])))
        return name
