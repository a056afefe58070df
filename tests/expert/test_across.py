"""Products over a dimension that is not innermost in memory: batched by the library, with nothing copied."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.cost import Machine
from egg.expert.moves import Recipe, Without
from egg.expert.patterns import PATTERNS
from egg.expert.reading.capture import capture_once
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.elsewhere import RUN, normal, program

LEFT = Recipe().after(Without("product"), Without("convolution"), Without("attention"))
MIXER = """
self.norm = nn.LayerNorm(width)
self.t1, self.t2 = nn.Linear(tokens, mid), nn.Linear(mid, tokens)
self.to(torch.{dtype})
"""
MIXER_FORWARD = """
y = self.t2(F.gelu(self.t1(self.norm(x).transpose(1, 2)))).transpose(1, 2)
return torch.tanh(x + y)
"""


def body_of(source: str, recipe: Recipe, given: list[torch.Tensor], arguments: list[int]) -> str:
    """``forward`` of a file that computes what the program does, with results that lie in the same way."""
    task = Task("program", source)
    text = kernel_file(task, graph_of(task), recipe, resolve("H200")).source
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    model: nn.Module = space["Model"](*arguments)
    with torch.no_grad():
        wanted = model(*given)
    parameters = {"arguments": arguments, "state": dict(model.state_dict())}
    (made,) = harness.execute(text + RUN, given, parameters)
    assert made.stride() == wanted.stride()
    close = {"atol": 1e-5, "rtol": 1e-4} if made.dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    torch.testing.assert_close(made, wanted, **close)
    return " ".join(text[text.index("class ModelNew") :].split())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_token_mixing_copies_nothing(dtype: str):
    given = f"x = torch.randn(n, tokens, width, dtype=torch.{dtype})"
    sizes = {"n": 4, "tokens": 20, "mid": 48, "width": 64}
    layers = MIXER.format(dtype=dtype)
    source = program(MIXER_FORWARD, given, layers, "tokens, mid, width", **sizes)
    x = normal(3, 12, 32, dtype=getattr(torch, dtype))
    body = body_of(source, LEFT, [x], [12, 24, 32])
    assert body.count("torch.bmm(") == 2
    assert "nn.functional.linear(" not in body
    assert "torch.empty_strided(" not in body.split("def launches")[-1], "all values lie contiguous"
    aligned = "self.packed(aligned_weight, self.t1.weight).expand("
    assert (aligned in body) == (dtype != "float32"), "rows of 20 elements of 16 bits are not aligned"
    assert "self.t2.weight.expand(" in body


def test_products_follow_each_other_with_their_biases():
    """Nothing lies between them: the second reads what the first's bias was added to."""
    layers = "self.l1, self.l2 = nn.Linear(tokens, mid), nn.Linear(mid, tokens)\nself.to(torch.float16)"
    forward = "return torch.tanh(self.l2(self.l1(x.transpose(1, 2))).transpose(1, 2)) + x"
    given = "x = torch.randn(n, tokens, width, dtype=torch.float16)"
    source = program(forward, given, layers, "tokens, mid", n=4, tokens=64, mid=32, width=64)
    body = body_of(source, LEFT, [normal(3, 16, 32, dtype=torch.float16)], [16, 8])
    assert body.count("torch.bmm(") == 2


@pytest.mark.parametrize("groups", [1, 32])
def test_convolutions_follow_each_other_with_their_biases(groups: int):
    layers = (
        "self.c1 = nn.Conv2d(c, c, 3, padding=1, groups=g)\n"
        "self.c2 = nn.Conv2d(c, c, 3, padding=2, dilation=2, groups=g)\nself.to(torch.float16)"
    )
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    source = program("return self.c2(self.c1(x)) * x", given, layers, "c, g", n=2, c=32, g=groups, h=16)
    body = body_of(source, LEFT, [normal(2, 32, 8, 8, dtype=torch.float16)], [32, groups])
    assert "self.c1.bias" in body
    assert "self.c2.bias" in body


def test_a_dimension_of_images_is_mixed_as_it_lies():
    """Rows are two dimensions, and neighbours in memory; a bias of the channels is a column."""
    layers = "self.mix = nn.Linear(c, out)\nself.to(torch.float16)"
    forward = "return torch.relu(self.mix(torch.tanh(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)) * 2"
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    source = program(forward, given, layers, "c, out", n=4, c=24, out=32, h=16)
    body = body_of(source, LEFT, [normal(2, 8, 4, 4, dtype=torch.float16)], [8, 16])
    assert "torch.bmm(self.mix.weight.expand(" in body
    assert "self.mix.bias" in body.split("torch.bmm(")[-1], "what follows adds it"


