"""Small graphs written by hand, and what PyTorch makes of them: the two sides that patterns are tested
between.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.sizes import ONE, Size, as_size, named
from tests.expert.evaluate import decaying_total

Dimension = int | Size


class Program:
    """Builds a graph node by node; every method returns the name of the value it makes."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self.arguments: list[str] = []
        self.symbols: dict[str, str] = {}
        self._count = 0

    def size(self, name: str, *values: int) -> Size:
        return named(name, values)

    def input(
        self,
        name: str,
        shape: Sequence[Dimension],
        dtype: str = "float32",
        order: Sequence[int] | None = None,
    ) -> str:
        """An argument. ``order`` lists its dimensions as they lie in memory; contiguous without it."""
        sizes = tuple(as_size(size) for size in shape)
        strides = contiguous_stride(sizes)
        if order is not None:
            inner = contiguous_stride(tuple(sizes[dim] for dim in order))
            strides = tuple(inner[list(order).index(dim)] for dim in range(len(sizes)))
        self.values[name] = Value(name, sizes, dtype, strides, Origin.INPUT, name)
        self.arguments.append(name)
        self._find_sizes(name, sizes)
        return name

    def parameter(self, path: str, shape: Sequence[Dimension], dtype: str = "float32") -> str:
        name, sizes = "p_" + path.replace(".", "_"), tuple(as_size(size) for size in shape)
        self.values[name] = Value(name, sizes, dtype, contiguous_stride(sizes), Origin.PARAMETER, path)
        self._find_sizes(f"self.{path}", sizes)
        return name

    def _find_sizes(self, text: str, sizes: Sequence[Size]) -> None:
        for dim, size in enumerate(sizes):
            if len(size.factors) == 1 and size.number == 1:
                self.symbols.setdefault(size.factors[0].name, f"{text}.shape[{dim}]")

    def node(
        self,
        op: str,
        inputs: Sequence[str | None],
        shape: Sequence[Dimension],
        dtype: str = "",
        **attributes: Any,
    ) -> str:
        label = attributes.pop("label", "")
        self._count += 1
        name = f"t{self._count}"
        first = next((self.values[i] for i in inputs if i is not None), None)
        sizes = tuple(as_size(size) for size in shape)
        dtype = dtype or (first.dtype if first is not None else "float32")
        self.values[name] = Value(name, sizes, dtype, contiguous_stride(sizes))
        self.nodes.append(Node(op, tuple(inputs), (name,), attributes, label))
        return name

    def shape(self, name: str) -> tuple[Size, ...]:
        return self.values[name].shape

    def pointwise(self, fn: str, *inputs: str, scalars: Sequence[Any] = (), dtype: str = "") -> str:
        return self.node("pointwise", inputs, self.broadcast(*inputs), dtype, fn=fn, scalars=tuple(scalars))

    def broadcast(self, *inputs: str) -> tuple[Size, ...]:
        shapes = [self.shape(i) for i in inputs]
        rank = max(len(shape) for shape in shapes)
        padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes]
        return tuple(next((s for s in sizes if s != ONE), ONE) for sizes in zip(*padded, strict=True))

    def reduce(self, fn: str, x: str, dims: Sequence[int], keepdim: bool = False, **attributes: Any) -> str:
        shape = self.shape(x)
        kept = [ONE if d in dims else s for d, s in enumerate(shape)] if keepdim else None
        kept = kept if kept is not None else [s for d, s in enumerate(shape) if d not in dims]
        dtype = {"argmax": "int64", "argmin": "int64", "any": "bool", "all": "bool"}.get(fn, "")
        if fn in ("sum", "prod") and not self.values[x].floating:
            dtype = "int64"
        return self.node("reduce", (x,), kept, dtype, fn=fn, dims=tuple(dims), keepdim=keepdim, **attributes)

    def softmax(self, x: str, dim: int, log: bool = False) -> str:
        return self.node("softmax", (x,), self.shape(x), dim=dim, log=log)

    def reshape(self, x: str, shape: Sequence[Dimension]) -> str:
        return self.node("view", (x,), shape, how="reshape")

    def permute(self, x: str, dims: Sequence[int]) -> str:
        shape = self.shape(x)
        return self.node("view", (x,), [shape[d] for d in dims], how="permute", dims=tuple(dims))

    def graph(self, *results: str) -> Graph:
        return Graph(
            self.values, tuple(self.nodes), tuple(self.arguments), results, "tuple", dict(self.symbols)
        )


