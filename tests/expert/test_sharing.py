"""Blocks that differ in numbers alone share kernels: one text, other arguments, few values to compile for."""

from __future__ import annotations

import re

import pytest
import torch

from egg.core.source import Task
from egg.expert.assemble import Written, graph_of, kernel_file
from egg.expert.emit.triton.plain_sizes import with_runtime_sizes
from egg.expert.fusion.chained_cat import chained
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.moves import Recipe
from egg.expert.sizes import Size
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import built, program, resized

KNOBS = "B, H = 3, 12"
LAYERS = range(6)
DENSE = program(
    "xs = [x]; "
    + "; ".join(f"xs.append(self.c{i}(F.relu(self.n{i}(torch.cat(xs, 1)))))" for i in LAYERS)
    + "; return torch.cat(xs, 1).mean((2, 3))",
    "torch.randn(B, 16, H, H)",
    "; ".join(
        f"self.n{i} = nn.BatchNorm2d({16 + 8 * i}); self.c{i} = nn.Conv2d({16 + 8 * i}, 8, 1, bias=False)"
        for i in LAYERS
    ),
    KNOBS,
)


def written(task: Task) -> Written:
    return kernel_file(task, graph_of(task), Recipe(), resolve("H200"))


@pytest.fixture(scope="module")
def dense() -> Written:
    return written(DENSE)


def test_layers_that_differ_in_channels_share_their_kernels(dense: Written) -> None:
    kernels = {name for part in dense.structure.parts for name in part.kernels}
    assert len([name for name in kernels if "conv" in name]) <= 3
    assert len(kernels) <= 14
    assert len(dense.structure.groups) >= 14


def test_a_size_with_many_values_is_no_constant_of_the_compiler(dense: Written) -> None:
    heads = re.findall(r"^def \w*conv\w*_kernel\((.*?)\):", dense.source, re.DOTALL | re.MULTILINE)
    assert any(re.search(r"^ *channels,$", head, re.MULTILINE) for head in heads)


def test_counters_share_a_launch(dense: Written) -> None:
    calls = ["\n".join(part.call) for part in dense.structure.parts]
    (launch,) = [call for call in calls if "num_batches_tracked" in call]
    assert launch.count("num_batches_tracked") == len(LAYERS)


def test_shared_kernels_compute_the_same_at_other_sizes(dense: Written) -> None:
    _, module, inputs = built(resized(DENSE, KNOBS, "B, H = 2, 5"))
    state = module.state_dict()
    single = {name: t.float() if t.is_floating_point() else t.clone() for name, t in state.items()}
    with torch.no_grad():
        want = module(*inputs)
    structure = dense.structure
    (got,) = harness.run(structure.graph, structure.parts, [x.float() for x in inputs], single)
    assert float((got.double() - want).abs().max() / want.square().mean().sqrt()) < 1e-4


def test_a_list_that_grows_goes_on_from_the_last() -> None:
    def value(name: str, channels: int, origin: Origin = Origin.INPUT) -> Value:
        shape = (Size(2), Size(channels), Size(5))
        return Value(name, shape, "float32", contiguous_stride(shape), origin, name)

    pieces = [value(name, 4) for name in "abcd"]
    joined = [value(f"cat_{n}", 4 * n, Origin.NODE) for n in (2, 3, 4)]
    nodes = tuple(Node("cat", tuple("abcd"[:n]), (f"cat_{n}",), {"dim": 1}) for n in (2, 3, 4))
    graph = Graph({v.name: v for v in (*pieces, *joined)}, nodes, tuple("abcd"), ("cat_3", "cat_4"), "tuple")
    assert [node.inputs for node in chained(graph).nodes] == [("a", "b"), ("cat_2", "c"), ("cat_3", "d")]
    other = Node("cat", tuple("abcd"), ("cat_4",), {"dim": 2})
    assert chained(graph.rebuilt((*nodes[:2], other))).nodes[-1] == other


KERNEL = """@triton.jit
def k(x_ptr, channels: tl.constexpr, width: tl.constexpr, depth: tl.constexpr, BLOCK: tl.constexpr):
    padded: tl.constexpr = (channels + 7) // 8 * 8
    at = tl.program_id(0) * padded + tl.arange(0, BLOCK)
    row = tl.arange(0, width)
    if depth > 4:
        at += 1
    for start in range(0, channels, BLOCK):
        tl.store(x_ptr + at * width + start, 0.0, mask=at < tl.cdiv(channels, BLOCK) * depth)
"""


def test_only_what_the_compiler_can_do_without_becomes_an_argument() -> None:
    text = with_runtime_sizes(KERNEL, ["channels", "width", "depth", "absent"])
    assert "def k(x_ptr, channels, width: tl.constexpr, depth: tl.constexpr, BLOCK: tl.constexpr):" in text
    assert "    padded = (channels + 7) // 8 * 8" in text
