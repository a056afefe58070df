"""Pools behind convolutions, computed where the sums are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from egg.expert.graph import Node
from egg.expert.parts import Group, Unfit
from egg.expert.patterns.convolution.write import write
from tests.expert import harness
from tests.expert.convolutions import Case, within

SMALL = {"BLOCK_P": 32, "BLOCK_O": 16, "BLOCK_K": 16, "grade": "fp32"}
EXACT = 3e-7
CASES = (
    Case("largest", 2, 5, 7, (9, 11), (3, 3), padding=1, tail=("scale", "max_pool")),
    Case("mean_of_residual", 2, 5, 7, (8, 7), (3, 3), 2, 1, tail=("residual", "avg_pool", "relu")),
    Case("line", 2, 3, 5, (19,), (3,), 2, 1, 2, tail=("max_pool",)),
    Case("twice", 2, 3, 5, (13, 11), (3, 3), tail=("relu", "max_pool", "avg_pool")),
    Case("behind_softmax", 1, 2, 5, (4, 5, 3), (2, 2, 2), padding=1, tail=("softmax", "max_pool")),
    Case("before_mean", 1, 3, 5, (7, 8), (3, 3), tail=("max_pool", "mean")),
    Case("behind_minimum", 2, 3, 5, (7, 8), (1, 1), tail=("min_kept", "max_pool")),
    Case("one_channel", 2, 4, 1, (7, 6), (3, 3), tail=("avg_pool",)),
    Case("grouped", 2, 4, 6, (7, 6), (3, 3), groups=2, tail=("max_pool",)),
)
EVERY = ("packed", "direct", "window")
MODES = {
    "largest": EVERY, "mean_of_residual": ("packed",), "line": ("direct",), "twice": EVERY,
    "behind_softmax": ("window",), "before_mean": ("direct",), "behind_minimum": ("direct",),
    "one_channel": ("packed", "window"), "grouped": ("packed", "direct"), "mean": EVERY, "sum": ("direct",),
    "one_channel_sum": ("window",), "pooled_mean": ("packed", "window"), "grouped_mean": ("packed",),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_right_at_other_sizes(case: Case) -> None:
    for mode in MODES[case.name]:
        written = replace(case, settings={**SMALL, "mode": mode})
        within(EXACT, written, case.larger())


def test_only_the_result_of_the_pool_is_written() -> None:
    text = CASES[0].source()
    assert text.count("tl.store(max_pool") == 1
    assert "out_height // 2" in text
    assert " conv = torch.empty" not in text


def test_a_nan_is_the_largest() -> None:
    case = replace(CASES[0], settings={**SMALL, "mode": "direct", "grade": "ieee"}, infinite=True)
    given = case.tensors()
    given["x"].view(-1)[5] = float("nan")
    right = case.expected(given)
    parameters = {"conv.weight": given["weight"], "conv.bias": given["bias"], "scale": given["scale"]}
    (found,) = harness.execute(case.source(), [given["x"]], parameters)
    assert bool(torch.equal(found.isnan(), right.isnan()))
    assert bool(right.isnan().any())


@pytest.mark.parametrize(
    "how",
    [
        {"kernel": (3, 3), "stride": (2, 2)},
        {"kernel": (3, 3), "stride": (3, 3)},
        {"padding": (1, 1)},
        {"ceil": True},
    ],
)
def test_windows_that_are_no_columns_of_a_tile(how: dict[str, object]) -> None:
    graph, group = CASES[0].graph()
    *others, pool = group.nodes
    changed = Node("pool", pool.inputs, pool.outputs, {**pool.attributes, **how})
    nodes = (*others, changed)
    with pytest.raises(Unfit):
        write(graph.rebuilt(nodes), Group(group.name, nodes, group.pattern), CASES[0].terms())


def test_transposed_ones_with_a_stride_are_left_out() -> None:
    with pytest.raises(Unfit):
        Case("turned", 2, 5, 7, (6, 5), (3, 3), 2, 1, transposed=True, tail=("max_pool",)).part()


SUMS = (
    Case("mean", 2, 3, 5, (11, 16), (3, 3), tail=("relu", "space_mean", "scale")),
    Case("sum", 1, 3, 5, (9, 14), (3, 3), padding=1, tail=("scale", "space_sum")),
    Case("one_channel_sum", 2, 3, 1, (127,), (3,), tail=("space_sum",)),
    Case("pooled_mean", 2, 3, 5, (17, 17), (2, 2), tail=("max_pool", "space_mean")),
    Case("grouped_mean", 2, 4, 6, (11, 16), (3, 3), groups=2, tail=("space_mean",)),
)


@pytest.mark.parametrize("case", SUMS, ids=str)
def test_sums_over_space(case: Case) -> None:
    for mode in MODES[case.name]:
        written = replace(case, settings={**SMALL, "mode": mode})
        within(EXACT, written, case.larger())


def test_small_images_have_no_tiles_of_their_own() -> None:
    with pytest.raises(Unfit, match="49 positions"):
        Case("small", 2, 3, 5, (7, 7), (1, 1), tail=("space_mean",)).part()
