"""Groups with one product, by hand: graphs for the tests of the product pattern, each with a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.parts import Group
from egg.expert.sizes import Size, as_size, named

TORCH = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass
class Build:
    """Collects values and nodes; every method returns the name of what it made."""

    dtype: str = "float32"
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def input(self, name: str, *shape: Size | int, stride: tuple[Size | int, ...] | None = None) -> str:
        sizes = tuple(as_size(s) for s in shape)
        strides = contiguous_stride(sizes) if stride is None else tuple(as_size(s) for s in stride)
        self.values[name] = Value(name, sizes, self.dtype, strides, Origin.INPUT, name)
        self.arguments.append(name)
        return name

    def node(
        self, op: str, inputs: tuple[str | None, ...], shape: tuple[Size | int, ...], **attributes: Any
    ) -> str:
        name = f"{attributes.get('fn') or op}_{len(self.nodes)}"
        sizes = tuple(as_size(s) for s in shape)
        self.values[name] = Value(name, sizes, self.dtype, contiguous_stride(sizes))
        self.nodes.append(Node(op, inputs, (name,), attributes))
        return name

    def shape(self, name: str) -> tuple[Size, ...]:
        return self.values[name].shape

    def matmul(self, a: str, b: str, bias: str | None = None) -> str:
        one, two = self.shape(a), self.shape(b)
        lead = one[:-2] if len(one) >= len(two) else two[:-2]
        if len(one) == len(two):
            lead = tuple(p if p.value != 1 else q for p, q in zip(one[:-2], two[:-2], strict=True))
        return self.node("matmul", (a, b) if bias is None else (a, b, bias), (*lead, one[-2], two[-1]))

    def point(self, fn: str, *inputs: str, scalars: tuple[float, ...] = ()) -> str:
        largest = max((self.shape(i) for i in inputs), key=len)
        shape = tuple(
            max((self.shape(i)[at] for i in inputs if -at <= len(self.shape(i))), key=lambda s: s.value)
            for at in range(-len(largest), 0)
        )
        return self.node("pointwise", inputs, shape, fn=fn, scalars=scalars)

    def permute(self, x: str, *dims: int) -> str:
        shape = tuple(self.shape(x)[d] for d in dims)
        return self.node("view", (x,), shape, how="permute", dims=dims)

    def reshape(self, x: str, *shape: Size | int) -> str:
        return self.node("view", (x,), shape, how="reshape")

    def reduce(self, fn: str, x: str, dim: int = -1, keepdim: bool = True, **more: Any) -> str:
        shape = list(self.shape(x))
        shape[dim] = Size(1)
        kept = tuple(shape) if keepdim else tuple(s for at, s in enumerate(shape) if at != dim % len(shape))
        return self.node("reduce", (x,), kept, fn=fn, dims=(dim % len(shape),), keepdim=keepdim, **more)

    def same(self, op: str, x: str, *rest: str | None, **attributes: Any) -> str:
        return self.node(op, (x, *rest), self.shape(x), **attributes)

    def case(self, *results: str, **settings: Any) -> Case:
        symbols: dict[str, str] = {}
        for name in self.arguments:
            for dim, size in enumerate(self.values[name].shape):
                if len(size.factors) == 1 and size.number == 1:
                    symbols.setdefault(size.factors[0].name, f"{name}.shape[{dim}]")
        graph = Graph(self.values, tuple(self.nodes), tuple(self.arguments), results, "tuple", symbols)
        return Case(graph, Group("fused", graph.nodes, "product"), settings)


@dataclass(frozen=True)
class Case:
    graph: Graph
    group: Group
    settings: Mapping[str, Any]


def at_size(size: Size, at: int) -> int:
    return size.values[at] if len(size.values) > 1 else size.values[0]


def tensors(case: Case, at: int, seed: int = 0) -> list[torch.Tensor]:
    """Random arguments with the strides that their values have."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for name in case.graph.arguments:
        value = case.graph.value(str(name))
        shape, stride = ([at_size(s, at) for s in sizes] for sizes in (value.shape, value.stride))
        base = torch.empty_strided(shape, stride, dtype=TORCH[value.dtype])
        made.append(base.copy_(torch.randn(shape, generator=generator)))
    return made


