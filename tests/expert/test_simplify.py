"""Identities: each one shortens the graph it is meant for, and changes no value of any program."""

# ruff: noqa: E501 (tables of programs, one a line)

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from egg.core.source import Task
from egg.expert.algebra import (
    RULES,
    amplified,
    convolutions,
    grouped_heads,
    pointwise,
    reductions,
    views,
    writes,
)
from egg.expert.algebra.rewrite import Rule
from egg.expert.algebra.simplify import simplify, without_dead
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.reading.capture import capture, capture_once
from egg.expert.sizes import Size
from tests.expert.captured import check, kinds, program, resized

KNOBS = "B, C, H, W = 4, 16, 18, 20"
OTHERS = "B, C, H, W = 3, 24, 23, 13"
CUBE = "torch.randn(B, C, H)"

CASES: dict[str, tuple[Rule, str, dict[str, int]]] = {
    "times one": (pointwise.neutral, "x * 1 + 0 - 0.0", {"mul": 0, "add": 0, "sub": 0}),
    "over one": (pointwise.neutral, "(x / 1) ** 1", {"div": 0, "pow": 0}),
    "powers of one": (pointwise.neutral, "(x ** 1).exp()", {"pow": 0}),
    "relu twice": (pointwise.doubled, "x.relu().relu()", {"relu": 1}),
    "minus minus": (pointwise.doubled, "(-(-x)).exp()", {"neg": 0}),
    "relu of what is positive": (pointwise.doubled, "x.sigmoid().relu()", {"relu": 0}),
    "hardtanh": (pointwise.as_clamp, "F.hardtanh(x) + F.hardtanh(x, -2, 0.5) + F.relu6(x)", {"clamp": 3, "hardtanh": 0, "relu6": 0}),
    "clamp twice": (pointwise.clamped_twice, "x.clamp(-1, 2).clamp(-3, 0.5)", {"clamp": 1}),
    "clamps apart": (pointwise.clamped_twice, "x.clamp(min=0.5).clamp(max=0.2)", {"clamp": 1}),
    "relu and clamp": (pointwise.clamped_twice, "x.relu().clamp(max=0.7)", {"clamp": 1, "relu": 0}),
    "factors": (pointwise.scalar_chain, "((x * 3) / 7) * 0.5", {"mul": 1, "div": 0}),
    "shifts": (pointwise.scalar_chain, "((x + 3) - 7) + 0.5", {"add": 1, "sub": 0}),
    "number in a tensor": (pointwise.constant_operand, "torch.min(x, torch.tensor(0.3)) * torch.full((H,), 2.0)", {"constant": 0}),
    "expanded operand": (pointwise.broadcast_operand, "x * x[:, :1].expand(B, C, H)", {"expand": 0}),
    "folded numbers": (pointwise.folded, "x + (torch.ones(H) * 3 - 1)", {"sub": 0}),
    "one branch": (pointwise.same_branches, "torch.where(x > 0, x, x).exp()", {"where": 0}),
    "mish in three steps": (pointwise.composed_mish, "torch.tanh(F.softplus(x)) * x", {"tanh": 0, "softplus": 0, "mish": 1}),
    "one and tanh": (pointwise.one_and_tanh, "0.5 * x * (1.0 + torch.tanh(0.8 * x))", {"tanh": 0, "sigmoid": 1}),
    "exponential of a sum": (amplified.exact_exponential, "x.cumsum(1)[:, 1:].exp()", {"exp": 1, "scan": 1}),
    "sum for an exponential": (amplified.exact_sum, "(x.cumsum(1) - x.cumsum(1)[:, :1]).exp()", {"exp": 1}),
    "reshapes": (views.merged, "x.view(B, -1).view(-1, H).view(B, C, H)", {"view": 0}),
    "permutes": (views.merged, "x.transpose(1, 2).transpose(1, 2) + x.permute(2, 0, 1).permute(1, 2, 0)", {"view": 0}),
    "slices": (views.merged, "x[:, 2:9][:, 1::2] * 2", {"view": 1}),
    "flips": (views.merged, "x.flip(1).flip(1) * 2", {"view": 0}),
    "permute of ones": (views.trivial_permute, "x[:, None].transpose(0, 1).reshape(B, C, H) * 2", {"view": 0}),
    "dimensions of one": (views.reshape_of_expand, "x[0, 0].expand(1, 1, H) * 2", {"view": 4}),
    "scan from the end": (views.reversed_scan, "x.flip(1).cumsum(1).flip(1)", {"view": 0, "scan": 1}),
    "scan without the last": (views.exclusive_scan, "torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(1)), 1)", {"cat": 0, "scan": 1}),
    "there and back": (views.reshape_there_and_back, "x.view(B, -1).tanh().view(B, C, H)", {"view": 0}),
    "packed and taken apart": (views.piece_of_cat, "p = torch.cat((x * 2, x[:, :1], x + 1), 1); return p[:, C:C + 1] * p[:, :C] + p[:, C + 1:]", {"cat": 0}),
    "of one": (reductions.of_one, "x[:, :1].logsumexp(1).exp() + x[:, :1].norm(dim=1) + x[:, :1].mean(1)", {"logsumexp": 0, "norm": 0, "mean": 0}),
    "inner products": (reductions.inner_products, "torch.einsum('bch,bch->bc', x, x + 1)", {"matmul": 0, "sum": 1}),
    "means of a scatter": (reductions.summed_scatter, "torch.zeros(H, C, 3).index_add(0, torch.arange(H) // 2, torch.stack((x, x + 1, x * 2), -1)[0].transpose(0, 1)).mean(2)", {"scatter": 1, "mean": 1}),
    "the beginning of a scatter": (views.beginning_of_scatter, "torch.zeros(C, H).index_copy(0, C - 1 - torch.arange(C), x[0])[:2]", {"scatter": 1, "view": 3}),
    "outer products": (reductions.outer_product, "x[:, :, :1] @ x[:, :1, :] + F.linear(x[..., :1], x[0, :2, :1], x[0, 0, :2])[..., :1]", {"matmul": 0}),
    "sum of sum": (reductions.merged, "x.sum(2, keepdim=True).sum(1, keepdim=True)", {"sum": 1}),
    "mean of mean": (reductions.merged, "x.mean(2).mean(1) + x.mean(1, keepdim=True).mean(2)[:, 0]", {"mean": 1}),
    "most of most": (reductions.merged, "x.amax(1).amax(1) - x.logsumexp(1).logsumexp(1)", {"max": 1, "logsumexp": 1}),
    "dimensions of one, summed": (reductions.fewer_dims, "x[:, :1].sum((1, 2), keepdim=True)", {"sum": 1}),
    "row after a sum": (reductions.row_after, "((x @ x[0].T) - x[0, :, 0]).mean(2) * (x[0, :, 1] + x @ x[0].T).sum(2)", {"matmul": 2}),
    "number after a sum": (reductions.number_after, "(x / 3).sum(1) + (x * 2).mean((1, 2))[:, None]", {"mul": 2, "div": 0}),
}  # fmt: skip


