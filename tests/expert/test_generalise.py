"""Sizes get names: after the program's own integers, with rules that hold at sizes never seen."""

from __future__ import annotations

import pytest

from egg.core.source import Task
from egg.expert.graph import Graph, Node, Origin, Value
from egg.expert.reading import capture as capturing
from egg.expert.reading.capture import capture
from egg.expert.reading.generalise import named_together
from egg.expert.sizes import Size, Symbol
from tests.expert.captured import check, program


def _shape(graph: Graph, op: str) -> list[str]:
    node = next(node for node in graph if node.op == op)
    return [str(size) for size in graph.values[node.outputs[0]].shape]


def test_sizes_are_named_after_the_integers_they_follow() -> None:
    task = program(
        "self.fc(x)", "torch.randn(batch_size, features)", "self.fc = nn.Linear(features, 2 * hidden)",
        "batch_size = 32\nfeatures = 256\nhidden = 128",
    )  # fmt: skip
    graph = capture(task)
    assert graph.symbols == {
        "batch_size": "x.shape[0]",
        "features": "x.shape[1]",
        "fc_weight_0": "self.fc.weight.shape[0]",
    }
    assert _shape(graph, "matmul") == ["batch_size", "fc_weight_0"]


def test_sizes_that_only_happen_to_be_equal_come_apart() -> None:
    task = program("x + 1", "torch.randn(rows, columns)", "pass", "rows = 64\ncolumns = 64")
    assert _shape(capture(task), "pointwise") == ["rows", "columns"]


def test_numbers_of_the_structure_stay_numbers() -> None:
    layers = "self.a = nn.Conv2d(3, 8, kernel)"
    task = program("self.a(x)", "torch.randn(N, 3, 32, 32)", layers, "N = 16\nkernel = 3")
    graph = capture(task)
    assert _shape(graph, "conv")[:2] == ["N", "8"]
    assert [str(size) for size in graph.value("a_weight").shape] == ["8", "3", "3", "3"]


def test_a_convolution_computes_its_sizes() -> None:
    task = program(
        "F.max_pool2d(self.a(x), 2)", "torch.randn(4, 3, height, width)", "self.a = nn.Conv2d(3, 8, 5, 3, 1)",
        "height = 64\nwidth = 48",
    )  # fmt: skip
    graph = capture(task)
    assert graph.symbols == {
        "batch_size": "x.shape[0]",
        "width": "x.shape[3]",
        "height": "x.shape[2]",
        "a_height": "height // 3",
        "a_width": "width // 3",
        "max_pool_height": "a_height // 2",
        "max_pool_width": "a_width // 2",
    }


def test_heads_are_parts_of_a_size_and_the_whole_is_their_multiple() -> None:
    task = program(
        "x.view(B, T, 4, C // 4).transpose(1, 2) * (C // 4) ** -0.5", "torch.randn(B, T, C)", "pass",
        "B, T, C = 8, 64, 128",
    )  # fmt: skip
    graph = capture(task)
    assert [str(s) for s in graph.value("x").shape] == ["B", "T", "C_by_4 * 4"]
    assert graph.symbols["C_by_4"] == "x.shape[2] // 4"
    assert graph.symbols["mul_scalar"] == "C_by_4 ** -0.5"
    check(graph, Task("other", task.source.replace("8, 64, 128", "3, 5, 24")))


def test_a_number_that_a_module_keeps_is_found_there() -> None:
    task = program(
        "x.view(B, self.heads, -1).sum(2)", "torch.randn(B, C)", "self.heads = heads",
        "B, C, heads = 8, 192, 16",
    )  # fmt: skip
    graph = capture(task)
    assert graph.symbols["heads"] == "self.heads"
    assert not graph.fixed
    check(graph, Task("other", task.source.replace("8, 192, 16", "3, 60, 12")))


def test_groups_divide_their_channels() -> None:
    task = program("self.a(x)", "torch.randn(N, C, 9)", "self.a = nn.GroupNorm(8, C)", "N, C = 4, 64")
    graph = capture(task)
    channels = graph.value("x").shape[1]
    assert str(channels) == "C_by_8 * 8"


def test_depthwise_groups_follow_the_channels() -> None:
    task = program(
        "self.a(x)", "torch.randn(N, C, 19)", "self.a = nn.Conv1d(C, C, 3, groups=C)", "N, C = 4, 64"
    )
    graph = capture(task)
    assert str(graph.nodes[0]["groups"]) == "C"


def test_sizes_that_must_fit_together_move_together() -> None:
    task = program("x @ y", "torch.randn(a, b), torch.randn(c, 8)", "pass", "a = 16\nb = 32\nc = 32", "x, y")
    graph = capture(task)
    assert not graph.fixed
    assert graph.value("x").shape[1] == graph.value("y").shape[0]


def test_a_size_without_a_rule_stays_a_number_and_is_told() -> None:
    forward = "for _ in range(T): x = x * 1.1\n        return x"
    task = program(forward, "torch.randn(B, C)", "pass", "B, C, T = 8, 32, 12")
    graph = capture(task)
    assert list(graph.fixed) == ["T"]
    assert set(graph.symbols) == {"B", "C"}


