"""From graphs to files: what is computed stays the same, groups are whole, and what is alike is shared."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from egg.core.source import Task
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.structure import structured
from egg.expert.fusion.unit_order import UnitOrder
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.parts import Target
from egg.expert.sizes import ONE, Size
from egg.expert.writing.write import write_file
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.programs import Program, close, evaluate, tensors

H200 = resolve("H200")


# -- whole files -----------------------------------------------------------------------------------------


def structure_of(graph: Graph, **choices: Any) -> Structure:
    return structured(graph, Target(H200), choices=Choices(**choices))


def file_of(graph: Graph, structure: Structure) -> str:
    """The file, with a task whose module has the graph's parameters."""
    held = [v for v in graph.values.values() if v.origin is Origin.PARAMETER]
    lines = [f"        self.{v.path} = nn.Parameter(torch.rand(1))" for v in held]
    source = "\n".join([
        "import torch",
        "import torch.nn as nn",
        "class Model(nn.Module):",
        "    def __init__(self):",
        "        super().__init__()",
        *lines,
        f"    def forward(self, {', '.join(str(name) for name in graph.arguments)}):",
        "        return None",
        "def get_inputs():",
        "    return []",
        "def get_init_inputs():",
        "    return []",
    ])  # fmt: skip
    parts = list(zip(structure.groups, structure.parts, strict=True))
    return write_file(Task("random", source), structure.graph, parts, ["Random."])


def check(graph: Graph, structure: Structure, text: str) -> None:
    """The file computes what PyTorch does, buffers included, at both captured sizes."""
    buffers = {str(n.inputs[0]): str(n.inputs[1]) for n in graph.nodes if n.op == "update"}
    spelled = [f"self.{graph.value(name).path}" for name in buffers]
    text += f"\n\ndef forward(self, *given):\n    results = ModelNew.forward(self, *given)\n" \
            f"    return [*results, {', '.join(spelled)}]\n"  # fmt: skip
    rounded = any(node.op == "conv" for node in graph.nodes)  # to TF32, by default
    wanted_names = (*graph.results, *buffers.values())
    for at in range(2):
        inputs, parameters = tensors(graph, at)
        wanted = evaluate(_with_results(graph, wanted_names), inputs, parameters, at)
        outputs = harness.execute(text, inputs, parameters)
        for name, got, want in zip(wanted_names, outputs, wanted, strict=True):
            close(got, want, graph.value(name).dtype, 5e-3 if rounded else 2e-4)


def _with_results(graph: Graph, names: tuple[str, ...]) -> Graph:
    return Graph(graph.values, graph.nodes, graph.arguments, names, graph.form, graph.symbols)


def whole(graph: Graph, structure: Structure) -> None:
    """Every node in one group, groups in an order that can be executed, one name for one thing."""
    nodes = [id(node) for group in structure.groups for node in group.nodes]
    assert sorted(nodes) == sorted(id(node) for node in structure.graph.nodes)
    known = {name for name, value in graph.values.items() if value.origin is not Origin.NODE}
    for group in structure.groups:
        if group.nodes[0].op != "joined":  # a room is there before its parts
            assert set(group.reads(graph)) <= known, group.name
        known |= {name for node in group.nodes for name in node.outputs}
    attributes: dict[str, Any] = {}
    texts: dict[str, str] = {}
    for group, part in zip(structure.groups, structure.parts, strict=True):
        same = (group.pattern, part.constants, tuple(part.kernels))
        assert attributes.setdefault(group.name, same) == same, group.name
        for name, text in {**part.kernels, **part.helpers}.items():
            assert texts.setdefault(name, text) == text, name


# -- random programs with repeated blocks ------------------------------------------------------------------

FLAT = ("linear", "gate", "layer_norm", "softmax", "residual", "centred", "cat_slice")
SPATIAL = ("conv", "batch_norm", "max_pool", "residual", "gate", "scaled")


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """A block of a few layers, drawn once and repeated with other parameters, and a tail."""
    spatial = draw(st.booleans())
    layers = draw(st.lists(st.sampled_from(SPATIAL if spatial else FLAT), min_size=1, max_size=3))
    p = Program()
    batch = p.size("batch", 3, 2)
    shape: list[Size]
    if spatial:
        shape = [batch, Size(4), p.size("height", 7, 5), p.size("width", 6, 9)]
    else:
        shape = [batch, p.size("features", 20, 9)]
    x = p.input("x", shape)
    middle = [x]
    for number in range(draw(st.integers(1, 3))):
        for place, layer in enumerate(layers):
            x = LAYERS[layer](p, x, middle[-1], f"{layer}{number}{place}")
        middle.append(x)
    if draw(st.booleans()):
        x = p.reduce("mean", x, tuple(range(1, len(shape))))
    return p.graph(*dict.fromkeys([x, *draw(st.lists(st.sampled_from(middle[1:]), max_size=1))]))


