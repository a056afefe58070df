"""Captures that agree by accident: sizes that broadcasting hides, parts that happen to be exact, slices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.core.source import Task
from egg.evaluator.task.knobs import Knob, find_knobs
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.graph import Graph
from egg.expert.moves import Recipe
from egg.expert.reading.capture import capture, capture_once
from egg.expert.reading.generalise import named_together
from egg.expert.reading.turning import WAYS, Move, moved
from egg.hardware.gpus import resolve
from tests.expert.captured import check, program, resized
from tests.expert.scenarios import run, source


def _shapes(graph: Graph) -> dict[str, list[str]]:
    values = [graph.value(name) for name in graph.arguments if name is not None]
    return {value.path: [str(size) for size in value.shape] for value in values}


def _knob(value: int) -> Knob:
    (knob,) = find_knobs(f"length = {value}")
    return knob


@pytest.mark.parametrize("value", [2, 3, 4, 8])
def test_no_integer_moves_to_one(value: int) -> None:
    for way in WAYS:
        for variant in range(3):
            assert min(moved([_knob(value)], {0: Move(way)}, variant)) > 1


# -- broadcasting ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "inputs", "others"),
    [
        ("a * b", "torch.randn(4), torch.randn(4)", "torch.randn(4), torch.randn(1)"),
        ("torch.where(a > 0, a, b)", "torch.randn(4), torch.randn(4)", "torch.randn(5), torch.randn(1)"),
        ("a @ b", "torch.randn(3, 2, 2), torch.randn(3, 2, 2)", "torch.randn(3, 2, 2), torch.randn(1, 2, 2)"),
    ],
)
def test_a_size_that_is_repeated_at_one_capture_only_is_no_size(
    forward: str, inputs: str, others: str
) -> None:
    task = program(forward, inputs, arguments="a, b")
    graphs = [capture_once(task), capture_once(resized(task, inputs, others))]
    assert named_together(graphs, {}) is None
    assert named_together([graphs[0], graphs[0]], {}) is not None


def test_operands_of_two_rows_move_together_or_not_at_all() -> None:
    inputs = "torch.randn(2, length, 12), torch.randn(rows, 2, length)"
    task = program(
        "return y - self.fc(x)", inputs, "self.fc = nn.Linear(12, 2)", "length = 2\nrows = 2", "x, y"
    )
    shapes = _shapes(capture(task))
    assert shapes["y"][:2] == shapes["x"][:2]
    assert shapes["y"][2] == "2"


def test_a_size_that_only_broadcasting_takes_at_one_stays() -> None:
    task = program(
        "torch.maximum(x.reshape(*x.shape[:-1], 2, -1), y)",
        "torch.randn(4, 4, 4), torch.randn(rows)",
        knobs="rows = 2",
        arguments="x, y",
    )
    assert _shapes(capture(task))["y"] == ["2"]


def test_chunks_that_broadcast_at_one_other_size_are_halves() -> None:
    forward = "left, right = x.chunk(2, dim=0); return left * torch.sigmoid(right)"
    task = program(forward, "torch.randn(4, 16)", knobs="")
    graph = capture(task)
    assert _shapes(graph)["x"][0] == "rows_by_2 * 2"
    check(graph, resized(task, "torch.randn(4, 16)", "torch.randn(10, 3)"))


# -- parts of what is computed ---------------------------------------------------------------------------

JOINED = "torch.cat([x, y])"


def test_half_of_a_sum_is_rounded() -> None:
    inputs = "torch.randn(B, 3), torch.randn(B, 3)"
    task = program(f"x = {JOINED}; return x, x[: x.shape[0] // 2]", inputs, knobs="B = 8", arguments="x, y")
    check(capture(task), resized(task, inputs, "torch.randn(1, 3), torch.randn(4, 3)"))


def test_an_exact_part_of_a_sum_is_demanded() -> None:
    inputs = "torch.randn(8, 3), torch.randn(10, 3)"
    task = program(f"{JOINED} + 1", inputs, knobs="", arguments="x, y")
    graph = graph_of(task)
    a, b = (graph.value(str(name)).shape[0].code() for name in graph.arguments)
    sums = {name: text for name, text in graph.symbols.items() if text == f"{a} + {b}"}
    halved = replace(graph, exact={name: (text, "2") for name, text in sums.items()})
    run(
        kernel_file(task, halved, Recipe(), resolve("H200")).source,
        task,
        f"""