def test_without_integers_sizes_are_named_after_what_they_are() -> None:
    graph = capture(program("x * 2", "torch.randn(4, 5)", "pass", ""))
    assert graph.symbols == {"rows": "x.shape[0]", "x_1": "x.shape[1]"}
    assert _shape(graph, "pointwise") == ["rows", "x_1"]


def test_strides_of_arguments_are_named_too() -> None:
    task = program("x * 2", "torch.randn(N, M, K).transpose(0, 1)", "pass", "N, M, K = 8, 16, 32")
    graph = capture(task)
    assert [str(size) for size in graph.value("x").shape] == ["M", "N", "K"]
    assert [str(size) for size in graph.value("x").stride] == ["K", "K * M", "1"]


@pytest.mark.parametrize("room", ["", "whole"])
def test_what_is_lent_a_place_is_never_taken_for_dense(room: str) -> None:
    def at(rows: int, step: int) -> Graph:
        shape = (Size(rows), Size(8))
        x = Value("x", shape, "float32", (Size(8), Size(1)), Origin.INPUT, "x")
        y = Value("y", shape, "float32", (Size(step), Size(1)), room=room)
        return Graph({"x": x, "y": y}, (Node("pointwise", ("x",), ("y",), {"fn": "exp"}),), ("x",), ("y",))

    found = named_together([at(32, 23), at(64, 41)], {})
    assert (found is None) if room else (found is not None and found.value("y").contiguous)


def test_a_size_that_was_computed_from_numbers_goes_with_named_ones() -> None:
    tiles, batch = Size(1, (Symbol("tiles", (6,)),)), Size(2, (Symbol("batch", (4, 3, 5)),))
    assert (tiles * batch).values == (48, 36, 60)
    assert tiles.below(batch * 6)


@pytest.mark.parametrize(
    ("pairs", "symbol", "multiple"),
    [
        ("torch.arange(0, self.width, 2)", "-(-self.width // 2)", None),
        ("torch.arange(self.width // 2)", "self.width // 2", None),
        ("torch.arange(self.width).view(2, -1)[0]", "self.width // 2", ("self.width", "2")),
    ],
)
def test_a_part_of_a_number_that_is_kept_has_a_rule(
    pairs: str, symbol: str, multiple: tuple[str, str] | None
) -> None:
    """Pairs of a rotary embedding are counted, and no tensor has as many."""
    task = program(
        f"n = {pairs}; return torch.outer(x, 10.0 ** -(n / 64)).cos()",
        "torch.randn(tokens)", "self.width = width", "tokens = 64\nwidth = 48",
    )  # fmt: skip
    graph = capture(task)
    assert graph.symbols["width_by_2"] == symbol
    assert graph.exact == ({"width_by_2": multiple} if multiple else {})


def test_only_what_is_behind_a_number_without_a_rule_is_fixed() -> None:
    """It depends on two integers; the other three go on changing."""
    task = program(
        "y = self.fc(x); return y * math.log(self.fc.in_features * 3 + y.shape[2]) ** 0.3",
        "torch.randn(batch_size, tokens, wide)", "self.fc = nn.Linear(wide, narrow)",
        "batch_size = 8\ntokens = 64\nwide = 48\nnarrow = 40\nspare = 32",
    )  # fmt: skip
    graph = capture(task)
    assert _shape(graph, "matmul") == ["batch_size", "tokens", "40"]
    assert graph.fixed == {"wide": 48, "narrow": 40}


@pytest.mark.parametrize(
    ("forward", "symbol"),
    [
        ("x.norm() / x.numel() ** 0.5", "(columns * rows) ** -0.5"),
        ("x.sigmoid() * (1.0 / x.numel())", "1.0 / (columns * rows)"),
        ("x.exp() * -float(x.numel())", "-(columns * rows)"),
    ],
)
def test_a_number_that_is_computed_from_a_product_of_sizes_has_a_rule(forward: str, symbol: str) -> None:
    """No tensor has the product for a size: nothing but the number shows it."""
    task = program(forward, "torch.randn(rows, columns)", "pass", "rows = 64\ncolumns = 48")
    graph = capture(task)
    assert symbol in graph.symbols.values()
    assert graph.fixed == {}
    check(graph, task)


def test_other_numbers_of_layers_are_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count among the integers changes the program, as a forward without data shows already."""
    code = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width, tables):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(40, width) for _ in range(tables))
    def forward(self, x):
        return torch.cat([table(x[:, at]) for at, table in enumerate(self.tables)], 1) * 2
batch, width, tables = 32, 24, 9
def get_inputs():
    return [torch.randint(0, 40, (batch, tables))]
def get_init_inputs():
    return [width, tables]
"""
    traced: list[int] = []
    trace_of = capturing.trace
    monkeypatch.setattr(capturing, "trace", lambda *given: traced.append(1) or trace_of(*given))
    graph = capturing.capture(Task("tables", code))
    assert sum(node.op == "gather" for node in graph) == 9
    assert "batch" in graph.symbols
    assert len(traced) <= 6