def _linear(p: Program, x: str, before: str, name: str) -> str:
    width = p.shape(x)[-1]
    weight = p.permute(p.parameter(f"{name}_weight", (width, width)), (1, 0))
    made = p.node("matmul", (x, weight, p.parameter(f"{name}_bias", (width,))), p.shape(x), label=name)
    return p.pointwise("tanh", made)


def _layer_norm(p: Program, x: str, before: str, name: str) -> str:
    weight = p.parameter(f"{name}_weight", p.shape(x)[-1:])
    attributes: dict[str, Any] = {"kind": "layer", "dims": (len(p.shape(x)) - 1,), "eps": 1e-2}
    return p.node("norm", (x, weight, None), p.shape(x), label=name, **attributes)


def _cat_slice(p: Program, x: str, before: str, name: str) -> str:
    rows, width = p.shape(x)
    joined = p.node("cat", (x, p.pointwise("sigmoid", before)), (rows * 2, width), dim=0)
    half = p.node("view", (joined,), (ONE, width), how="slice", starts=(1, 0), steps=(1, 1))
    return p.pointwise("add", x, half)


def _conv(p: Program, x: str, before: str, name: str) -> str:
    channels = p.shape(x)[1]
    weight = p.parameter(f"{name}_weight", (channels, channels, 3, 3))
    attributes: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1,
                            "transposed": False, "output_padding": (0, 0)}  # fmt: skip
    made = p.node("conv", (x, weight, None), p.shape(x), label=name, **attributes)
    return p.pointwise("mul", p.pointwise("relu", made), scalars=(None, 0.25))


def _batch_norm(p: Program, x: str, before: str, name: str) -> str:
    """In training: two more results, which are written into the running statistics."""
    channels = p.shape(x)[1:2]
    words = ("weight", "bias", "running_mean", "running_var")
    held = [p.parameter(f"{name}_{word}", channels) for word in words]
    attributes = {"kind": "batch", "dims": (0, 2, 3), "eps": 1e-2, "training": True, "momentum": 0.1}
    y = p.node("norm", (x, *held), p.shape(x), label=name, **attributes)
    p.nodes[-1] = Node("norm", p.nodes[-1].inputs, (y, f"{y}_mean", f"{y}_var"), attributes, name)
    for made, buffer in zip((f"{y}_mean", f"{y}_var"), held[2:], strict=True):
        p.values[made] = Value(made, channels, "float32", contiguous_stride(channels))
        p.nodes.append(Node("update", (buffer, made), (), {}, buffer))
    return y


def _max_pool(p: Program, x: str, before: str, name: str) -> str:
    attributes: dict[str, Any] = {"fn": "max", "kernel": (3, 3), "stride": (1, 1), "padding": (1, 1),
                            "dilation": (1, 1), "ceil": False, "count_include_pad": True, "divisor": None,
                            "adaptive": False}  # fmt: skip
    return p.node("pool", (x,), p.shape(x), **attributes)


LAYERS: dict[str, Callable[[Program, str, str, str], str]] = {
    "linear": _linear,
    "layer_norm": _layer_norm,
    "cat_slice": _cat_slice,
    "conv": _conv,
    "batch_norm": _batch_norm,
    "max_pool": _max_pool,
    "gate": lambda p, x, before, name: p.pointwise("mul", x, p.pointwise("sigmoid", x)),
    "softmax": lambda p, x, before, name: p.softmax(x, 1),
    "residual": lambda p, x, before, name: p.pointwise("add", x, before),
    "centred": lambda p, x, before, name: p.pointwise("sub", x, p.reduce("mean", x, (1,), True)),
    "scaled": lambda p, x, before, name: p.pointwise("mul", x, p.parameter(name, (4, 1, 1))),
}


