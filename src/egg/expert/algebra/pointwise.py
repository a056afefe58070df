"""Scalar algebra: what adds nothing, what is done twice, numbers that meet."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from egg.expert.algebra.rewrite import Draft, Rewrite, Rule, instead, is_number, made_by, only_reader, same
from egg.expert.graph import Graph, Node, Value
from egg.expert.sizes import ONE, Size

_IDEMPOTENT = frozenset({"relu", "abs", "floor", "ceil", "round", "trunc", "sign", "relu6", "hardtanh"})
DEFAULT_SOFTPLUS = (1.0, 20.0)
"""Its ``beta``, and the argument above which it is the identity."""
_LARGEST_FACTOR = 1e6
"""Numbers beyond it, or below its inverse, are not multiplied together: one of the two might overflow."""


def neutral(graph: Graph, node: Node) -> Rewrite | None:
    """``x * 1``, ``x / 1``, ``x ** 1``, ``x + 0``, ``0 + x``, ``x - 0``, a cast to the dtype it has."""
    if node.op != "pointwise" or len(node.inputs) != 1:
        return None
    source, result = graph.value(str(node.inputs[0])), graph.result(node)
    if source.dtype != result.dtype or source.shape != result.shape:
        return None
    if node["fn"] in ("cast", "identity"):
        return same(source.name)
    match node["fn"], tuple(node.get("scalars") or ()):
        case (("mul" | "div" | "pow"), (None, number)) if is_number(number) and number == 1:
            return same(source.name)
        case "mul", (number, None) if is_number(number) and number == 1:
            return same(source.name)
        case (("add" | "sub"), (None, number)) if is_number(number) and number == 0:
            return same(source.name)
        case "add", (number, None) if is_number(number) and number == 0:
            return same(source.name)
    return None


def doubled(graph: Graph, node: Node) -> Rewrite | None:
    """``relu(relu(x))`` is ``relu(x)``; ``-(-x)`` is ``x``; ``relu(abs(x))`` is ``abs(x)``."""
    inner = (
        made_by(graph, node.inputs[0], "pointwise")
        if node.op == "pointwise" and len(node.inputs) == 1
        else None
    )
    if inner is None or len(inner.inputs) != 1:
        return None
    if graph.result(inner).dtype != graph.result(node).dtype:
        return None
    fn, first = node["fn"], inner["fn"]
    if fn in _IDEMPOTENT and fn == first and node.get("scalars") == inner.get("scalars"):
        return same(inner.output)
    if fn == "relu" and first in ("abs", "sigmoid", "exp", "softplus", "hardsigmoid", "square"):
        return same(inner.output)
    if fn == first == "neg":
        return same(str(inner.inputs[0]))
    return None


def as_clamp(graph: Graph, node: Node) -> Rewrite | None:
    """One name for everything that cuts off on both sides."""
    if node.op != "pointwise" or node["fn"] not in ("hardtanh", "relu6"):
        return None
    given = tuple(node.get("scalars") or ())
    bounds = (0.0, 6.0) if node["fn"] == "relu6" else (*given[1:], *(-1.0, 1.0)[len(given[1:]) :])
    return instead(replace(node, attributes={"fn": "clamp", "scalars": (None, *bounds)}))


def clamped_twice(graph: Graph, node: Node) -> Rewrite | None:
    """The inner bounds are clamped by the outer ones."""
    outer, inner = _bounds(node), None
    if (
        outer is not None
        and len(node.inputs) == 1
        and (source := made_by(graph, node.inputs[0], "pointwise"))
    ):
        inner = _bounds(source) if len(source.inputs) == 1 and graph.result(source).floating else None
        if inner is not None and outer is not None and inner[0] <= inner[1] and outer[0] <= outer[1]:
            low, high = (min(max(bound, outer[0]), outer[1]) for bound in inner)
            scalars = (None, *(None if math.isinf(b) else b for b in (low, high)))
            return instead(
                replace(node, inputs=source.inputs, attributes={"fn": "clamp", "scalars": scalars})
            )
    return None


def _bounds(node: Node) -> tuple[float, float] | None:
    if node.op != "pointwise":
        return None
    scalars = tuple(node.get("scalars") or ())
    match node["fn"], scalars:
        case "relu", ():
            return 0.0, math.inf
        case "clamp", (None, *bounds) if all(b is None or is_number(b) for b in bounds):
            low, high = (*bounds, None, None)[:2]
            return -math.inf if low is None else low, math.inf if high is None else high
        case "clamp_min", (None, low) if is_number(low):
            return low, math.inf
        case "clamp_max", (None, high) if is_number(high):
            return -math.inf, high
    return None


def scalar_chain(graph: Graph, node: Node) -> Rewrite | None:
    """``(x * a) * b``, ``(x * a) / b``, ``(x / a) * b``, ``(x + a) - b``: one number instead of two."""
    outer = factor_of(node) or _shift(node)
    inner = made_by(graph, node.inputs[0], "pointwise") if outer is not None else None
    if outer is None or inner is None or len(inner.inputs) != 1:
        return None
    if not graph.result(inner).floating or graph.result(inner).dtype != graph.result(node).dtype:
        return None
    if graph.value(str(inner.inputs[0])).dtype != graph.result(node).dtype:
        return None
    if not only_reader(graph, inner.output):
        return None
    kind, number = outer
    before = factor_of(inner) if kind == "mul" else _shift(inner)
    if before is None:
        return None
    both = number * before[1] if kind == "mul" else number + before[1]
    if kind == "mul" and not all(_moderate(n) for n in (number, before[1])):
        return None
    return instead(replace(node, inputs=inner.inputs, attributes={"fn": kind, "scalars": (None, both)}))


def _moderate(number: float) -> bool:
    return number == 0 or 1 / _LARGEST_FACTOR <= abs(number) <= _LARGEST_FACTOR


def factor_of(node: Node) -> tuple[str, float] | None:
    """The number that a node multiplies its operand by."""
    if node.op != "pointwise":
        return None
    match node["fn"], tuple(node.get("scalars") or ()):
        case "mul", (None, number) | (number, None) if is_number(number):
            return "mul", number
        case "div", (None, number) if is_number(number) and number != 0:
            return "mul", 1.0 / number
        case "neg", ():
            return "mul", -1.0
    return None


def _shift(node: Node) -> tuple[str, float] | None:
    if node.op != "pointwise":
        return None
    match node["fn"], tuple(node.get("scalars") or ()):
        case "add", (None, number) | (number, None) if is_number(number):
            return "add", number
        case "sub", (None, number) if is_number(number):
            return "add", -number
    return None


def constant_operand(graph: Graph, node: Node) -> Rewrite | None:
    """A tensor that is one number everywhere is that number, unless the result has its shape or dtype."""
    if node.op != "pointwise" or len(node.inputs) < 2:
        return None
    scalars = list(node.get("scalars") or (None,) * len(node.inputs))
    places = [place for place, scalar in enumerate(scalars) if scalar is None][: len(node.inputs)]
    for operand, (place, name) in enumerate(zip(places, node.inputs, strict=False)):
        made = made_by(graph, name, "constant")
        if made is None or "fill" not in made.attributes or not is_number(made["fill"]):
            continue
        others = [graph.value(str(n)) for i, n in enumerate(node.inputs) if i != operand]
        if not _spans(others, graph.result(node)) or not _keeps_dtype(graph, node, str(name), others):
            continue
        scalars[place] = made["fill"]
        rest = tuple(n for i, n in enumerate(node.inputs) if i != operand)
        return instead(replace(node, inputs=rest, attributes={**node.attributes, "scalars": tuple(scalars)}))
    return None


def _spans(operands: list[Value], result: Value) -> bool:
    """Whether the operands broadcast to the result's shape by themselves."""
    for place in range(1, result.rank + 1):
        if result.shape[-place] == ONE:
            continue
        if not any(o.rank >= place and o.shape[-place] == result.shape[-place] for o in operands):
            return False
    return True


