"""A product as PyTorch's call."""

from __future__ import annotations

from egg.expert.algebra.across import batch_dimensions, is_aligned
from egg.expert.algebra.padded_rows import BLOCK, matrix_of
from egg.expert.emit.keeping import KEEP
from egg.expert.emit.layout import ALIGNED_WEIGHT, PADDED_WEIGHT
from egg.expert.emit.spelling import Speller
from egg.expert.graph import HALF, HELD, Node, Origin, Value
from egg.expert.parts import spelled
from egg.expert.sizes import ONE, Size


def product_call(speller: Speller, node: Node) -> str:
    """As ``linear`` where the second operand is a weight as PyTorch lays it out: libraries know that best.

    One matrix for a batch of others is spelled as a batched product: PyTorch would copy matrices that lie
    transposed, or the result, to make one product of all.
    """
    a, b, bias = (*node.inputs, None)[:3]
    if (padded := _padded(speller, node)) is not None:
        return f"{node.output} = {padded}"
    if (batched := _batched(speller, node)) is not None:
        return f"{node.output} = {batched}"
    left, right = spelled(speller.graph, str(a)), spelled(speller.graph, str(b))
    if speller.graph.value(str(a)).dtype == "int8" and speller.graph.result(node).dtype == "int32":
        return f"{node.output} = {_in_doubles(left, right)}"
    if (matrix := _flat_parameter(speller, str(b))) is not None and (
        bias is None or speller.graph.value(bias).rank == 1
    ):
        given = [left, matrix, *([spelled(speller.graph, bias)] if bias is not None else [])]
        return f"{node.output} = nn.functional.linear({', '.join(given)})"
    weight = speller.transposed_parameter(str(b))
    if weight is not None and (bias is None or speller.graph.value(bias).rank == 1):
        return (
            f"{node.output} = nn.functional.linear({speller.listed((a, weight, *((bias,) if bias else ())))})"
        )
    if bias is None:
        return f"{node.output} = torch.matmul({left}, {right})"
    added = spelled(speller.graph, bias)
    if (function := _adding(speller, (str(a), str(b), bias))) is not None:
        return f"{node.output} = torch.{function}({added}, {left}, {right})"
    return f"{node.output} = torch.matmul({left}, {right}) + {added}"


def _in_doubles(left: str, right: str) -> str:
    """A product of eight-bit numbers by way of the only numbers that PyTorch's public products take on every
    device and that hold each sum exactly."""
    return f"torch.matmul({left}.double(), {right}.double()).int()"


def _padded(speller: Speller, node: Node) -> str | None:
    """The product with further features of zeros, where its result is to have longer rows than columns; what
    is read of it are its own."""
    made, found = speller.graph.result(node), matrix_of(speller.graph, node)
    if found is None or not made.padded:
        return None

    def whole(value: Value, dim: int) -> str:
        return f"{KEEP}({PADDED_WEIGHT}, {spelled(speller.graph, value.name)}, {dim}, {BLOCK})"

    (matrix, features), left = found, spelled(speller.graph, str(node.inputs[0]))
    columns = f"[..., :{speller.size(made.shape[-1])}]"
    bias = [whole(speller.graph.value(name), 0) for name in node.inputs[2:] if name is not None]
    if features == 0:
        return f"nn.functional.linear({', '.join((left, whole(matrix, 0), *bias))}){columns}"
    if not bias:
        return f"torch.matmul({left}, {whole(matrix, 1)}){columns}"
    return f"nn.functional.linear({left}, {whole(matrix, 1)}.t(), {bias[0]}){columns}"


def _batched(speller: Speller, node: Node) -> str | None:
    """The product of one matrix with each of a batch, where that is on the right, or is on the left and
    transposed in memory."""
    left, right, *others = (speller.graph.value(name) for name in node.inputs if name is not None)
    if any(value.dtype != left.dtype for value in (right, *others)) or not left.floating:
        return None
    ranks = left.rank, right.rank
    if ranks == (2, 3):
        texts = [_repeated(speller, left, right.shape[0]), spelled(speller.graph, right.name)]
    elif ranks == (3, 2) and batch_dimensions(left) == 1:
        texts = [spelled(speller.graph, left.name), _repeated(speller, right, left.shape[0])]
    else:
        return None
    if not others:
        return f"torch.bmm({', '.join(texts)})"
    return f"torch.baddbmm({spelled(speller.graph, others[0].name)}, {', '.join(texts)})"


def _repeated(speller: Speller, matrix: Value, times: Size) -> str:
    """A matrix for all of a batch, which lies in memory once."""
    held = speller.transposed_parameter(matrix.name)
    source = speller.graph.value(held) if held is not None else matrix
    text = spelled(speller.graph, source.name)
    if source.dtype in HALF and source.origin in HELD and not is_aligned(source.shape[1], source.dtype):
        text = f"{KEEP}({ALIGNED_WEIGHT}, {text})"
    text += ".t()" if held is not None else ""
    return f"{text}.expand({speller.size(times)}, -1, -1)"


def _adding(speller: Speller, names: tuple[str, str, str]) -> str | None:
    """PyTorch's product that adds a bias before it stores: no pass over the result of its own."""
    left, right, bias = (speller.graph.value(name) for name in names)
    if not left.dtype == right.dtype == bias.dtype or not left.rank == right.rank >= bias.rank:
        return None
    same_batch = left.shape[:-2] == right.shape[:-2]
    return {2: "addmm", 3: "baddbmm"}.get(left.rank) if same_batch else None


def _flat_parameter(speller: Speller, name: str) -> str | None:
    """The parameter of more than two dimensions whose matrix a value is the transpose of: the weight of a
    convolution of one tap."""
    graph = speller.graph
    turned = graph.producer(name)
    flat = graph.producer(str(turned.inputs[0])) if turned is not None and turned.op == "view" else None
    if turned is None or flat is None or flat.op != "view" or flat["how"] != "reshape":
        return None
    source = graph.value(str(flat.inputs[0]))
    if source.origin is not Origin.PARAMETER or turned["how"] != "permute" or tuple(turned["dims"]) != (1, 0):
        return None
    taps = source.rank > 2 and all(size == ONE for size in source.shape[2:])
    return f"{spelled(graph, source.name)}.flatten(1)" if taps else None