theirs, ours = made()
alike(theirs, ours, torch.rand(3, 3), torch.rand(5, 3))
raises(ValueError, "{a} + {b} is 5, and these kernels are for a multiple of 2", ours, torch.rand(1, 3),
       torch.rand(4, 3))
""",
    )


# -- slices ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "least"),
    [
        ("torch.relu(x[1:]) + 1", 2),
        ("x[:4] + 1", 4),
        ("x[-3:] * 2", 3),
        ("x[2:][1:].sum(0)", 4),
        ("x[: x.shape[0] // 2].sum(0)", 2),
        ("x * 2", 1),
    ],
)
def test_no_slice_is_empty_or_reaches_too_far(forward: str, least: int) -> None:
    graph = capture(program(forward, "torch.randn(9, 16)", knobs=""))
    (rows, _) = _shapes(graph)["x"]
    assert graph.usage.least.get(rows, 1) == least


def test_a_slice_of_a_sum_is_asked_for_itself() -> None:
    inputs = "torch.randn(8, 3), torch.randn(10, 3)"
    task = program(f"{JOINED}[3:].sum(0)", inputs, knobs="", arguments="x, y")
    run(
        source(task),
        task,
        """
theirs, ours = made()
alike(theirs, ours, torch.rand(1, 3), torch.rand(3, 3))
raises(ValueError, "is 0, and these kernels are for 1 or more", ours, torch.rand(1, 3), torch.rand(2, 3))
""",
    )


def test_a_slice_of_a_table_is_as_long_as_the_table_at_most() -> None:
    layers = 'self.register_buffer("table", torch.randn(100, 3))'
    task = program("return x * 2, self.table[: x.shape[1]] + 1", "torch.randn(2, 6)", layers, "")
    run(
        source(task),
        task,
        """
theirs, ours = made()
alike(theirs, ours, torch.rand(2, 100))
raises(ValueError, "is 101, and these kernels are for at most 100", ours, torch.rand(2, 101))
""",
    )


def test_a_target_for_every_row_is_one_size() -> None:
    task = program(
        'F.cross_entropy(x, y, ignore_index=-100, reduction="none")',
        "torch.randn(16, 12), torch.randint(0, 12, (16,))",
        knobs="",
        arguments="x, y",
    )
    shapes = _shapes(capture(task))
    assert shapes["y"] == shapes["x"][:1] != ["16"]


# -- constructors ----------------------------------------------------------------------------------------


def test_a_model_without_a_constructor_has_no_arguments() -> None:
    task = program("x * 2", "torch.randn(4, 3)", knobs="")
    head, rest = task.source.split("    def __init__(self):")
    bare = Task("bare", head + rest[rest.index("    def forward") :])
    assert "__init__" not in bare.source
    assert capture(bare).usage.arguments == ()
    assert "class ModelNew" in source(bare)


ROWS = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x[::2], 0)


def get_inputs():
    return [torch.randn(7, 16)]


def get_init_inputs():
    return []
"""


def test_every_second_row_is_rounded_up_at_sizes_of_either_parity() -> None:
    symbols = capture(Task("rows", ROWS)).symbols
    (formula,) = [text for text in symbols.values() if "//" in text]
    rows = next(name for name, text in symbols.items() if text == "x.shape[0]")
    assert [eval(formula, {}, {rows: n}) for n in (1, 6, 7, 8)] == [1, 3, 4, 4]