POINTS: Mapping[str, Callable[..., torch.Tensor]] = {
    "relu": torch.relu, "add": torch.add, "mul": torch.mul, "exp": torch.exp, "sigmoid": torch.sigmoid,
    "gelu": torch.nn.functional.gelu, "tanh": torch.tanh,
}  # fmt: skip


def reference(case: Case, arguments: list[torch.Tensor], at: int) -> list[torch.Tensor]:
    """The graph in fp64."""
    known = {str(n): t.double() for n, t in zip(case.graph.arguments, arguments, strict=True)}
    for node in case.graph.nodes:
        shape = [at_size(s, at) for s in case.graph.result(node).shape]
        known[node.output] = _computed(
            node, [None if i is None else known[i] for i in node.inputs], shape, at
        )
    return [known[name] for name in case.graph.results]


def _computed(node: Node, x: list[Any], shape: list[int], at: int) -> torch.Tensor:
    match node.op:
        case "matmul":
            return torch.matmul(x[0], x[1]) + (x[2] if len(x) > 2 else 0)
        case "pointwise":
            return POINTS[node["fn"]](*x)
        case "view":
            return x[0].permute(node["dims"]) if node["how"] == "permute" else x[0].reshape(shape)
        case "cat":
            return torch.cat(x, node["dim"])
        case "triangle":
            return torch.triu(x[0], node["diagonal"]) if node["upper"] else torch.tril(x[0], node["diagonal"])
        case "softmax":
            return torch.log_softmax(x[0], node["dim"]) if node["log"] else torch.softmax(x[0], node["dim"])
        case "norm":
            return _norm(node, x, at)
        case "reduce":
            dims, keep = node["dims"], node["keepdim"]
            if node["fn"] == "norm":
                return torch.linalg.vector_norm(x[0], 2, dims, keep)
            if node["fn"] == "var":
                return torch.var(x[0], dims, correction=node["correction"], keepdim=keep)
            fn = {"max": torch.amax, "min": torch.amin}.get(node["fn"]) or getattr(torch, node["fn"])
            return fn(x[0], dims, keepdim=keep)
    raise NotImplementedError(node.op)


def _norm(node: Node, x: list[Any], at: int) -> torch.Tensor:
    weight, bias = x[1], x[2]
    if node["kind"] == "group":
        return torch.nn.functional.group_norm(
            x[0], at_size(as_size(node["groups"]), at), weight, bias, node["eps"]
        )
    if node["kind"] == "layer":
        return torch.nn.functional.layer_norm(x[0], x[0].shape[-1:], weight, bias, node["eps"])
    if node["kind"] == "rms":
        return torch.nn.functional.rms_norm(x[0], x[0].shape[-1:], weight, node["eps"])
    return torch.nn.functional.batch_norm(x[0], x[3], x[4].abs(), weight, bias, False, 0.1, node["eps"])


# -- the cases -----------------------------------------------------------------------------------------

SMALL = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}
"""Tiles that several programs are needed for at the sizes of a test."""


def _mnk() -> tuple[Size, Size, Size]:
    return (
        named("batch_size", (70, 33, 5)),
        named("out_features", (50, 41, 66)),
        named("in_features", (83, 64, 37)),
    )


def linear(
    tail: Callable[[Build, str, Size, Size], str] | None = None, dtype: str = "float32", **settings: Any
) -> Case:
    b, (m, n, k) = Build(dtype), _mnk()
    x, w, bias = b.input("x", m, k), b.input("w", n, k), b.input("b", n)
    y = b.matmul(x, b.permute(w, 1, 0), bias)
    return b.case(tail(b, y, m, n) if tail else y, **{**SMALL, **settings})


def plain(turn_a: bool = False, turn_b: bool = False, dtype: str = "float32", **settings: Any) -> Case:
    b, (m, n, k) = Build(dtype), _mnk()
    a = b.permute(b.input("a", k, m), 1, 0) if turn_a else b.input("a", m, k)
    c = b.permute(b.input("c", n, k), 1, 0) if turn_b else b.input("c", k, n)
    return b.case(b.matmul(a, c), **{**SMALL, **settings})


