"""Bags of embeddings as gathers with sums, and lists of numbers as literals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from egg.core.source import Task
from egg.expert.assemble import graph_of
from egg.expert.graph import LITERAL
from tests.expert.elsewhere import check, normal, program, run, written

BAGS = "self.bags = nn.EmbeddingBag(rows, c, mode='{mode}')"
PLACES = "places = torch.randint(0, rows, (n, k))"
SIZES = {"n": 64, "rows": 500, "c": 64, "k": 7}


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_of_one_size_are_gathered_and_summed_in_one_kernel(mode: str) -> None:
    layers = BAGS.format(mode=mode)
    source = program("return torch.relu(self.bags(places))", PLACES, layers, "rows, c", **SIZES)
    text = written(source)
    assert "embedding_bag" not in text[text.index("class ModelNew") :]
    assert text.count("@triton.jit") == 1
    places = torch.randint(0, 30, (5, 3))
    made, wanted = run(source, [30, 6], [places])
    torch.testing.assert_close(made[0].double(), wanted[0])


MANY = {
    "a bag at once": ("return self.bags(places)", 20, "BLOCK_R=triton.next_power_of_2"),
    "a bag in blocks": ("return self.bags(places) * 2", 50, "BLOCK_R = 16"),
    "neighbours": ("return self.bags.weight[places].mean(1)", 12, "BLOCK_R=triton.next_power_of_2"),
    "the largest": ("return self.bags.weight[places].amax(1)", 20, "BLOCK_R=triton.next_power_of_2"),
}


@pytest.mark.parametrize("name", MANY)
def test_a_thread_has_whole_columns_of_many_bags(name: str) -> None:
    forward, size, block = MANY[name]
    sizes = {"n": 4096, "rows": 10000, "c": 128, "k": size}
    source = program(forward, PLACES, BAGS.format(mode="sum"), "rows, c", **sizes)
    text = written(source)
    assert "BLOCK_X = 128" in text
    assert "NUM_WARPS = 1" in text
    assert "col_mask & row_mask" in text or "row_mask & col_mask" in text, "nothing is loaded beyond a bag"
    assert block in text
    for places, width in ((torch.randint(0, 30, (5, size)), 128), (torch.randint(0, 9, (3, size + 7)), 50)):
        made, wanted = run(source, [30, width], [places])
        torch.testing.assert_close(made[0].double(), wanted[0], rtol=1e-5, atol=1e-5)


def test_warps_share_each_of_few_bags() -> None:
    sizes = {"n": 64, "rows": 10000, "c": 128, "k": 20}
    text = written(program("return self.bags(places)", PLACES, BAGS.format(mode="sum"), "rows, c", **sizes))
    assert "NUM_WARPS = 8" in text


def test_pairs_of_the_features_of_many_samples_are_a_warp_each() -> None:
    """Features are tensors of their own, and no stage keeps a tile of each."""
    inputs = "; ".join(f"x{at} = torch.randn(n, c)" for at in range(9))
    forward = f"x = torch.stack([{', '.join(f'x{at}' for at in range(9))}], 1)\nreturn x @ x.transpose(1, 2)"
    text = written(source := program(forward, inputs, n=4096, c=128))
    for constant in ("BLOCK_M = 16", "BLOCK_N = 16", "NUM_WARPS = 1", "NUM_STAGES = 1"):
        assert constant in text
    made, wanted = run(source, [], [normal(3, 100) * at for at in range(1, 10)])
    torch.testing.assert_close(made[0].double(), wanted[0], rtol=1e-4, atol=1e-3)
    few = written(program(forward, inputs, n=64, c=128))
    assert "NUM_STAGES = 1" not in few


APART = {
    "a maximum": ("self.bags = nn.EmbeddingBag(rows, c, mode='max')", PLACES, "self.bags(places)"),
    "sizes of their own": (
        BAGS.format(mode="sum"),
        "places = torch.randint(0, rows, (n,)); starts = torch.arange(0, n, 4)",
        "self.bags(places, starts)",
    ),
}


@pytest.mark.parametrize("name", APART)
def test_other_bags_are_left_to_the_library(name: str) -> None:
    layers, given, call = APART[name]
    source = program(f"return torch.relu({call})", given, layers, "rows, c", **SIZES)
    nodes = graph_of(Task("program", source)).nodes
    assert any("embedding_bag" in str(node.get("target", "")) for node in nodes)


def targets(count: int) -> list[Any]:
    forward = f"listed = torch.tensor(list(range({count}))[::-1])\nreturn x[:, listed] * self.scale"
    layers = "self.scale = nn.Parameter(torch.full((1,), 2.0))"
    source = program(forward, "x = torch.randn(n, c)", layers, n=32, c=64)
    assert "functools.cache" not in written(source), "a module keeps its tensors itself"
    made, wanted = run(source, [], [normal(5, 64)])
    torch.testing.assert_close(made[0].double(), wanted[0])
    return [node.get("target") for node in graph_of(Task("program", source)).nodes]


def test_many_numbers_are_a_literal_and_few_stand_in_the_kernel() -> None:
    assert targets(20).count(LITERAL) == 1
    assert LITERAL not in targets(4)


@pytest.mark.parametrize("fn", ["sum", "mean"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_few_short_rows_are_added_where_they_are_read(fn: str, dtype: str) -> None:
    """Columns along the lanes, and a load of the index for each row of the tile."""
    source = program(
        f"return self.table(torch.stack((x, x // 2, 39 - x), -1)).{fn}(-2) * 2",
        "x = torch.randint(0, 40, (batch, length))",
        f"self.table = nn.Embedding(40, width, dtype=torch.{dtype})", "width", batch=64, length=24, width=32,
    )  # fmt: skip
    kernel = written(source).split("@triton.jit")[1].split("tl.store")[0]
    assert "tl.sum(" not in kernel
    places = [load for load in kernel.split("tl.load(") if load.startswith("x_ptr")]
    assert places, kernel
    assert all("col" not in load.split(",")[0] for load in places), kernel
    digits = 2e-5 if dtype == "float32" else 2e-3
    check(source, [32], [torch.arange(30).reshape(3, 10)], digits)


def test_short_rows_at_places_beside_each_other_are_added_one_after_the_other() -> None:
    source = program(
        "return self.table(x).mean(-2) * 2", "x = torch.randint(0, 40, (batch, length, n))",
        "self.table = nn.Embedding(40, width)", "width", batch=64, length=2400, n=3, width=32,
    )  # fmt: skip
    assert "BLOCK_R=1," in written(source).replace("GATHER_MEAN_MUL_BLOCK_R", "1"), written(source)
    check(source, [32], [torch.arange(90).reshape(3, 10, 3) % 40])