@pytest.mark.parametrize("axial", [False, True])
def test_a_result_that_is_not_turned_back_lies_as_before(axial: bool):
    """The product of transposed matrices, with a softmax over its columns behind it."""
    layers = "self.mix = nn.Linear(k, out)\nself.to(torch.float16)"
    forward = "return torch.softmax(self.mix(torch.tanh(x).transpose(-1, -2)), -1)"
    given = f"x = torch.randn({'n, 2, ' if axial else 'n, '}k, m, dtype=torch.float16)"
    source = program(forward, given, layers, "k, out", n=4, k=32, out=48, m=64)
    shape = (3, 2, 16, 24) if axial else (3, 16, 24)
    body = body_of(source, LEFT, [normal(*shape, dtype=torch.float16)], [16, 40])
    assert "self.mix.weight.t().expand(" in body
    assert "nn.functional.linear(" not in body


def test_a_returned_product_adds_its_bias_at_once():
    layers = "self.mix = nn.Linear(k, out)\nself.to(torch.float16)"
    forward = "return self.mix(torch.tanh(x).transpose(1, 2))"
    given = "x = torch.randn(n, k, m, dtype=torch.float16)"
    source = program(forward, given, layers, "k, out", n=4, k=32, out=48, m=64)
    body = body_of(source, LEFT, [normal(3, 16, 24, dtype=torch.float16)], [16, 40])
    assert "torch.baddbmm(" in body


def test_rows_that_are_not_aligned_stay_with_linear():
    layers = "self.mix = nn.Linear(k, out)\nself.to(torch.float16)"
    forward = "return self.mix(torch.tanh(x).transpose(1, 2)).transpose(1, 2) + 1"
    given = "x = torch.randn(n, k, m, dtype=torch.float16)"
    source = program(forward, given, layers, "k, out", n=4, k=32, out=48, m=49)
    body = body_of(source, LEFT, [normal(3, 16, 9, dtype=torch.float16)], [16, 40])
    assert "nn.functional.linear(" in body


def test_the_copy_that_linear_makes_is_part_of_its_price():
    seconds = {}
    for m in (2048, 2047):
        layers = "self.mix = nn.Linear(k, k)\nself.to(torch.float16)"
        given = "x = torch.randn(n, k, m, dtype=torch.float16)"
        source = program("return self.mix(x.transpose(1, 2))", given, layers, "k", n=16, k=512, m=m)
        graph = capture_once(Task("program", source))
        node = next(node for node in graph.nodes if node.op == "matmul")
        _, anchor = PATTERNS.anchor("matmul")
        seconds[m] = anchor.library_seconds(graph, node, None, Machine.of(resolve("H200")))
    assert seconds[2047] > 3 * seconds[2048]


ATTENTION = """
self.q, self.v, self.out = (nn.Conv2d(c, c, 1) for _ in range(3))
self.to(torch.float16)
"""
ATTENTION_FORWARD = """
b, c, h, w = x.shape
q, v = (layer(torch.tanh(x)).reshape(b, c, h * w) for layer in (self.q, self.v))
y = torch.bmm(v, torch.bmm(q.transpose(1, 2), v)).reshape(b, c, h, w)
return x + self.out(y)
"""


def test_convolutions_of_one_tap_that_stand_apart_leave_positions_contiguous():
    given = "x = torch.randn(n, c, h, h, dtype=torch.float16)"
    source = program(ATTENTION_FORWARD, given, ATTENTION, "c", n=2, c=64, h=16)
    body = body_of(source, LEFT, [normal(2, 8, 4, 4, dtype=torch.float16) * 0.3], [8])
    assert "nn.functional.conv2d(" not in body
    assert "channels_last" not in body
    assert body.count(".expand(") == 3


def test_the_library_reads_the_transpose_of_a_pass_in_place():
    """Newton and Schulz: one result of the pass, which the product reads twice."""
    forward = "y = torch.tanh(x) * 2\nreturn y @ y.T @ y"
    source = program(forward, "x = torch.randn(n, m, dtype=torch.bfloat16)", n=64, m=128)
    body = body_of(source, LEFT, [normal(32, 48, dtype=torch.bfloat16)], [])
    assert "empty_strided" not in body.split("def launches")[-1]
    assert ".permute(1, 0)" in body


def test_operands_of_einsum_lie_where_strides_can_say_so():
    """GShard: tokens by experts and places, dispatched by its transpose, is stored in one order."""
    forward = """
chosen = gates.unsqueeze(-1) * places.unsqueeze(1)
sent = torch.einsum("sec,sm->ecm", (chosen > 0.5).to(x.dtype), x)
return torch.einsum("sec,ecm->sm", chosen.to(x.dtype), torch.tanh(sent))
"""
    given = "x, gates, places = torch.randn(s, m, dtype=torch.bfloat16), torch.rand(s, 4), torch.rand(s, 32)"
    source = program(forward, given, s=64, m=48)
    tensors = [normal(24, 48, dtype=torch.bfloat16), torch.rand(24, 4), torch.rand(24, 32)]
    task = Task("program", source)
    structure = kernel_file(task, graph_of(task), LEFT, resolve("H200")).structure
    groups = zip(structure.groups, structure.parts, strict=True)
    (first,) = (part for group, part in groups if "gates" in group.reads(structure.graph))
    (kernel,) = first.kernels.values()
    assert kernel.count("tl.load") == 2, "both operands are stored where one element is computed"
    body_of(source, LEFT, tensors, [])
