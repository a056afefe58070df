"""Every kind of node as a PyTorch call: files written with nothing else compute what the programs compute."""

# ruff: noqa: E501 (a table of programs, one a line)

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from egg.core.policy import LibraryCalls
from egg.core.source import Task
from egg.evaluator.static import findings
from egg.expert.graph import Graph, Node, Operand, Origin, Value, contiguous_stride
from egg.expert.parts import Group, Target, Unfit
from egg.expert.patterns import PATTERNS
from egg.expert.reading.capture import capture_once
from egg.expert.sizes import Size
from egg.expert.writing.write import write_file
from egg.hardware.gpus import resolve

TERMS = Target(resolve("H200"))

PROGRAM = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, x, y=None):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

X = "torch.randn(3, 5, 8)"
PROGRAMS = {
    "arithmetic": ("pass", "return (x * 2 + 1 - x / 3) ** 2 - (1 - x).abs() ** 0.5", X),
    "alpha": ("pass", "return torch.add(x, y, alpha=3) + torch.rsub(x, y)", f"{X}, {X}"),
    "activations": ("pass", "return F.gelu(x) + F.gelu(x, approximate='tanh') + F.silu(F.softplus(x))", X),
    "more activations": ("pass", "return F.elu(x) + F.selu(x) + F.leaky_relu(x, 0.3) + F.hardtanh(x)", X),
    "still more": ("pass", "return F.mish(x) * F.hardswish(x) + F.relu6(x) + F.softsign(x) + F.celu(x, 2.0)", X),
    "comparisons": ("pass", "return torch.where(x > 0, x, y), (x >= y) & ~(x != 0), x.to(torch.int64)", f"{X}, {X}"),
    "bounds": ("pass", "return torch.clamp(x, -1, 1), x.clamp(min=0.5), torch.maximum(x, y)", f"{X}, {X}"),
    "prelu": ("self.act = nn.PReLU(5)", "return self.act(x)", X),
    "views": ("pass", "return x.reshape(3, 40)[:, 2:30:3], x.transpose(1, 2)[1:], x.unsqueeze(1).expand(3, 2, 5, 8)", X),
    "flips": ("pass", "return x.flip(1), x.flip(0, 2)[:, -2:], x.squeeze(0), x[1]", X),
    "joined": ("pass", "return torch.cat([x, y[:, :2]], dim=1), torch.stack([x, y])", f"{X}, {X}"),
    "padded": ("pass", "return F.pad(x, (1, 2, 0, 3), value=1.5), F.pad(x, (-1, 2))", X),
    "reductions": ("pass", "return x.sum(), x.mean(dim=(0, 2), keepdim=True), x.amax(1), x.prod(2), (x > 0).any(0)", X),
    "more reductions": ("pass", "return x.var(1), x.std((0, 1), correction=0), torch.logsumexp(x, 2), x.norm(dim=1)", X),
    "places": ("pass", "return x.argmax(1), x.argmin(), x.max(dim=2)[0], torch.norm(x, p=3, dim=0)", X),
    "softmaxes": ("pass", "return F.softmax(x, dim=1), F.log_softmax(x, -1)", X),
    "scans": ("pass", "return x.cumsum(1), x.cumprod(2), torch.logcumsumexp(x, 0), x.flip(1).cumsum(1).flip(1)", X),
    "layer norm": ("self.norm = nn.LayerNorm([5, 8])", "return self.norm(x)", X),
    "rms norm": ("self.norm = nn.RMSNorm(8)", "return self.norm(x)", X),
    "group norm": ("self.norm = nn.GroupNorm(2, 6, eps=1e-3)", "return self.norm(x)", "torch.randn(2, 6, 5)"),
    "instance norm": ("self.norm = nn.InstanceNorm2d(4, affine=True)", "return self.norm(x)", "torch.randn(2, 4, 5, 6)"),
    "batch norm": ("self.norm = nn.BatchNorm1d(5, momentum=0.3)", "return self.norm(x) + 1", X),
    "batch norm at rest": ("self.norm = nn.BatchNorm1d(5).eval()", "return self.norm(x)", X),
    "pools": ("pass", "return F.max_pool1d(x, 3, 2, 1), F.avg_pool1d(x, 2), F.adaptive_avg_pool1d(x, 3)", X),
    "pools in two dimensions": (
        "pass",
        "return F.max_pool2d(x, (2, 3), 1, dilation=2), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, "
        "count_include_pad=False), F.avg_pool2d(x, 2, divisor_override=3), F.adaptive_max_pool2d(x, (2, 3))",
        "torch.randn(2, 3, 9, 10)",
    ),
    "power pool": ("self.pool = nn.LPPool1d(2, 3)", "return self.pool(x.abs())", X),
    "product": ("pass", "return x @ y.transpose(1, 2), torch.einsum('bij,bkj->bik', x, y)", f"{X}, {X}"),
    "linear": ("self.fc = nn.Linear(8, 4)\n        self.fd = nn.Linear(4, 2, bias=False)", "return self.fd(self.fc(x))", X),
    "addmm": ("pass", "return torch.addmm(y, x[0], x[1].t())", "torch.randn(3, 5, 8), torch.randn(5, 5)"),
    "convolution": (
        "self.layers = nn.Sequential(nn.Conv2d(4, 6, 3, 2, 1, groups=2), nn.ConvTranspose2d(6, 3, (2, 3), 2, "
        "output_padding=1, bias=False))",
        "return self.layers(x)",
        "torch.randn(2, 4, 8, 9)",
    ),
    "convolutions of other ranks": (
        "self.one = nn.Conv1d(5, 5, 3, padding='same', dilation=2)\n        self.three = nn.Conv3d(1, 2, 2)",
        "return self.one(x), self.three(x.unsqueeze(1).unsqueeze(1).expand(3, 1, 2, 5, 8))",
        X,
    ),
    "attention": (
        "pass",
        "return F.scaled_dot_product_attention(x, y, y, is_causal=True), F.scaled_dot_product_attention(x, y, x, scale=0.3)",
        f"{X}, {X}",
    ),
    "lstm": (
        "self.lstm = nn.LSTM(8, 4, num_layers=2, batch_first=True, bidirectional=True)",
        "out, (h, c) = self.lstm(x)\n        return out, c",
        X,
    ),
    "gru": ("self.gru = nn.GRU(8, 4, bias=False)", "return self.gru(x, y)", f"{X}, torch.randn(1, 5, 4)"),
    "rnn": ("self.rnn = nn.ModuleList([nn.RNN(8, 4, nonlinearity='relu')])", "return self.rnn[0](x)[0]", X),
    "gathers": (
        "self.table = nn.Embedding(9, 4)",
        "return self.table(y), torch.index_select(x, 1, y[0]), torch.gather(x, 2, y.unsqueeze(0).expand(3, 2, 3))",
        f"{X}, torch.randint(0, 5, (2, 3))",
    ),
    "scatters": (
        "pass",
        "at = y[0, :, None].expand(3, 5)\n        z = x[0, :3, :5]\n        "
        "return torch.zeros(5, 5).index_add(0, y[0], z), x[0].scatter_reduce(0, at, z, 'amax'), "
        "torch.ones(5, 5).scatter_reduce(0, at, z, 'amin', include_self=False), x[0].index_put((y[1],), x[1, :3], "
        "accumulate=True), torch.zeros(5, dtype=torch.int32).scatter_add(0, y[0], y[1].int())",
        f"{X}, torch.randint(0, 5, (2, 3))",
    ),
    "made": ("pass", "return x + torch.ones(8) * 2, x * torch.arange(3, 11), torch.zeros(2, dtype=torch.int64)", X),
    "triangles": ("pass", "return torch.tril(x), torch.triu(x, diagonal=1)", X),
    "random": ("self.drop = nn.Dropout(0.3)", "return self.drop(x) + torch.rand_like(x) + torch.randn(8)", X),
    "a buffer": (
        "self.register_buffer('count', torch.zeros(()))",
        "self.count += 1\n        return x * self.count",
        X,
    ),
    "in order": ("pass", "a, b = torch.topk(x, 2, dim=2)\n        return a, b, torch.sort(x, dim=1)[0]", X),
    "calls without a normal form": ("pass", "a, b = torch.kthvalue(x, 2, dim=2)\n        return a, b, torch.cummax(x, dim=1)[0]", X),
    "indices": (
        "pass",
        "return x[:, y, :, y] if x.dim() > 3 else x[:, y[0], y[1]], x[y[0], :, y[1]], torch.roll(x, 1, 2)",
        f"{X}, torch.randint(0, 3, (2, 4))",
    ),
    "resized": (
        "pass",
        "return F.interpolate(x, scale_factor=2), F.interpolate(x, size=5, mode='linear', align_corners=True), "
        "F.pad(x, (1, 2), mode='reflect')",
        X,
    ),
    "resized with all neighbours": (
        "pass",
        "return F.interpolate(x, size=(4, 3), mode='bicubic', antialias=True), F.interpolate(x, scale_factor=0.4, "
        "mode='bilinear', antialias=True), F.interpolate(x, size=(9, 4), mode='bilinear', align_corners=True, "
        "antialias=True)",
        "torch.randn(2, 3, 8, 9)",
    ),
    "windows": (
        "pass",
        "return F.unfold(x, 2, stride=2), F.unfold(x, 2, 2, 1, 3), F.pixel_shuffle(x, 2), F.max_pool2d(x, 2, return_indices=True)[1]",
        "torch.randn(2, 4, 6, 6)",
    ),
    "matrices": ("pass", "return torch.linalg.inv(x @ x.t() + torch.eye(4)), x.repeat(2, 1)", "torch.randn(4, 4)"),
    "losses": ("pass", "return F.mse_loss(x, y), F.smooth_l1_loss(x, y), F.kl_div(x, y.softmax(2))", f"{X}, {X}"),
}  # fmt: skip


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for item in value for t in flat(item)]