def _keeps_dtype(graph: Graph, node: Node, name: str, others: list[Value]) -> bool:
    """A number promotes less than a tensor does; equal dtypes are safe, and numbers of a lower kind."""
    dtype = graph.value(name).dtype
    return any(o.dtype == dtype or (o.floating and "float" not in dtype) for o in others)


def broadcast_operand(graph: Graph, node: Node) -> Rewrite | None:
    """An operator that broadcasts needs no operand expanded for it, as long as another has the full shape."""
    if node.op not in ("pointwise", "where"):
        return None
    for operand, name in enumerate(node.inputs):
        made = made_by(graph, name, "view")
        if made is None or made["how"] != "expand":
            continue
        source = graph.value(str(made.inputs[0]))
        others = [graph.value(str(n)) for i, n in enumerate(node.inputs) if i != operand]
        if _spans([source, *others], graph.result(node)):
            inputs = tuple(source.name if i == operand else n for i, n in enumerate(node.inputs))
            return instead(node.with_inputs(*inputs))
    return None


_FOLDS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "cast": lambda a: a,
    "abs": abs,
    "relu": lambda a: max(a, 0),
    "logical_not": lambda a: not a,
    "bitwise_not": lambda a: not a,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}


def folded(graph: Graph, node: Node) -> Rewrite | None:
    """A function of numbers is a number; a view of one number everywhere is that number everywhere."""
    sources = [graph.producer(str(name)) for name in node.inputs]
    if not sources or any(s is None or s.op != "constant" or "fill" not in s.attributes for s in sources):
        return None
    fills = [s["fill"] for s in sources if s is not None]
    result = graph.result(node)
    if node.op == "view":
        return instead(Node("constant", (), node.outputs, {"fill": fills[0]}, node.label))
    if node.op != "pointwise" or node["fn"] not in _FOLDS or any(isinstance(f, Size) for f in fills):
        return None
    scalars, left = list(node.get("scalars") or (None,) * len(fills)), list(fills)
    if any(isinstance(s, Size) for s in scalars) or (node["fn"] == "bitwise_not" and result.dtype != "bool"):
        return None
    number = _FOLDS[node["fn"]](*(left.pop(0) if s is None else s for s in scalars))
    if result.dtype in ("float16", "bfloat16"):
        return None
    number = bool(number) if result.dtype == "bool" else float(number) if result.floating else int(number)
    return instead(Node("constant", (), node.outputs, {"fill": number}, node.label))