def tensors(graph: Graph, at: int = 0, seed: int = 0) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Arguments and parameters at one of the captured sizes."""
    generator = torch.Generator().manual_seed(seed)

    def make(value: Value) -> torch.Tensor:
        shape = [size.values[at % len(size.values)] for size in value.shape]
        strides = [size.values[at % len(size.values)] for size in value.stride]
        dtype = getattr(torch, value.dtype)
        if dtype.is_floating_point:
            data = torch.randn(shape, generator=generator)
        elif dtype == torch.bool:
            data = torch.rand(shape, generator=generator) > 0.5
        else:
            data = torch.randint(0, 5, shape, generator=generator)
        extent = 1 + sum((s - 1) * t for s, t in zip(shape, strides, strict=True))
        storage = torch.zeros(max(extent, 1), dtype=dtype)
        view = storage.as_strided(shape, strides)
        return view.copy_(data)

    inputs = [make(graph.value(name)) for name in graph.arguments if name is not None]
    held = {v.path: make(v) for v in graph.values.values() if v.origin is Origin.PARAMETER}
    return inputs, held


def evaluate(
    graph: Graph, inputs: Sequence[torch.Tensor], parameters: dict[str, torch.Tensor], at: int = 0
) -> list[torch.Tensor]:
    """What PyTorch computes, floating values in double precision."""

    def exact(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.double() if tensor.is_floating_point() else tensor

    known: dict[str, torch.Tensor] = {}
    for name, tensor in zip((n for n in graph.arguments if n is not None), inputs, strict=True):
        known[name] = exact(tensor)
    for value in graph.values.values():
        if value.origin is Origin.PARAMETER:
            known[value.name] = exact(parameters[value.path])
    for node in graph.nodes:
        if node.op == "update":
            known["new_" + str(node.inputs[0])] = known[str(node.inputs[1])]
            continue
        if len(node.outputs) == 3:
            _trained(node, known)
            continue
        result = graph.result(node)
        shape = [size.values[at % len(size.values)] for size in result.shape]
        operands = [None if name is None else known[name] for name in node.inputs]
        out = _EVALUATORS[node.op](node, operands, shape, result.dtype)
        assert list(out.shape) == shape, (node, out.shape, shape)
        known[node.output] = out
    return [known[name] for name in graph.results]


def _trained(node: Node, known: dict[str, torch.Tensor]) -> None:
    """Batch norm in training: the running statistics are results, too."""
    x, weight, bias, mean, variance = (None if n is None else known[n] for n in node.inputs)
    assert mean is not None
    assert variance is not None
    mean, variance = mean.clone(), variance.clone()
    y = F.batch_norm(x, mean, variance, weight, bias, True, node["momentum"], node["eps"])
    known.update(zip(node.outputs, (y, mean, variance), strict=True))


def apply(fn: str, operands: Sequence[Any], scalars: Sequence[Any], dtype: str) -> torch.Tensor:
    """A pointwise function by PyTorch's own."""
    left = list(operands)
    given = [s if s is not None else (left.pop(0) if left else None) for s in scalars] + left
    if fn == "cast":
        kind = getattr(torch, dtype)
        rounded = given[0].to(kind)
        return rounded.double() if kind.is_floating_point else rounded
    if fn == "gelu_tanh":
        return F.gelu(given[0], approximate="tanh")
    special: dict[str, Any] = {
        "relu": torch.relu, "gelu": F.gelu, "silu": F.silu, "mish": F.mish, "hardswish": F.hardswish,
        "elu": F.elu, "hardsigmoid": F.hardsigmoid, "hardtanh": F.hardtanh,
        "leaky_relu": F.leaky_relu, "celu": F.celu,
        "selu": F.selu, "softplus": F.softplus, "softsign": F.softsign, "logsigmoid": F.logsigmoid,
        "div_floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
        "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "threshold": F.threshold, "hardshrink": F.hardshrink, "softshrink": F.softshrink, "prelu": F.prelu,
        "tanhshrink": F.tanhshrink, "identity": lambda a: a, "relu6": F.relu6,
        "addcmul": lambda a, b, c, v=1: a + v * b * c, "addcdiv": lambda a, b, c, v=1: a + v * b / c,
    }  # fmt: skip
    if fn in ("add", "sub") and len(given) == 3:
        return getattr(torch, fn)(given[0], given[1], alpha=given[2])
    if fn in ("elu",) and len(given) > 2:
        x, alpha, scale, inside = given
        return torch.where(x > 0, x * scale, alpha * scale * torch.expm1(x * inside))

    def tensor(value: Any) -> Any:
        return torch.tensor(float(value), dtype=torch.float64) if isinstance(value, (int, float)) else value

    if fn in (
        "maximum",
        "minimum",
        "logical_and",
        "logical_or",
        "eq",
        "atan2",
        "hypot",
        "xlogy",
        "fmax",
        "fmin",
    ):
        given = [tensor(g) for g in given]
    return special.get(fn, getattr(torch, fn, None))(*given)