def _at_two_sizes(graph: Graph, task: Task) -> None:
    check(graph, task)
    check(graph, resized(task, KNOBS, OTHERS))


@pytest.mark.parametrize(
    ("forward", "cats"),
    [
        ("z = torch.zeros(B, 6, H);"
         "z[:, 1] = x[:, 0]; z[:, 2] = z[:, 1] * 2; z[:, 5] = x[:, 3]; z[:, 2] = 1 - x[:, 1]; return z", 1),
        ("z = torch.zeros(B, 6, H); z[:, 1] = x[:, 0]; y = z.sum(1); z[:, 3] = y; return z, y", 2),
        ("z = torch.zeros(B, 3 * C, H);"
         "z[:, :C] = x; z[:, C:2 * C] = x * 2; z[:, 2 * C:] = 1 - x; return z", 1),
        ("z = torch.zeros(B, 4, C, H); z[:, 0] = x; z[:, 1, :, 1:] = x[:, :, 1:] * x[:, :, :-1];"
         "z[:, 2, :, 2:] = x[:, :, 2:] * x[:, :, :-2]; return z", 3),
        ("z = torch.zeros(B, C, 3 * H); z[:, :, H:2 * H] = x; z[:, :, H:2 * H] += 1; return z.exp()", 1),
    ],
)  # fmt: skip
def test_a_tensor_that_is_filled_place_by_place_is_joined_once(forward: str, cats: int) -> None:
    """Unless it is read as a whole between two writes."""
    task = program(forward, CUBE, "pass", KNOBS)
    graph = simplify(capture(task))
    assert kinds(graph)["cat"] == cats
    _at_two_sizes(graph, task)


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    rule, forward, wanted = CASES[name]
    task = program(forward, CUBE, "pass", KNOBS)
    graph = capture(task)
    assert any(rule(graph, node) is not None for node in graph if len(node.outputs) == 1), (
        "the rule saw nothing"
    )
    _at_two_sizes(simplify(graph, [rule]), task)
    whole = simplify(graph)
    found = kinds(whole)
    assert {kind: found[kind] for kind in wanted} == wanted
    _at_two_sizes(whole, task)


