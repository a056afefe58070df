"""A library's 16-bit products whose rows would begin at odd places, with rows of whole blocks.

The library's fast products load and store 16 bytes at a time, so rows of an operand or of the result must
begin at multiples of that. A head over 50265 words has a result whose rows do not, and gets kernels of an
older kind that move single numbers: 3.5 ms on an H200 where 0.5 ms would do. So the weight gets further
features, of zeros, once (:func:`~egg.expert.patterns.product.pytorch.product_call` keeps the copy), and the
result has rows of so many elements. What reads it sees the columns that it has: a view with longer strides. A
result that is returned is copied by a pass of ours, which takes a fraction of what the older kernels do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from egg.expert.algebra.across import batch_dimensions, begins_odd, is_aligned, rows_of_one_matrix
from egg.expert.emit.names import underscored
from egg.expert.graph import HALF, HELD, Graph, Node, Value, contiguous_stride
from egg.expert.sizes import ONE, Size, Symbol, product

BLOCK = 64
"""Elements that rows are a multiple of: 128 bytes, a line of the cache."""


def padded_rows(graph: Graph, left: Callable[[str], bool]) -> Graph:
    """The same program with other strides for results of such products; ``left``: whether the product that
    makes a value is computed by a library."""
    chosen = [node for node in graph.nodes if is_to_be_padded(graph, node) and left(node.output)]
    if not chosen:
        return graph
    draft = _Draft(graph, dict(graph.values), dict(graph.symbols))
    for node in graph.nodes:
        draft.take(node, any(node is other for other in chosen))
    results = tuple(draft.renamed.get(str(name), name) for name in graph.results)
    known = {"values": draft.values, "symbols": draft.symbols}
    return replace(graph, nodes=tuple(draft.nodes), results=results, **known)


def is_to_be_padded(graph: Graph, node: Node) -> bool:
    """Whether a product of a weight makes rows that begin at odd places, of operands that do not."""
    if node.op != "matmul" or matrix_of(graph, node) is None:
        return False
    made, operand = graph.result(node), graph.value(str(node.inputs[0]))
    if any(value.dtype not in HALF for value in (made, operand)) or made.dtype != operand.dtype:
        return False
    odd = made.contiguous and not made.lent and begins_odd(made)
    rows = _is_rows(operand) or batch_dimensions(operand) is not None
    return (
        odd and rows and product(made.shape[:-1]).value > 1 and is_aligned(operand.shape[-1], operand.dtype)
    )


def _is_rows(operand: Value) -> bool:
    return rows_of_one_matrix(operand) and operand.stride[-1] == ONE


def matrix_of(graph: Graph, node: Node) -> tuple[Value, int] | None:
    """The weight that a product multiplies with, and which of its dimensions are the features of the result;
    ``None`` where that or the bias is computed."""
    _, right, bias = (*node.inputs, None)[:3]
    if bias is not None and (graph.value(bias).origin not in HELD or graph.value(bias).rank != 1):
        return None
    matrix, features = graph.value(str(right)), 1
    maker = graph.producer(matrix.name)
    if maker is not None and maker.op == "view" and maker["how"] == "permute":
        matrix, features = graph.value(str(maker.inputs[0])), 0
    plain = matrix.origin in HELD and matrix.rank == 2 and matrix.contiguous
    return (matrix, features) if plain and matrix.dtype == graph.result(node).dtype else None


@dataclass
class _Draft:
    """The new program, one node of the old after the other."""

    graph: Graph
    values: dict[str, Value]
    symbols: dict[str, str]
    nodes: list[Node] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)
    renamed: dict[str, str] = field(default_factory=dict)
    """Results that are copied, with their copies."""

    def take(self, node: Node, chosen: bool) -> None:
        returned = node.outputs and node.outputs[0] in self.graph.results
        if chosen:
            node = self._pad(node)
        elif node.op == "view" and node.inputs[0] in self.moved and not self._follow(node) and returned:
            self.nodes.append(node.with_inputs(self._copy(str(node.inputs[0]))))
            return
        self.nodes.append(node)
        if returned and node.output in self.moved:
            self.renamed[node.output] = self._copy(node.output)

    def _pad(self, node: Node) -> Node:
        """The product with longer rows; an operand that is summed along another dimension than its innermost
        one is brought into rows first, by a pass that is small beside the product."""
        made, operand = self.values[node.output], self.values[str(node.inputs[0])]
        whole = (*made.shape[:-1], self._whole(made.shape[-1]))
        self._set_stride(made, contiguous_stride(whole), True)
        if _is_rows(operand):
            return node
        rows = underscored(f"{operand.name}_rows", self.values)
        self.values[rows] = Value(rows, operand.shape, operand.dtype, contiguous_stride(operand.shape))
        self.nodes.append(Node("pointwise", (operand.name,), (rows,), {"fn": "cast", "scalars": ()}, "rows"))
        return node.with_inputs(rows, *node.inputs[1:])

    def _follow(self, node: Node) -> bool:
        """Whether a view moves nothing: it has the strides that PyTorch gives it then."""
        source, made = self.values[str(node.inputs[0])], self.values[node.output]
        padded = False
        match node["how"]:
            case "permute":
                stride = tuple(source.stride[dim] for dim in node["dims"])
            case "slice":
                stride = tuple(
                    step * int(each) for step, each in zip(source.stride, node["steps"], strict=True)
                )
                padded = source.padded and made.shape[-1] == source.shape[-1] and node["steps"][-2] == 1
            case "expand":
                stride = _expanded(source, made.shape)
            case "reshape" if made.shape[-1] == source.shape[-1] and _is_whole(source):
                stride, padded = contiguous_stride((*made.shape[:-1], source.stride[-2])), True
            case _:
                return False
        self._set_stride(made, stride, padded)
        return True

    def _set_stride(self, value: Value, stride: tuple[Size, ...], padded: bool) -> None:
        self.values[value.name] = replace(value, stride=stride, padded=padded)
        self.moved.add(value.name)

    def _copy(self, name: str) -> str:
        """A value as the program has it, without what lies between its rows."""
        copied = underscored(f"{name}_copied", self.values)
        self.values[copied] = replace(self.graph.value(name), name=copied)
        self.nodes.append(Node("pointwise", (name,), (copied,), {"fn": "cast", "scalars": ()}, "copy"))
        return copied

    def _whole(self, columns: Size) -> Size:
        """The columns in whole blocks."""
        if not columns.factors:
            return Size(-(-columns.number // BLOCK) * BLOCK)
        text = f"({columns.code()} + {BLOCK - 1}) // {BLOCK}"
        name = next((name for name, known in self.symbols.items() if known == text), "")
        if not name:
            stem = f"{columns.factors[0].name}_blocks" if len(columns.factors) == 1 else "row_blocks"
            name = underscored(stem, {*self.values, *self.symbols})
            self.symbols[name] = text
        return Size(BLOCK, (Symbol(name, tuple(-(-value // BLOCK) for value in columns.values)),))


def _is_whole(value: Value) -> bool:
    """Whether rows with what lies between them go on one behind the other."""
    return value.padded and value.stride == contiguous_stride((*value.shape[:-1], value.stride[-2]))


def _expanded(source: Value, shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """Strides of a value that is repeated along dimensions of size one, and along new ones."""
    own = zip(shape[len(shape) - source.rank :], source.shape, source.stride, strict=True)
    kept = (stride if size == before else Size(0) for size, before, stride in own)
    return (*(Size(0) for _ in shape[source.rank :]), *kept)