def _reduce(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    (x,) = operands
    dims, keep = tuple(node["dims"]), node["keepdim"]
    match node["fn"]:
        case "sum" | "mean":
            return getattr(torch, node["fn"])(x, dims, keepdim=keep)
        case "max" | "min":
            return getattr(torch, "a" + node["fn"])(x, dims, keepdim=keep)
        case "var":
            return torch.var(x, dims, correction=node.get("correction", 1), keepdim=keep)
        case "logsumexp":
            return torch.logsumexp(x, dims, keepdim=keep)
        case "norm":
            return torch.linalg.vector_norm(x, node.get("order", 2.0), dims, keepdim=keep)
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = x.permute(*kept, *dims).reshape([x.shape[d] for d in kept] + [-1])
    return getattr(torch, node["fn"])(flat, -1).reshape(list(shape))


def _norm(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    x, weight, bias, mean, variance = (*operands, None, None, None, None)[:5]
    match node["kind"]:
        case "layer":
            return F.layer_norm(x, [x.shape[d] for d in node["dims"]], weight, bias, node["eps"])
        case "rms":
            return F.rms_norm(x, [x.shape[d] for d in node["dims"]], weight, node["eps"])
        case "group":
            groups = node["groups"].value if isinstance(node["groups"], Size) else node["groups"]
            return F.group_norm(x, groups, weight, bias, node["eps"])
        case "instance":
            return F.instance_norm(x, None, None, weight, bias, True, 0.1, node["eps"])
    return F.batch_norm(
        x, mean, variance, weight, bias, node["training"], node.get("momentum", 0.1), node["eps"]
    )


def _view(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    (x,) = operands
    match node["how"]:
        case "reshape":
            return x.reshape(shape)
        case "permute":
            return x.permute(node["dims"])
        case "expand":
            return x.expand(shape)
        case "flip":
            return x.flip(node["dims"])
    places = zip(node["starts"], node["steps"], shape, strict=True)
    return x[tuple(slice(s, s + (n - 1) * t + 1, t) for s, t, n in places)]


def _pool(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    (x,) = operands
    rank = len(node["kernel"])
    if node.get("adaptive"):
        return getattr(F, f"adaptive_{node['fn']}_pool{rank}d")(x, node["kernel"])
    stride, padding = node.get("stride") or node["kernel"], node.get("padding", (0,) * rank)
    if node["fn"] == "max":
        more = {"dilation": node.get("dilation", 1), "ceil_mode": node.get("ceil", False)}
        return getattr(F, f"max_pool{rank}d")(x, node["kernel"], stride, padding, **more)
    more = {"ceil_mode": node.get("ceil", False), "count_include_pad": node.get("count_include_pad", True)}
    if node.get("divisor"):
        more["divisor_override"] = node["divisor"]
    return getattr(F, f"avg_pool{rank}d")(x, node["kernel"], stride, padding, **more)


def _gather(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    table, index = operands
    match node["how"]:
        case "embedding":
            return table[index]
        case "index_select":
            return table.index_select(node["dim"], index)
    return table.gather(node["dim"], index)


def _scan(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    if node["fn"] == "decayed":
        return decaying_total(*operands, dim=node["dim"])
    (x,) = operands
    dim, reverse = node["dim"], node.get("reverse", False)
    x = x.flip(dim) if reverse else x
    if node.get("exclusive"):
        neutral = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[node["fn"]]
        first = torch.full_like(x.narrow(dim, 0, 1), neutral)
        x = torch.cat([first, x.narrow(dim, 0, x.shape[dim] - 1)], dim)
    function = {"sum": torch.cumsum, "prod": torch.cumprod, "logcumsumexp": torch.logcumsumexp}.get(
        node["fn"]
    )
    if function is None:
        function = {"max": lambda a, d: torch.cummax(a, d)[0], "min": lambda a, d: torch.cummin(a, d)[0]}[
            node["fn"]
        ]
    out = function(x, dim)
    return out.flip(dim) if reverse else out


def _pad(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    (x,) = operands
    amounts: list[int] = []
    for before, size, whole in reversed(list(zip(node["before"], x.shape, shape, strict=True))):
        amounts += [before, whole - size - before]
    return F.pad(x, amounts, value=node["value"])


def _constant(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    kind = getattr(torch, dtype)
    kind = torch.float64 if kind.is_floating_point else kind
    if "range" in node.attributes:
        start, step = node["range"]
        return (torch.arange(shape[0]) * step + start).to(kind)
    return torch.full(list(shape), node["fill"], dtype=kind)


def _matmul(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    a, b, *bias = operands
    return a @ b + bias[0] if bias else a @ b


def _conv(node: Node, operands: Sequence[Any], shape: Sequence[int], dtype: str) -> torch.Tensor:
    attributes = (node["stride"], node["padding"], node["dilation"], node["groups"])
    return F.conv2d(*operands, *attributes)


_EVALUATORS: dict[str, Any] = {
    "matmul": _matmul,
    "conv": _conv,
    "pointwise": lambda n, o, s, d: apply(n["fn"], o, n.get("scalars", ()), d),
    "where": lambda n, o, s, d: torch.where(*o),
    "view": _view,
    "cat": lambda n, o, s, d: torch.cat(o, n["dim"]),
    "pad": _pad,
    "reduce": _reduce,
    "softmax": lambda n, o, s, d: (torch.log_softmax if n["log"] else torch.softmax)(o[0], n["dim"]),
    "norm": _norm,
    "pool": _pool,
    "gather": _gather,
    "scan": _scan,
    "constant": _constant,
    "triangle": lambda n, o, s, d: (torch.triu if n["upper"] else torch.tril)(o[0], n["diagonal"]),
}


def close(got: torch.Tensor, want: torch.Tensor, dtype: str, digits: float = 3e-6) -> None:
    """Equal up to rounding: relative to the largest value, as a sum's error is."""
    assert got.shape == want.shape, (got.shape, want.shape)
    assert str(got.dtype) == f"torch.{dtype}", (got.dtype, dtype)
    if not got.is_floating_point():
        assert torch.equal(got.to(want.dtype), want), (got, want)
        return
    limit = {"float16": 2e-3, "bfloat16": 1.6e-2}.get(dtype, digits)
    got, want = got.double(), want.double()
    finite = torch.isfinite(want)
    assert torch.equal(got[~finite].nan_to_num(7.0), want[~finite].nan_to_num(7.0)), (got, want)
    scale = want[finite].abs().max().clamp(min=1e-3) if finite.any() else torch.tensor(1.0)
    apart = (got - want)[finite].abs().max() / scale if finite.any() else torch.tensor(0.0)
    assert apart <= limit, f"{float(apart):.2e} over {limit}"