def test_a_softplus_with_settings_of_its_own_makes_no_mish() -> None:
    forward = "torch.tanh(F.softplus(x, 1.0, 0.0)) * x + torch.tanh(F.softplus(x, 2.0)) * x"
    task = program(forward, CUBE, "pass", KNOBS)
    whole = simplify(capture(task))
    assert kinds(whole)["mish"] == 0
    _at_two_sizes(whole, task)


def test_every_rule_has_a_case() -> None:
    tested = {rule for rule, _, _ in CASES.values()} | {
        grouped_heads.spread,
        reductions.few_gathered,
        reductions.summed_product,
        views.whole,
        convolutions.summed,
        writes.filled_by_places,
        writes.untouched,
    }
    assert {rule.__name__ for rule in RULES} - {rule.__name__ for rule in tested} == {
        "attention",
        "by_dimensions",
        "chosen_piece",
        "doubled_recurrence",
        "grouped",
        "listed",
        "rescaled",
        "single_channel",
    }, "these have test files of their own"


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("view", {"how": "reshape"}),
        ("view", {"how": "expand"}),
        ("view", {"how": "permute", "dims": (0, 1)}),
        ("view", {"how": "slice", "starts": (0, 0), "steps": (1, 1)}),
        ("cat", {"dim": 0}),
        ("pad", {"before": (0, 0), "value": 0.0}),
    ],
)
def test_a_view_that_changes_nothing_is_not_there(op: str, attributes: dict[str, object]) -> None:
    shape = (Size(4), Size(5))
    x = Value("x", shape, "float32", contiguous_stride(shape), Origin.INPUT, "x")
    graph = Graph(
        {"x": x, "y": replace(x, name="y", origin=Origin.NODE)},
        (Node(op, ("x",), ("y",), attributes),),
        ("x",),
        ("y",),
    )
    assert simplify(graph, [views.whole]).results == ("x",)
    assert simplify(graph, [views.whole]).nodes == ()


def test_a_product_that_is_summed_is_a_product_with_a_vector() -> None:
    task = program(
        "self.a(x / 2).sum(1, keepdim=True) * 1.5", "torch.randn(B, C)", "self.a = nn.Linear(C, H)", KNOBS
    )
    graph = simplify(capture(task))
    (product,) = [node for node in graph if node.op == "matmul"]
    assert graph.result(product).shape[-1].value == 1
    _at_two_sizes(graph, task)


@pytest.mark.parametrize(
    ("layer", "forward", "convolutions_left"),
    [
        ("nn.ConvTranspose2d(C, 5, 3)", "self.a(x).mean((2, 3), keepdim=True)", 0),
        (
            "nn.ConvTranspose2d(C, 5, (3, 4), stride=(2, 3), output_padding=1)",
            "self.a(x).mean((2, 3)) * 2",
            0,
        ),
        ("nn.ConvTranspose2d(C, 5, 3, dilation=2, bias=False)", "self.a(x).sum((2, 3))", 0),
        ("nn.ConvTranspose2d(C, 5, 3, padding=1)", "self.a(x).mean((2, 3))", 1),
        ("nn.Conv2d(C, 5, 3)", "self.a(x).mean((2, 3))", 1),
    ],
)
def test_a_convolution_that_is_summed_over_space(layer: str, forward: str, convolutions_left: int) -> None:
    task = program(forward, "torch.randn(B, C, H, W)", f"self.a = {layer}", KNOBS)
    graph = simplify(capture(task))
    assert kinds(graph)["conv"] == convolutions_left
    _at_two_sizes(graph, task)