def same_branches(graph: Graph, node: Node) -> Rewrite | None:
    """``where(c, a, a)``, and a condition that is a number."""
    if node.op != "where":
        return None
    condition, yes, no = map(str, node.inputs)
    result = graph.result(node)
    made = made_by(graph, condition, "constant")
    chosen = yes if yes == no else ""
    if made is not None and "fill" in made.attributes:
        chosen = yes if made["fill"] else no
    fits = chosen and graph.value(chosen).shape == result.shape and graph.value(chosen).dtype == result.dtype
    return same(chosen) if fits else None


def one_and_tanh(graph: Graph, node: Node) -> Rewrite | None:
    """``1 + tanh(x)`` is ``2 * sigmoid(2 * x)``: one exponential and one division, where a good ``tanh`` has
    two formulas for small and large arguments; and nothing cancels where ``tanh`` is near -1."""
    if _shift(node) != ("add", 1.0):
        return None
    inner = made_by(graph, node.inputs[0], "pointwise")
    result = graph.result(node)
    if inner is None or inner["fn"] != "tanh" or not only_reader(graph, inner.output):
        return None
    if {graph.value(str(inner.inputs[0])).dtype, graph.result(inner).dtype, result.dtype} != {"float32"}:
        return None
    draft = Draft(graph, node)
    twice = draft.add("pointwise", inner.inputs, result.shape, "twice", fn="mul", scalars=(None, 2.0))
    share = draft.add("pointwise", [twice], result.shape, "sigmoid", fn="sigmoid", scalars=())
    draft.add("pointwise", [share], result.shape, "mul", fn="mul", scalars=(None, 2.0))
    return draft.done()


def composed_mish(graph: Graph, node: Node) -> Rewrite | None:
    """``x * tanh(softplus(x))`` is ``mish(x)``: one exponential and one division, where a good logarithm of
    ``1 + e`` and a good ``tanh`` are two formulas each."""
    if node.op != "pointwise" or node["fn"] != "mul" or len(node.inputs) != 2:
        return None
    for x, factor in (node.inputs, node.inputs[::-1]):
        tanh = made_by(graph, factor, "pointwise")
        if tanh is None or tanh["fn"] != "tanh" or not only_reader(graph, tanh.output):
            continue
        plus = made_by(graph, tanh.inputs[0], "pointwise")
        if plus is None or plus["fn"] != "softplus" or plus.inputs != (x,):
            continue
        given = tuple(plus.get("scalars") or ())
        settings = (*given[1:], *DEFAULT_SOFTPLUS[max(len(given) - 1, 0) :])
        kinds = {graph.value(str(x)).dtype, graph.result(plus).dtype, graph.result(node).dtype}
        if settings == DEFAULT_SOFTPLUS and len(kinds) == 1 and graph.result(node).floating:
            return instead(replace(node, inputs=(x,), attributes={"fn": "mish", "scalars": ()}))
    return None


RULES: tuple[Rule, ...] = (
    neutral,
    doubled,
    as_clamp,
    clamped_twice,
    scalar_chain,
    constant_operand,
    broadcast_operand,
    folded,
    same_branches,
    one_and_tanh,
    composed_mish,
)
