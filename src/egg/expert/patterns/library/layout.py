"""Where the results of PyTorch's calls lie in memory: asked for wherever it is not certain.

Kernels take the strides of a value for granted. What our own kernels make has them because ``forward``
allocates it so. What PyTorch makes lies as the library likes on this machine: attention that looks like its
query here is contiguous there, a recurrent layer may hand out a transposed view. So a call whose result
might lie otherwise is followed by a request, which costs nothing where the layout is right already:
``.contiguous()``, or the same between two permutations.
"""

from __future__ import annotations

import ast
from math import prod

import torch

from egg.expert.emit.layout import brought
from egg.expert.emit.spelling import Speller
from egg.expert.graph import Graph, Node, Value
from egg.expert.parts import Unfit
from egg.expert.sizes import ONE, Size

DENSE = frozenset({"reduce", "constant"})
"""Their results are contiguous whatever the operands are."""
FOLLOWING = frozenset(
    {"cat", "pad", "triangle", "random", "softmax", "scan", "selection", "norm", "pool", "conv", "gather",
     "resample"}
)  # fmt: skip
"""Contiguous results of contiguous operands."""


def laid_out(graph: Graph, node: Node, line: str) -> str:
    """``line``, which computes ``node``, and behind it what makes its results lie as the graph says."""
    if not line:
        return line
    for name in node.outputs:
        value = graph.value(name)
        if not _matters(graph, name) or _certain(graph, node, value):
            continue
        request = brought(value)
        before, _, text = line.partition(" = ")
        if request is None:
            line += f"\n{name} = {_copied(graph, value)}"
        elif before == name and _is_call(text):
            line += request
        else:
            line += f"\n{name} = {name}{request}"
    return line


def _matters(graph: Graph, name: str) -> bool:
    """Whether it has a reader that is not always PyTorch itself."""
    return any(reader.op not in ("library", "random") for reader in graph.consumers[name])


def _certain(graph: Graph, node: Node, value: Value) -> bool:
    operands = [operand for operand in graph.operands(node) if operand is not None]
    if node.op == "view":
        return _follows(operands[0], value, node)
    if node.op == "constant" and "fill" in node.attributes:
        return _inside(value)  # wherever one looks, it is the same number
    if node.op == "conv" and value.rank > operands[0].rank:
        return True  # phases of a doubled image: the call itself asks for a layout
    if node.op == "matmul" and value.padded:
        return True  # the call makes longer rows, and a view of its columns
    if not value.contiguous:
        return False
    alike = all(operand.contiguous for operand in operands)
    match node.op:
        case op if op in DENSE:
            return True
        case "matmul":
            ranks = operands[0].rank, operands[1].rank
            return ranks[0] >= ranks[1] or ranks == (2, 3)  # the latter as a batched product
        case "pointwise" | "where":
            return alike and any(operand.shape == value.shape for operand in operands)
        case op:
            return op in FOLLOWING and alike


def _follows(source: Value, value: Value, node: Node) -> bool:
    """Whether PyTorch's view of the source has the strides of the value, at every captured size."""
    if node["how"] == "windows":
        return False
    if node["how"] == "flip":
        return source.contiguous and value.contiguous
    if node["how"] == "reshape" and source.contiguous:
        return value.contiguous
    return all(_follows_at(source, value, node, at) for at in range(_captures(source, value)))


def _follows_at(source: Value, value: Value, node: Node, at: int) -> bool:
    shape, wanted = _numbers(value.shape, at), _numbers(value.stride, at)
    x = torch.empty_strided(_numbers(source.shape, at), _numbers(source.stride, at), device="meta")
    match node["how"]:
        case "reshape":
            found = x.reshape(shape).stride()
        case "permute":
            found = x.permute(tuple(node["dims"])).stride()
        case "expand":
            found = x.expand(shape).stride()
        case _:
            steps = [int(step) for step in node["steps"]]
            found = tuple(stride * step for stride, step in zip(x.stride(), steps, strict=True))
    return all(size < 2 or a == b for size, a, b in zip(shape, found, wanted, strict=True))


def _inside(value: Value) -> bool:
    """Whether the strides lead to places that a contiguous tensor has."""
    for at in range(_captures(value)):
        shape, stride = _numbers(value.shape, at), _numbers(value.stride, at)
        if sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) >= max(prod(shape), 1):
            return False
    return True


def _captures(*values: Value) -> int:
    return max((len(size.values) for value in values for size in (*value.shape, *value.stride)), default=1)


def _numbers(sizes: tuple[Size, ...], at: int) -> tuple[int, ...]:
    return tuple(size.values[at % len(size.values)] for size in sizes)


def _copied(graph: Graph, value: Value) -> str:
    if any(step.number == 0 and size != ONE for step, size in zip(value.stride, value.shape, strict=True)):
        raise Unfit(f"elements of {value.name} are to share memory, and PyTorch does not say that they do")
    speller = Speller(graph)
    kind = f"dtype=torch.{value.dtype}, device={value.name}.device"
    room = f"torch.empty_strided({speller.shape(value.shape)}, {speller.shape(value.stride)}, {kind})"
    return f"{room}.copy_({value.name})"


def _is_call(text: str) -> bool:
    """Whether a method of the result may be called by writing it behind."""
    return isinstance(ast.parse(text, mode="eval").body, ast.Call | ast.Subscript | ast.Name | ast.Attribute)