def test_attention_is_put_together() -> None:
    forward = "q, k, v = x.chunk(3, -1); s = (q @ k.transpose(-2, -1)) / math.sqrt(C); return torch.softmax(s + y, -1) @ v"
    task = program(forward, "torch.randn(B, 2, H, 3 * C), torch.randn(H, H)", "pass", KNOBS, "x, y")
    graph = simplify(capture(task))
    found = kinds(graph)
    assert (found["attention"], found["matmul"], found["softmax"]) == (1, 0, 0)
    _at_two_sizes(graph, task)


def test_attention_whose_weights_are_returned_stays_in_pieces() -> None:
    forward = "w = torch.softmax(x @ x.transpose(-2, -1), -1); return w @ x, w"
    task = program(forward, CUBE, "pass", KNOBS)
    graph = simplify(capture(task))
    assert kinds(graph)["attention"] == 0
    _at_two_sizes(graph, task)


def test_what_nobody_needs_is_dropped_and_writes_stay() -> None:
    task = program(
        "y = x.exp().sum(); return self.a(x)[:, :1] * 2", CUBE, "self.a = nn.BatchNorm1d(C)", KNOBS
    )
    graph = without_dead(capture(task))
    found = kinds(graph)
    assert (found["exp"], found["sum"], found["update"]) == (0, 0, 3)
    _at_two_sizes(graph, task)


def test_large_numbers_are_not_multiplied_together() -> None:
    graph = simplify(capture_once(program("(x * 1e30) * 1e-30", CUBE)))
    assert kinds(graph)["mul"] == 2


UNARY = ["relu", "neg", "abs", "sigmoid", "tanh"]
STEPS = st.one_of(
    st.sampled_from([f"x = x.{name}()" for name in UNARY]),
    st.sampled_from(["x = x * 2.0", "x = x / 4", "x = x + 1", "x = x - 0.5", "x = 1 - x", "x = x * 1", "x = x + 0"]),
    st.sampled_from(["x = x.clamp(-1, 1)", "x = x.clamp(min=-0.5)", "x = F.hardtanh(x)", "x = F.relu6(x)"]),
    st.sampled_from(["x = x.transpose(0, 1)", "x = x.reshape(x.shape[1], x.shape[0])", "x = x.flip(1)", "x = x[:, 1:]"]),
    st.sampled_from(["x = x + x.mean(1, keepdim=True)", "x = x * x.sum(1, keepdim=True).sum(0, keepdim=True)"]),
    st.sampled_from(["x = x.cumsum(1)", "x = x[None].permute(1, 0, 2)[:, 0]", "x = torch.cat([x, x[:, :1]], 1)"]),
    st.sampled_from(["x = torch.where(x > 0, x, torch.zeros(1))", "x = x.softmax(1)", "x = torch.min(x, torch.tensor(2.0))"]),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@example(steps=["x = x.tanh()", "x = x + 1"])
@given(st.lists(STEPS, min_size=1, max_size=9))
def test_any_chain_keeps_its_values(steps: list[str]) -> None:
    task = program("; ".join([*steps, "return x"]), "torch.randn(7, 6)", "pass", "N = 2")
    graph = capture_once(task)
    simplified = simplify(graph)
    plain, simple = check(graph, task), check(simplified, task)
    torch.testing.assert_close(plain.results, simple.results, rtol=1e-9, atol=1e-9)
    # 1 + tanh(x) becomes three nodes, which take less time than the two
    instead_of_tanh = kinds(simplified)["sigmoid"] - kinds(graph)["sigmoid"]
    assert len(simplified.nodes) <= len(graph.nodes) + max(0, instead_of_tanh)