@settings(max_examples=18, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(networks())
def test_a_random_network_computes_the_same(graph: Graph) -> None:
    structure = structure_of(graph)
    whole(graph, structure)
    check(graph, structure, file_of(graph, structure))


# -- sharing -----------------------------------------------------------------------------------------------


def tower(layers: str, depth: int) -> Graph:
    p = Program()
    batch, width = p.size("batch", 3, 2), p.size("features", 20, 9)
    x = p.input("x", (batch, width))
    for number in range(depth):
        for layer in layers.split():
            x = LAYERS[layer](p, x, x, f"{layer}{number}")
    return p.graph(x)


def test_equal_blocks_share_a_kernel_and_its_constants() -> None:
    graph = tower("linear layer_norm", 4)
    structure = structure_of(graph)
    whole(graph, structure)
    text = file_of(graph, structure)
    check(graph, structure, text)
    alone = file_of(tower("linear layer_norm", 1), structure_of(tower("linear layer_norm", 1)))
    assert text.count("@triton.jit") == alone.count("@triton.jit")
    assert text.count("NUM_WARPS = ") == alone.count("NUM_WARPS = ")
    definitions = text[text.index("@triton.jit") : text.index("class ModelNew")]
    assert "linear0" not in definitions  # a kernel is named by what it does, not by the layer


def test_a_setting_holds_for_all_groups_of_a_name() -> None:
    graph = tower("softmax gate", 3)
    (name,) = {group.name for group in structure_of(graph).groups if "softmax" in group.name}
    structure = structure_of(graph, settings={name: {"mode": "looped", "BLOCK_R": 16}})
    assert {group.name for group in structure.groups} >= {name}
    check(graph, structure, file_of(graph, structure))


def test_steps_of_an_unrolled_loop_share_a_kernel() -> None:
    """Each reads the input at another place, which becomes an argument."""
    p = Program()
    width = p.size("features", 20, 9)
    x = p.input("x", (6, width))
    state = p.input("state", (1, width))
    for step in range(6):
        row = p.node("view", (x,), (1, width), how="slice", starts=(step, 0), steps=(1, 1))
        state = _linear(p, p.pointwise("add", row, state), "", "cell")
    graph = p.graph(state)
    structure = structure_of(graph)
    whole(graph, structure)
    text = file_of(graph, structure)
    check(graph, structure, text)
    assert structure.kernels <= 4


# -- the partition -----------------------------------------------------------------------------------------


def test_what_nobody_needs_is_left_out() -> None:
    p = Program()
    x = p.input("x", (3, 8))
    p.pointwise("exp", p.softmax(x, 1))
    structure = structure_of(p.graph(p.pointwise("relu", x)))
    assert [node.op for group in structure.groups for node in group.nodes] == ["pointwise"]


def test_operators_left_to_pytorch_have_readable_names() -> None:
    graph = tower("linear softmax", 1)
    structure = structure_of(graph, without=frozenset({"product"}))
    assert structure.left_to_pytorch == ("matrix product",)


def test_running_statistics_are_written_by_the_kernel_that_gathers_them() -> None:
    p = Program()
    x = p.input("x", (p.size("batch", 3, 2), 4, 6, 6))
    graph = p.graph(_batch_norm(p, x, x, "norm"))
    structure = structure_of(graph)
    assert [group.pattern for group in structure.groups] == ["loops"]
    check(graph, structure, file_of(graph, structure))


def test_a_long_network_is_structured_in_time() -> None:
    started = time.process_time()
    structure = structure_of(tower("linear layer_norm residual gate", 150))
    assert structure.kernels <= 8
    assert time.process_time() - started < 10


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.data())
def test_units_are_joined_only_where_no_path_comes_back(data: st.DataObject) -> None:
    """Against a search of the whole graph."""
    p = Program()
    made = [p.input("x", (4,))]
    for _ in range(12):
        made.append(p.pointwise("add", *(data.draw(st.sampled_from(made[-4:])) for _ in range(2))))
    graph = p.graph(made[-1])
    line = UnitOrder(graph)
    units = [[node] for node in graph.nodes]
    for _ in range(10):
        one, other = (data.draw(st.integers(0, len(units) - 1)) for _ in range(2))
        if one == other:
            continue
        together = [*units[one], *units[other]]
        rest = [unit for place, unit in enumerate(units) if place not in (one, other)]
        assert line.circular(together) == (not _executable(graph, [*rest, together]))
        if not line.circular(together):
            line.join(together)
            units = [*rest, together]
    ordered = line.ordered()
    assert sorted(len(unit) for unit in ordered) == sorted(len(unit) for unit in units)


def _executable(graph: Graph, units: list[list[Node]]) -> bool:
    known, waiting = {"x"}, list(units)
    while waiting:
        for unit in waiting:
            own = {name for node in unit for name in node.outputs}
            if {str(name) for node in unit for name in node.inputs} <= known | own:
                known |= own
                waiting.remove(unit)
                break
        else:
            return False
    return True