def strided(**settings: Any) -> Case:
    b, (m, n, k) = Build(), _mnk()
    a = b.input("a", m, k, stride=(k * 3, 2))
    return b.case(b.matmul(a, b.input("c", k, n, stride=(1, k))), **{**SMALL, **settings})


def batched(dtype: str = "float32", **settings: Any) -> Case:
    b, (m, n, k) = Build(dtype), _mnk()
    z = named("heads", (3, 2, 1))
    return b.case(
        b.point("relu", b.matmul(b.input("a", z, m, k), b.input("c", z, k, n))), **{**SMALL, **settings}
    )


def square(few: bool = False, before: str = "", dtype: str = "float32", **settings: Any) -> Case:
    """A matrix multiplied with itself, which is not the product with its transpose."""
    b = Build(dtype)
    size = as_size(16) if few else named("size", (70, 33, 45))
    x = b.input("x", named("batch", (3, 2, 1)), size, size)
    x = b.point(before, x) if before else x
    return b.case(b.point("relu", b.matmul(x, x)), **{**SMALL, **settings})


def broadcast(**settings: Any) -> Case:
    b, (m, n, k) = Build(), _mnk()
    z, h = named("batch", (2, 3, 2)), named("heads", (3, 2, 2))
    a, c = b.input("a", z, 1, m, k), b.input("c", 1, h, k, n)
    return b.case(b.matmul(a, c), **{**SMALL, **settings})


def tensor_by_matrix(**settings: Any) -> Case:
    b = Build()
    z, i, j = named("batch", (2, 3, 1)), named("height", (5, 7, 3)), named("width", (6, 3, 9))
    k, n = named("channels", (40, 33, 17)), named("out", (50, 36, 70))
    return b.case(b.matmul(b.input("a", z, i, j, k), b.input("c", k, n)), **{**SMALL, **settings})


def permuted_result(**settings: Any) -> Case:
    b, (m, n, k) = Build(), _mnk()
    s = named("steps", (4, 3, 5))
    y = b.matmul(b.input("a", m, s, k), b.input("c", k, n))
    return b.case(b.permute(b.point("relu", y), 0, 2, 1), **{**SMALL, **settings})


def prologue(**settings: Any) -> Case:
    b, (m, n, k) = Build(), _mnk()
    a = b.point("exp", b.input("a", m, k))
    c = b.point("mul", b.input("c", k, n), b.input("s", k, 1))
    return b.case(b.matmul(a, c), **{**SMALL, **settings})


def joined_operands(**settings: Any) -> Case:
    b, (m, n, k) = Build(), _mnk()
    whole = b.node("cat", (b.input("x", m, k), b.input("h", m, k)), (m, k * 2), dim=1)
    return b.case(
        b.point("tanh", b.matmul(whole, b.permute(b.input("w", n, k * 2), 1, 0))), **{**SMALL, **settings}
    )


def triangles(
    left: bool | None, right: bool | None, result: bool | None, diagonal: int = 0, **settings: Any
) -> Case:
    b = Build()
    n = named("size", (100, 65, 31))
    a, c = b.input("a", n, n), b.input("c", n, n)
    a = a if left is None else b.same("triangle", a, upper=left, diagonal=diagonal)
    c = c if right is None else b.same("triangle", c, upper=right, diagonal=diagonal)
    y = b.matmul(a, c)
    y = y if result is None else b.same("triangle", y, upper=result, diagonal=diagonal)
    return b.case(y, **{**SMALL, **settings})


def vector(
    rows: int | None, columns: int | None, turned: bool = False, dtype: str = "float32", **settings: Any
) -> Case:
    b, (m, n, _) = Build(dtype), _mnk()
    k = named("length", (700, 333, 90))
    m, n = as_size(rows) if rows else m, as_size(columns) if columns else n
    a = b.input("a", m, k)
    c = b.permute(b.input("c", n, k), 1, 0) if turned else b.input("c", k, n)
    return b.case(b.point("add", b.matmul(a, c), b.input("b", n)), **settings)