def loaded(text: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "loaded"}
    exec(compile(text, "loaded", "exec", dont_inherit=True), space)
    return space


def written(task: Task, graph: Graph, apart: bool = False) -> str:
    """As one group, or with every node in a group of its own."""
    groups = [Group("all", graph.nodes, "library")]
    if apart:
        groups = [Group(f"part_{n}", (node,), "library") for n, node in enumerate(graph.nodes)]
    parts = [(group, PATTERNS.fallback.write(graph, group, TERMS)) for group in groups]
    return write_file(task, graph, parts, ["All of it in PyTorch."])


def test_it_does_not_matter_how_library_calls_are_grouped() -> None:
    for name in ("batch norm", "linear", "a buffer", "lstm", "views"):
        layers, forward, inputs = PROGRAMS[name]
        task = Task("small", PROGRAM.format(layers=layers, forward=forward, inputs=inputs))
        graph = capture_once(task)
        assert written(task, graph) == written(task, graph, apart=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_library_calls_compute_what_the_program_computes(name: str) -> None:
    layers, forward, inputs = PROGRAMS[name]
    task = Task("small", PROGRAM.format(layers=layers, forward=forward, inputs=inputs))
    text = written(task, capture_once(task))
    refused = [f for f in findings(text, LibraryCalls.ALLOW) if f.code != "static.no_kernel"]
    assert not refused, text
    theirs, ours = loaded(task.source), loaded(text)
    torch.manual_seed(1)
    model = theirs["Model"]()
    torch.manual_seed(1)
    new = ours["ModelNew"]()
    for seed in (2, 3):
        torch.manual_seed(seed)
        given = theirs["get_inputs"]()
        again = copy.deepcopy(given)
        torch.manual_seed(seed)
        with torch.no_grad():
            expected = flat(model(*given))
        torch.manual_seed(seed)
        with torch.no_grad():
            made = flat(new(*again))
        assert len(made) == len(expected)
        for one, other in zip(made, expected, strict=True):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        for key, value in model.state_dict().items():
            torch.testing.assert_close(new.state_dict()[key], value)


# -- nodes that no capture makes by itself ------------------------------------------------------------------


def graph_of(inputs: Sequence[tuple[int, ...]], node: Node, *shapes: tuple[int, ...]) -> Graph:
    def value(name: str, shape: tuple[int, ...], origin: Origin) -> Value:
        sizes = tuple(Size(n) for n in shape)
        return Value(name, sizes, "float32", contiguous_stride(sizes), origin, name)

    given = [value(f"x{n}", shape, Origin.INPUT) for n, shape in enumerate(inputs)]
    made = [value(name, shape, Origin.NODE) for name, shape in zip(node.outputs, shapes, strict=True)]
    names = tuple(v.name for v in given)
    return Graph({v.name: v for v in (*given, *made)}, (node,), names, node.outputs, "tuple")


def computed(graph: Graph, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """The node's lines, run."""
    part = PATTERNS.fallback.write(graph, Group("all", graph.nodes, "library"), TERMS)
    space: dict[str, Any] = {"torch": torch, "nn": torch.nn}
    space |= {str(name): tensor for name, tensor in zip(graph.arguments, tensors, strict=True)}
    exec("\n".join(part.call), space)
    return [space[name] for name in graph.results]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("fn", "neutral"), [("sum", 0.0), ("prod", 1.0), ("max", float("-inf"))])
def test_scans_that_leave_the_element_itself_out(fn: str, neutral: float, reverse: bool) -> None:
    node = Node("scan", ("x0",), ("y",), {"fn": fn, "dim": 1, "reverse": reverse, "exclusive": True})
    x = torch.randn(2, 6, 3)
    (y,) = computed(graph_of([(2, 6, 3)], node, (2, 6, 3)), x)
    for place in range(6):
        rest = x[:, place + 1 :] if reverse else x[:, :place]
        whole = torch.cat([torch.full((2, 1, 3), neutral), rest], dim=1)
        expected = {"sum": whole.sum, "prod": whole.prod, "max": whole.amax}[fn](dim=1)
        torch.testing.assert_close(y[:, place], expected)


def test_norms_over_other_than_the_last_dimensions() -> None:
    x, weight, bias = torch.randn(2, 5, 3), torch.randn(5, 1), torch.randn(5, 1)
    attributes = {"dims": (1,), "eps": 1e-3}
    node = Node("norm", ("x0", "x1", "x2"), ("y",), {"kind": "layer", **attributes})
    (y,) = computed(graph_of([(2, 5, 3), (5, 1), (5, 1)], node, (2, 5, 3)), x, weight, bias)
    centred = x - x.mean(1, keepdim=True)
    expected = centred / (centred.square().mean(1, keepdim=True) + 1e-3).sqrt() * weight + bias
    torch.testing.assert_close(y, expected)
    node = Node("norm", ("x0", None, None), ("y",), {"kind": "rms", **attributes})
    (y,) = computed(graph_of([(2, 5, 3)], node, (2, 5, 3)), x)
    torch.testing.assert_close(y, x / (x.square().mean(1, keepdim=True) + 1e-3).sqrt())


def test_a_recurrent_layer_whose_weights_belong_to_nobody() -> None:
    layer = torch.nn.LSTM(4, 3, batch_first=True)
    weights = [w.detach() for w in layer.parameters()]
    x, h, c = torch.randn(2, 5, 4), torch.randn(1, 2, 3), torch.randn(1, 2, 3)
    given = [x, h, c, *weights]
    attributes = {"cell": "lstm", "layers": 1, "bidirectional": False, "batch_first": True, "bias": True}
    node = Node("recurrent", tuple(f"x{n}" for n in range(7)), ("out", "hn", "cn"), attributes)
    graph = graph_of([tuple(t.shape) for t in given], node, (2, 5, 3), (1, 2, 3), (1, 2, 3))
    expected, ends = layer(x, (h, c))
    for one, other in zip(computed(graph, *given), (expected, *ends), strict=True):
        torch.testing.assert_close(one, other)


def test_power_pools_and_products_over_several_dimensions() -> None:
    x = torch.rand(2, 3, 6, 6)
    attributes = {
        "fn": "lp",
        "order": 3,
        "kernel": (2, 2),
        "stride": (2, 2),
        "padding": (0, 0),
        "ceil": False,
    }
    node = Node("pool", ("x0",), ("y",), attributes)
    (y,) = computed(graph_of([(2, 3, 6, 6)], node, (2, 3, 3, 3)), x)
    torch.testing.assert_close(y, torch.nn.functional.lp_pool2d(x, 3, 2))
    node = Node("reduce", ("x0",), ("y",), {"fn": "prod", "dims": (1, 3), "keepdim": False})
    (y,) = computed(graph_of([(2, 3, 6, 6)], node, (2, 6)), x)
    torch.testing.assert_close(y, x.prod(3).prod(1))


def test_calls_under_names_that_kernel_files_may_use() -> None:
    x = torch.randn(2, 3, 4, 4)
    attributes = {
        "target": "torch.ops.aten.pixel_shuffle.default",
        "arguments": (Operand(0), 1),
        "keywords": {},
    }
    graph = graph_of([(2, 3, 4, 4)], Node("library", ("x0",), ("y",), attributes), (2, 3, 4, 4))
    assert computed(graph, x)[0].shape == x.shape
    attributes = {"target": "torch.ops.aten._made_up.default", "arguments": (Operand(0),), "keywords": {}}
    graph = graph_of([(2, 3, 4, 4)], Node("library", ("x0",), ("y",), attributes), (2, 3, 4, 4))
    with pytest.raises(Unfit, match="_made_up"):
        computed(graph, x)


def test_a_node_of_no_kind_is_refused() -> None:
    with pytest.raises(Unfit, match="dance"):
        computed(graph_of([(2,)], Node("dance", ("x0",), ("y",)), (2,)), torch.rand(2))
