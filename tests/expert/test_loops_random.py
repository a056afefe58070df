"""Programs nobody thought of: random graphs of what loops take, in every mode, against PyTorch."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from egg.expert.graph import Graph, Value
from egg.expert.parts import Group, Target, Unfit
from egg.expert.patterns.loops.write import write
from egg.expert.sizes import ONE, Size, as_size, product
from tests.expert import harness
from tests.expert.checking import H200
from tests.expert.programs import Program, close, evaluate, tensors

UNARY = ("relu", "tanh", "sigmoid", "neg", "square", "abs", "gelu", "silu", "cos")
BINARY = ("add", "mul", "maximum", "sub")
REDUCTIONS = ("sum", "mean", "max", "argmax", "var", "logsumexp", "norm", "min")


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """A tensor, a few operators one after the other, some of their operands new, some views in between."""
    p = Program()
    rank = draw(st.integers(1, 4))
    shape: list[Size] = []
    for dim in range(rank):
        if draw(st.booleans()):
            shape.append(p.size("abcd"[dim], draw(st.integers(2, 9)), draw(st.integers(2, 9))))
        else:
            shape.append(Size(draw(st.sampled_from([1, 2, 3, 8, 17]))))
    dtype = draw(st.sampled_from(["float32", "float32", "float16", "bfloat16"]))
    order = draw(st.permutations(range(rank)))
    x = p.input("x", shape, dtype, order)
    results = []
    for step in range(draw(st.integers(1, 6))):
        x = draw(_grown(p, x, step))
        if not p.values[x].floating:
            break
        if draw(st.integers(0, 5)) == 0:
            results.append(x)
    return p.graph(*dict.fromkeys([*results, x]))


@st.composite
def _grown(draw: st.DrawFn, p: Program, x: str, step: int) -> str:
    shape = p.shape(x)
    rank = len(shape)
    kinds = ["unary", "binary", "other"]
    kinds += ["permute", "join", "softmax", "reduce", "norm", "flip", "slice", "scan"] if rank else []
    match draw(st.sampled_from(kinds)):
        case "unary":
            return p.pointwise(draw(st.sampled_from(UNARY)), x)
        case "binary":
            cut = draw(st.integers(0, rank))
            own = [ONE if draw(st.booleans()) else size for size in shape[cut:]]
            other = p.input(f"y{step}", own, p.values[x].dtype)
            return p.pointwise(draw(st.sampled_from(BINARY)), x, other)
        case "other":
            return p.pointwise("mul", x, scalars=(None, 0.5))
        case "permute":
            return p.permute(x, draw(st.permutations(range(rank))))
        case "join" if rank > 1:
            at = draw(st.integers(0, rank - 2))
            return p.reshape(x, (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :]))
        case "softmax":
            return p.softmax(x, draw(st.integers(0, rank - 1)), draw(st.booleans()))
        case "reduce":
            dims = tuple(sorted(draw(st.sets(st.integers(0, rank - 1), min_size=1))))
            return p.reduce(draw(st.sampled_from(REDUCTIONS)), x, dims, draw(st.booleans()), correction=0)
        case "norm":
            count = draw(st.integers(1, rank))
            weight = p.parameter(f"w{step}", shape[rank - count :], p.values[x].dtype)
            attributes: dict[str, Any] = {
                "kind": "layer",
                "dims": tuple(range(rank - count, rank)),
                "eps": 1e-2,
            }
            return p.node("norm", (x, weight, None), shape, **attributes)
        case "flip":
            return p.node("view", (x,), shape, how="flip", dims=(draw(st.integers(0, rank - 1)),))
        case "slice":
            least = [min(size.values) for size in shape]
            dim = draw(st.integers(0, rank - 1))
            starts = tuple(least[d] - 1 if d == dim else 0 for d in range(rank))
            cut = tuple(ONE if d == dim else as_size(size) for d, size in enumerate(shape))
            return p.node("view", (x,), cut, how="slice", starts=starts, steps=(1,) * rank)
        case "scan":
            return p.node("scan", (x,), shape, fn="sum", dim=draw(st.integers(0, rank - 1)))
    return p.pointwise("neg", x)


MODES = st.sampled_from(["", "resident", "looped", "split"])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(programs(), MODES, st.sampled_from([0, 4]), st.sampled_from([16, 32]))
def test_random_programs(graph: Graph, mode: str, block_x: int, block_r: int) -> None:
    chosen: dict[str, Any] = {"mode": mode, "BLOCK_R": block_r, "SPLITS": 2} if mode else {}
    if block_x and mode:
        chosen["BLOCK_X"] = block_x
    try:
        part = write(graph, Group("random", graph.nodes, "loops"), Target(H200, chosen))
    except Unfit:
        assume(False)
        return
    for at in range(2):
        inputs, parameters = tensors(graph, at)
        wanted = evaluate(graph, inputs, parameters, at)
        outputs = harness.run(graph, [part], inputs, parameters)
        for name, got, want in zip(graph.results, outputs, wanted, strict=True):
            if graph.value(name).dtype == "int64":
                continue  # ties of rounded values: tested by themselves
            close(got, want, graph.value(name).dtype, 2e-5 * (1 + _scale(graph)))


def _scale(graph: Graph) -> float:
    """Errors grow with what is added up."""
    return max(_elements(value) for value in graph.values.values()) / 1000


def _elements(value: Value) -> int:
    return product(value.shape).value