def dots(dtype: str = "float32", **settings: Any) -> Case:
    """One row by one column for each of a batch."""
    b = Build(dtype)
    z, k = named("batch", (5, 1, 3)), named("length", (700, 333, 1))
    y = b.matmul(b.input("a", z, 1, k), b.input("c", z, k, 1))
    return b.case(b.point("relu", y), **settings)


def long_sum(tail: Callable[[Build, str, Size, Size], str] | None = None, **settings: Any) -> Case:
    b, (m, n, _) = Build(), _mnk()
    k = named("length", (900, 333, 90))
    y = b.matmul(b.input("a", m, k), b.input("c", k, n))
    return b.case(tail(b, y, m, n) if tail else b.point("relu", y), **{**SMALL, "SPLIT_K": 4, **settings})


def residual(b: Build, y: str, m: Size, n: Size) -> str:
    return b.point("add", b.point("gelu", y), b.input("r", m, n))


def group_norm(b: Build, y: str, m: Size, n: Size) -> str:
    weights = (b.input("gw", n), b.input("gb", n))
    return b.same("norm", b.point("gelu", y), *weights, kind="group", groups=4, dims=(1,), eps=1e-5)


def grouped(columns: tuple[int, ...] = (64, 32, 128), **settings: Any) -> Case:
    b = Build()
    m, n, k = (
        named("batch_size", (70, 33, 5)),
        named("out_features", columns),
        named("in_features", (83, 64, 37)),
    )
    y = b.matmul(b.input("x", m, k), b.permute(b.input("w", n, k), 1, 0), b.input("b", n))
    return b.case(group_norm(b, y, m, n), **{**SMALL, **settings})


def softmax(b: Build, y: str, m: Size, n: Size) -> str:
    return b.same("softmax", y, dim=1, log=False)


def log_softmax(b: Build, y: str, m: Size, n: Size) -> str:
    return b.same("softmax", y, dim=1, log=True)


def layer_norm(b: Build, y: str, m: Size, n: Size) -> str:
    return b.same("norm", y, b.input("gw", n), b.input("gb", n), kind="layer", dims=(1,), eps=1e-5)


def rms_norm(b: Build, y: str, m: Size, n: Size) -> str:
    return b.same("norm", y, b.input("gw", n), None, kind="rms", dims=(1,), eps=1e-5)


def batch_norm(b: Build, y: str, m: Size, n: Size) -> str:
    more = [b.input(name, n) for name in ("gw", "gb", "mean")]
    variance = b.point("exp", b.input("logvar", n))
    return b.same("norm", y, *more, variance, kind="batch", training=False, dims=(0,), eps=1e-5)


def reduced(fn: str, keepdim: bool = True) -> Callable[[Build, str, Size, Size], str]:
    def tail(b: Build, y: str, m: Size, n: Size) -> str:
        more = {"order": 2} if fn == "norm" else {"correction": 1} if fn == "var" else {}
        return b.point("gelu", b.reduce(fn, b.point("relu", y) if fn == "norm" else y, 1, keepdim, **more))

    return tail


