"""A graph run node by node in plain PyTorch on real tensors: what the nodes mean, said once more.

Sizes are looked up as the generated ``forward`` would look them up (``Graph.symbols``), so a graph can be run
at sizes it was never captured at, which is what its named sizes promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from egg.expert.graph import Graph, Node, Operand, Origin
from egg.expert.sizes import Size


@dataclass(frozen=True)
class Evaluated:
    """What the graph returned, and what it wrote into buffers."""

    results: list[torch.Tensor]
    updates: dict[str, torch.Tensor]
    """By path."""
    values: dict[str, torch.Tensor]


def evaluate(graph: Graph, module: nn.Module, arguments: Sequence[Any]) -> Evaluated:
    """Run ``graph`` with the tensors of ``module`` and ``arguments``; neither is changed."""
    with torch.no_grad():
        return _Run(graph, module, arguments).run()


def named_sizes(graph: Graph, module: nn.Module, arguments: Sequence[Any]) -> dict[str, Any]:
    """Every named size, as ``forward`` finds it."""
    known: dict[str, Any] = {"self": module, "torch": torch}
    for name, value in zip(graph.arguments, arguments, strict=False):
        if name is not None:
            known[graph.value(name).path] = known[name] = value
    found: dict[str, Any] = {}
    for name, text in graph.symbols.items():
        found[name] = known[name] = eval(text, {}, known)
    return found


class _Run:
    def __init__(self, graph: Graph, module: nn.Module, arguments: Sequence[Any]) -> None:
        self._graph = graph
        self._sizes = named_sizes(graph, module, arguments)
        self._values: dict[str, torch.Tensor] = {}
        self._updates: dict[str, torch.Tensor] = {}
        for name, value in zip(graph.arguments, arguments, strict=False):
            if name is not None:
                self._values[name] = value.clone()
        for name, value in graph.values.items():
            if value.origin in (Origin.PARAMETER, Origin.CONSTANT):
                self._values[name] = fetched(module, value.path).detach().clone()

    def run(self) -> Evaluated:
        for node in self._graph:
            made = RULES[node.op](self, node)
            made = made if isinstance(made, list | tuple) else [made]
            for name, tensor in zip(node.outputs, made, strict=True):
                declared = self._graph.value(name)
                assert tuple(tensor.shape) == self.sizes(declared.shape), (
                    node,
                    tensor.shape,
                    self.sizes(declared.shape),
                )
                self._values[name] = tensor.to(self.dtype(name))
        return Evaluated([self._values[name] for name in self._graph.results], self._updates, self._values)

    def dtype(self, name: str) -> torch.dtype:
        """fp32 stands for whatever the leaves are computed in, so that a run may be made in fp64."""
        declared: torch.dtype = getattr(torch, self._graph.value(name).dtype)
        wide = torch.get_default_dtype() == torch.float64
        return (
            {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(declared, declared)
            if wide
            else declared
        )

    def number(self, size: Any) -> Any:
        if isinstance(size, Size):
            return size.number * prod(self._sizes[s.name] for s in size.factors)
        return size

    def sizes(self, sizes: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self.number(size) for size in sizes)

    def shape(self, node: Node) -> tuple[int, ...]:
        return self.sizes(self._graph.result(node).shape)

    def operands(self, node: Node) -> list[Any]:
        return [None if name is None else self._values[name] for name in node.inputs]

    def update(self, node: Node) -> list[torch.Tensor]:
        leaf, new = map(str, node.inputs)
        self._updates[self._graph.value(leaf).path] = self._values[new]
        return []


def fetched(module: nn.Module, path: str) -> torch.Tensor:
    """A parameter, buffer or other attribute by its path; ``layers.0.weight`` and ``tables[1]`` alike."""
    found: Any = module
    for part in path.split("."):
        name, *places = part.replace("]", "").split("[")
        found = getattr(found, name)
        for place in places:
            found = found[eval(place)]
    return found


# -- pointwise -------------------------------------------------------------------------------------------


def _logical(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: fn(torch.as_tensor(a), torch.as_tensor(b))


def _clamp(x: Any, low: Any = None, high: Any = None) -> Any:
    if low is not None:
        x = torch.where(torch.as_tensor(x < low), low, x)
    return x if high is None else torch.where(torch.as_tensor(x > high), high, x)


def _extreme(fn: Callable[..., Any]) -> Callable[..., Any]:
    def rule(a: Any, b: Any) -> Any:
        sample = next(v for v in (a, b) if isinstance(v, torch.Tensor))
        return fn(*(v if isinstance(v, torch.Tensor) else torch.tensor(v).to(sample.dtype) for v in (a, b)))

    return rule


def _elu(x: Any, alpha: float = 1, scale: float = 1, inside: float = 1) -> Any:
    return torch.where(x > 0, x * scale, alpha * scale * torch.expm1(x * inside))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floor_divide": lambda a, b: torch.floor_divide(torch.as_tensor(a), b),
    "div_trunc": lambda a, b: torch.div(torch.as_tensor(a), b, rounding_mode="trunc"),
    "fmod": lambda a, b: torch.fmod(torch.as_tensor(a), b),
    "remainder": lambda a, b: torch.remainder(torch.as_tensor(a), b),
    "pow": lambda a, b: torch.pow(a, b),
    "maximum": _extreme(torch.maximum),
    "minimum": _extreme(torch.minimum),
    "clamp": _clamp,
    "clamp_min": lambda x, low: _clamp(x, low),
    "clamp_max": lambda x, high: _clamp(x, None, high),
    "hardtanh": lambda x, low=-1.0, high=1.0: F.hardtanh(x, low, high),
    "leaky_relu": F.leaky_relu,
    "elu": _elu,
    "celu": F.celu,
    "softplus": F.softplus,
    "threshold": F.threshold,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "prelu": lambda x, w: torch.where(x > 0, x, x * w),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "mish": F.mish,
    "selu": F.selu,
    "relu": torch.relu,
    "relu6": F.relu6,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "log_sigmoid": F.logsigmoid,
    "cast": lambda x: x,
    "lerp": lambda a, b, w: torch.lerp(a, b, w),
    "logical_and": _logical(torch.logical_and),
    "logical_or": _logical(torch.logical_or),
    "logical_xor": _logical(torch.logical_xor),
    **{name: (lambda op: lambda a, b: op(torch.as_tensor(a), torch.as_tensor(b)))(getattr(torch, name))
       for name in ("gt", "ge", "lt", "le", "eq", "ne")},
}  # fmt: skip


def _pointwise(run: _Run, node: Node) -> torch.Tensor:
    return _applied(run, node["fn"], run.operands(node), node.get("scalars"))


def _applied(run: _Run, fn: str, tensors: Sequence[torch.Tensor], scalars: Any) -> torch.Tensor:
    waiting = list(tensors)
    operands = [
        run.number(s) if s is not None else waiting.pop(0) if waiting else None
        for s in scalars or (None,) * len(tensors)
    ]
    assert not waiting, fn
    function = FUNCTIONS.get(fn) or getattr(torch, fn)
    return function(*operands)


# -- the other kinds -------------------------------------------------------------------------------------


def _view(run: _Run, node: Node) -> torch.Tensor:
    (x,) = run.operands(node)
    shape = run.shape(node)
    match node["how"]:
        case "reshape":
            return x.reshape(shape)
        case "permute":
            return x.permute(node["dims"])
        case "expand":
            return x.expand(shape)
        case "flip":
            return x.flip(node["dims"])
        case "windows":
            reach = node["dilation"] * (shape[-1] - 1) + 1
            return x.unfold(node["dim"], reach, node["step"])[..., :: node["dilation"]]
    starts, steps = run.sizes(node["starts"]), run.sizes(node["steps"])
    ends = [a + n * s - s + 1 if n else a for a, n, s in zip(starts, shape, steps, strict=True)]
    return x[tuple(slice(a, e, s) for a, e, s in zip(starts, ends, steps, strict=True))]


def _pad(run: _Run, node: Node) -> torch.Tensor:
    (x,) = run.operands(node)
    before = run.sizes(node["before"])
    after = [n - b - s for n, b, s in zip(run.shape(node), before, x.shape, strict=True)]
    pads = [p for b, a in zip(reversed(before), reversed(after), strict=True) for p in (b, a)]
    return F.pad(x, pads, value=node["value"])


def _reduce(run: _Run, node: Node) -> torch.Tensor:
    (x,) = run.operands(node)
    dims, keep, dtype = list(node["dims"]), node["keepdim"], run.dtype(node.output)
    match node["fn"]:
        case "sum" | "mean" as fn:
            return getattr(torch, fn)(x.to(dtype), dims, keepdim=keep)
        case "max" | "min" as fn:
            return getattr(torch, f"a{fn}")(x, dims, keepdim=keep)
        case "any" | "all" as fn:
            return getattr(torch, fn)(x, dims, keepdim=keep)
        case "argmax" | "argmin" as fn:
            return getattr(torch, fn)(x, dims[0], keepdim=keep)
        case "prod":
            for dim in reversed(dims):
                x = x.prod(dim, keepdim=keep)
            return x
        case "var":
            return torch.var(x, dims, correction=node["correction"], keepdim=keep)
        case "logsumexp":
            return torch.logsumexp(x.to(dtype), dims, keepdim=keep)
        case "norm":
            return torch.linalg.vector_norm(x, node["order"], dims, keepdim=keep)
    raise AssertionError(node)


def _softmax(run: _Run, node: Node) -> torch.Tensor:
    (x,) = run.operands(node)
    return (torch.log_softmax if node["log"] else torch.softmax)(x, node["dim"])


def _scan(run: _Run, node: Node) -> torch.Tensor:
    if node["fn"] == "decayed":
        return decaying_total(*run.operands(node), dim=node["dim"])
    (x,), dim = run.operands(node), node["dim"]
    x = x.flip(dim) if node["reverse"] else x
    done = {"sum": torch.cumsum, "prod": torch.cumprod, "logcumsumexp": torch.logcumsumexp}[node["fn"]](
        x, dim
    )
    if node["exclusive"]:
        first = torch.full_like(done.narrow(dim, 0, 1), 1 if node["fn"] == "prod" else 0)
        done = torch.cat([first, done.narrow(dim, 0, x.shape[dim] - 1)], dim)
    return done.flip(dim) if node["reverse"] else done


def _selection(run: _Run, node: Node) -> list[torch.Tensor]:
    (x,), dim = run.operands(node), node["dim"]
    found = torch.sort(x, dim=dim, descending=node["largest"], stable=True)
    count = run.sizes(run._graph.value(node.outputs[0]).shape)[dim]
    return [part.narrow(dim, 0, count) for part in found]


def decaying_total(taken: torch.Tensor, decay: torch.Tensor, dim: int) -> torch.Tensor:
    """One place after the other."""
    totals = [taken.select(dim, 0)]
    for at in range(1, taken.shape[dim]):
        totals.append(totals[-1] * decay.select(dim, at) + taken.select(dim, at))
    return torch.stack(totals, dim)


def _norm(run: _Run, node: Node) -> Any:
    x, weight, bias, mean, var = [*run.operands(node), None, None][:5]
    eps = node["eps"]
    match node["kind"]:
        case "layer":
            return F.layer_norm(x, [x.shape[d] for d in node["dims"]], weight, bias, eps)
        case "rms":
            return F.rms_norm(x, [x.shape[d] for d in node["dims"]], weight, eps)
        case "group":
            return F.group_norm(x, run.number(node["groups"]), weight, bias, eps)
        case "instance":
            return F.instance_norm(x, None, None, weight, bias, True, 0.1, eps)
    mean, var = (None if running is None else running.clone() for running in (mean, var))
    made = F.batch_norm(x, mean, var, weight, bias, node["training"], node["momentum"], eps)
    return made if len(node.outputs) == 1 else [made, mean, var]


def _pool(run: _Run, node: Node) -> torch.Tensor:
    (x,), space = run.operands(node), len(node["kernel"])
    kernel = run.sizes(node["kernel"])
    if node["adaptive"]:
        return getattr(F, f"adaptive_{node['fn']}_pool{space}d")(x, kernel)
    more = (kernel, node["stride"], node["padding"])
    if node["fn"] == "max":
        return getattr(F, f"max_pool{space}d")(x, *more, node["dilation"], node["ceil"])
    rest = (node["divisor"],) if space > 1 else ()
    return getattr(F, f"avg_pool{space}d")(x, *more, node["ceil"], node["count_include_pad"], *rest)


def _resample(run: _Run, node: Node) -> torch.Tensor:
    (x,), shape, names = run.operands(node), run.shape(node), {"cubic": "bicubic"}
    names["linear"] = ("linear", "bilinear", "trilinear")[x.dim() - 3]
    mode = names.get(node["fn"], node["fn"].replace("_", "-"))
    where = {"size": shape[2:]} if node["factors"] is None else {"scale_factor": node["factors"]}
    return F.interpolate(x, **where, mode=mode, align_corners=True if node["aligned"] else None)


def _matmul(run: _Run, node: Node) -> torch.Tensor:
    a, b, bias = [*run.operands(node), None][:3]
    return a @ b if bias is None else a @ b + bias


def _conv(run: _Run, node: Node) -> torch.Tensor:
    x, weight, bias = run.operands(node)
    space, groups = weight.dim() - 2, run.number(node["groups"])
    if node["transposed"]:
        more = (node["stride"], node["padding"], node["output_padding"], groups, node["dilation"])
        return getattr(F, f"conv_transpose{space}d")(x, weight, bias, *more)
    more = (node["stride"], node["padding"], node["dilation"], groups)
    return getattr(F, f"conv{space}d")(x, weight, bias, *more)


def _attention(run: _Run, node: Node) -> torch.Tensor:
    q, k, v, mask, *further = run.operands(node)
    scale, fill = run.number(node["scale"]), node.get("fill")
    if fill is None and not further:
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=node["causal"], scale=scale)
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    sink, *others = further or (None,)
    for fn, scalars, place in node.get("steps") or ():
        tensors = [scores] if place is None else [scores, others.pop(0)][:: -1 if place else 1]
        scores = _applied(run, fn, tensors, scalars)
    if node["causal"]:
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if mask is not None and mask.dtype != torch.bool:
        scores = scores + mask
    elif mask is not None:
        scores = torch.where(mask, scores, -math.inf if fill is None else fill)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    if sink is not None:
        column = sink.expand(*scores.shape[:-1], 1).to(scores.dtype)
        column = torch.where(empty & (node["empty"] == "nan"), math.nan, column)
        return torch.cat((scores, column), -1).softmax(-1)[..., :-1] @ v
    return scores.softmax(-1) @ v


def _triangular_solve(run: _Run, node: Node) -> torch.Tensor:
    matrix, right = run.operands(node)
    options = {"upper": node["upper"], "unitriangular": node["unit"]}
    return torch.linalg.solve_triangular(matrix, right, **options)


def _cholesky(run: _Run, node: Node) -> Any:
    made = torch.linalg.cholesky_ex(*run.operands(node), upper=node["upper"])
    return list(made) if len(node.outputs) > 1 else made[0]


def _solve(run: _Run, node: Node) -> Any:
    made = torch.linalg.solve_ex(*run.operands(node))
    return list(made) if len(node.outputs) > 1 else made[0]


def _inverse(run: _Run, node: Node) -> Any:
    made = torch.linalg.inv_ex(*run.operands(node))
    return list(made) if len(node.outputs) > 1 else made[0]


def _determinant(run: _Run, node: Node) -> Any:
    (matrix,) = run.operands(node)
    return list(torch.linalg.slogdet(matrix)) if node["log"] else torch.linalg.det(matrix)


def _recurrent(run: _Run, node: Node) -> Any:
    x, *rest = run.operands(node)
    count = 2 if node["cell"] == "lstm" else 1
    states, weights = rest[:count], rest[count:]
    function: Any = getattr(torch._VF, node["cell"])  # type: ignore[attr-defined]
    hidden = states if node["cell"] == "lstm" else states[0]
    more = (node["bias"], node["layers"], 0.0, False, node["bidirectional"], node["batch_first"])
    return list(function(x, hidden, weights, *more))


def _gather(run: _Run, node: Node) -> torch.Tensor:
    x, index = run.operands(node)
    match node["how"]:
        case "embedding":
            return F.embedding(index, x)
        case "index_select":
            return x.index_select(node["dim"], index)
    return x.gather(node["dim"], index)


def _scatter(run: _Run, node: Node) -> torch.Tensor:
    source, index = run.operands(node)
    shape = list(run.shape(node))
    shape[node["dim"]] = run.number(node.get("whole", shape[node["dim"]]))
    base = torch.full(shape, run.number(node["fill"]), dtype=source.dtype)
    index = index.expand_as(source)
    if node["fn"] == "store":
        made = base.scatter(node["dim"], index, source)
    else:
        made = base.scatter_reduce(
            node["dim"], index, source, {"sum": "sum"}.get(node["fn"], f"a{node['fn']}")
        )
    return made.narrow(node["dim"], 0, run.shape(node)[node["dim"]])


def _where(run: _Run, node: Node) -> torch.Tensor:
    condition, yes, no = run.operands(node)
    return torch.where(condition, yes, no)


def _constant(run: _Run, node: Node) -> torch.Tensor:
    shape, dtype = run.shape(node), run.dtype(node.output)
    if "range" in node.attributes:
        start, step = run.sizes(node["range"])
        return (torch.arange(shape[0], dtype=torch.float64) * step + start).to(dtype)
    return torch.full(shape, run.number(node["fill"]), dtype=dtype)


def _triangle(run: _Run, node: Node) -> torch.Tensor:
    (x,) = run.operands(node)
    return (torch.triu if node["upper"] else torch.tril)(x, run.number(node["diagonal"]))


def _random(run: _Run, node: Node) -> torch.Tensor:
    if node["fn"] == "dropout":
        return F.dropout(run.operands(node)[0], node["p"], True)
    return getattr(torch, node["fn"])(run.shape(node))


def _library(run: _Run, node: Node) -> Any:
    operands = run.operands(node)

    def filled(value: Any) -> Any:
        if isinstance(value, Operand):
            return operands[value.place]
        if isinstance(value, tuple):
            return [filled(item) for item in value]
        return run.number(value)

    target = eval(node["target"], {"torch": torch})
    made = target(*map(filled, node["arguments"]), **{k: filled(v) for k, v in node["keywords"].items()})
    tensors = [item for item in made if item is not None] if isinstance(made, tuple) else made
    return tensors[0] if isinstance(made, tuple) and len(tensors) == 1 else tensors


RULES: dict[str, Callable[[_Run, Node], Any]] = {
    "pointwise": _pointwise,
    "view": _view,
    "cat": lambda run, node: torch.cat(run.operands(node), node["dim"]),
    "pad": _pad,
    "reduce": _reduce,
    "softmax": _softmax,
    "scan": _scan,
    "selection": _selection,
    "norm": _norm,
    "pool": _pool,
    "resample": _resample,
    "matmul": _matmul,
    "conv": _conv,
    "attention": _attention,
    "recurrent": _recurrent,
    "triangular_solve": _triangular_solve,
    "cholesky": _cholesky,
    "solve": _solve,
    "inverse": _inverse,
    "determinant": _determinant,
    "gather": _gather,
    "scatter": _scatter,
    "where": _where,
    "constant": _constant,
    "triangle": _triangle,
    "random": _random,
    "update": _Run.update,
    "library": _library,
}