CASES: Mapping[str, Callable[[], Case]] = {
    "square": plain,
    "packed": lambda: plain(packing=True, descriptors=False),
    "descriptors": lambda: plain(packing=True, descriptors=True),
    "left turned": lambda: plain(True, packing=False),
    "right turned": lambda: plain(False, True, packing=False, grade="tf32x3"),
    "both turned": lambda: plain(True, True, packing=False),
    "both turned, tf32x3": lambda: plain(True, True, packing=False, grade="tf32x3"),
    "both turned, packed": lambda: plain(True, True, packing=True),
    "strided": lambda: strided(packing=False),
    "strided, packed": lambda: strided(packing=True),
    "ieee": lambda: plain(grade="ieee"),
    "tf32": lambda: plain(grade="tf32", packing=False),
    "tf32, packed": lambda: plain(grade="tf32", packing=True),
    "fp16": lambda: plain(dtype="float16"),
    "bf16": lambda: plain(True, True, dtype="bfloat16"),
    "by itself": lambda: square(packing=False),
    "by itself, tf32x3": lambda: square(packing=False, grade="tf32x3"),
    "by itself, packed": lambda: square(packing=True),
    "by itself, computed": lambda: square(before="tanh", packing=False),
    "by itself, bf16": lambda: square(dtype="bfloat16"),
    "by itself, bf16, computed": lambda: square(before="tanh", dtype="bfloat16"),
    "by itself, turned": lambda: square(few=True),
    "few rows": lambda: linear(BLOCK_M=16, BLOCK_N=64, packing=False),
    "linear, bias, gelu, residual": lambda: linear(residual),
    "linear, residual, bf16": lambda: linear(residual, dtype="bfloat16"),
    "linear, residual, packed": lambda: linear(residual, packing=True),
    "batched": lambda: batched(packing=False),
    "batched, packed": lambda: batched(packing=True),
    "batched, packed, pointers": lambda: batched(packing=True, descriptors=False),
    "batched fp16": lambda: batched("float16"),
    "batched in parts": lambda: batched(packing=True, SPLIT_K=2),
    "broadcast": lambda: broadcast(packing=False),
    "broadcast, packed": lambda: broadcast(packing=True),
    "tensor by matrix": lambda: tensor_by_matrix(packing=False),
    "tensor by matrix, packed": lambda: tensor_by_matrix(packing=True),
    "permuted result": lambda: permuted_result(packing=False),
    "one step": lambda: plain(packing=True, NUM_STAGES=1, BLOCK_K=128),
    "walking": lambda: plain(packing=True, walk=True),
    "walking, pointers": lambda: linear(residual, packing=True, walk=True, descriptors=False),
    "prologue": lambda: prologue(packing=False),
    "prologue, packed": lambda: prologue(packing=True),
    "joined operands": lambda: joined_operands(packing=False),
    "joined operands, packed": lambda: joined_operands(packing=True),
    "upper by upper": lambda: triangles(True, True, True, packing=False),
    "lower by lower, packed": lambda: triangles(False, False, False, packing=True),
    "lower by full": lambda: triangles(False, None, None, 3, packing=False),
    "full by upper": lambda: triangles(None, True, None, -5, packing=False),
    "upper of full": lambda: triangles(None, None, True, 2, packing=False),
    "lower of full": lambda: triangles(None, None, False, -2, packing=True),
    "matrix by vector": lambda: vector(None, 1),
    "matrix by vector, in parts": lambda: vector(None, 1, SPLIT_K=4),
    "vector by matrix": lambda: vector(1, None),
    "vector by matrix, turned": lambda: vector(1, None, True),
    "few columns": lambda: vector(None, 3),
    "few columns, bf16": lambda: vector(None, 3, dtype="bfloat16"),
    "few rows, streamed": lambda: vector(5, None, True, SPLIT_K=2),
    "vector by vector": lambda: vector(1, 1, SPLIT_K=4),
    "row by column of a batch": dots,
    "row by column of a batch, blocks": lambda: dots("bfloat16", ROWS=4),
    "row by column of a batch, in parts": lambda: dots(ROWS=4, SPLIT_K=2),
    "long sum": long_sum,
    "long sum, packed": lambda: long_sum(packing=True),
    "long sum, softmax": lambda: long_sum(softmax, grade="tf32x3"),
    "group norm": lambda: grouped(),
    "group norm, packed": lambda: grouped(packing=True),
    "group norm in parts": lambda: grouped(packing=True, SPLIT_K=2),
    "uneven groups": lambda: grouped((64, 20, 100)),
    "uneven groups, packed": lambda: grouped((48, 28, 160), packing=True),
    "uneven groups in parts": lambda: grouped((48, 28, 100), packing=True, SPLIT_K=2),
    "softmax": lambda: linear(softmax),
    "log softmax, packed": lambda: linear(log_softmax, packing=True),
    "layer norm": lambda: linear(layer_norm),
    "rms norm": lambda: linear(rms_norm),
    "batch norm": lambda: linear(batch_norm),
    "variance": lambda: linear(reduced("var")),
    **{f"{fn} of rows": (lambda fn=fn: linear(reduced(fn))) for fn in ("sum", "max", "logsumexp", "norm")},
    **{
        f"{fn} of long rows": (lambda fn=fn: linear(reduced(fn, fn == "max"), spread=True))
        for fn in ("sum", "mean", "max", "min", "logsumexp", "norm")
    },
}
