"""The first elements of rows in order: what is captured, and the kernels that keep rows in registers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.task.program import Program, outputs_of
from egg.expert.algebra.simplify import simplify
from egg.expert.fusion.choices import Structure
from egg.expert.fusion.structure import structured
from egg.expert.parts import Target
from egg.expert.reading.capture import capture_once
from tests.expert import harness
from tests.expert.captured import CPU, program
from tests.expert.checking import H200
from tests.ledgers import INTERPRETED

ROWS = "torch.randn(37, 50)"
SELECTED: dict[str, tuple[str, str, int]] = {
    "values and places": ("x.topk(5)", ROWS, 1),
    "the smallest": ("x.topk(3, largest=False)", ROWS, 1),
    "one": ("x.topk(1, dim=1)", ROWS, 1),
    "along the first dimension": ("x.topk(4, dim=0)", ROWS, 1),
    "along a middle dimension": ("x.topk(2, dim=1)", "torch.randn(3, 20, 6)", 1),
    "in 16 bits": ("x.topk(6)", "torch.randn(9, 33).bfloat16()", 1),
    "of whole numbers": ("x.topk(6)", "torch.randperm(9 * 33, dtype=torch.int32).view(9, 33)", 1),
    "many": ("x.topk(40)", "torch.randn(5, 70)", 1),
    "many of the smallest, nearly all": ("x.topk(47, largest=False)", ROWS, 1),
    "a single row": ("x.topk(8)", "torch.randn(200)", 1),
    "sorted": ("x.sort(dim=-1, descending=True)", ROWS, 1),
    "sorted from below": ("x.argsort(dim=0)", "torch.randn(21, 6)", 1),
    "weights of experts": (
        "w, i = x.softmax(-1).topk(4); return w / w.sum(-1, keepdim=True), i.int()",
        "torch.randn(70, 16)",
        1,
    ),
    "softmax over the chosen": (
        "v, i = x.topk(4); return v.softmax(-1) * 2.5, i + 1",
        "torch.randn(70, 16)",
        1,
    ),
    "scores without their bias": (
        "s = x.sigmoid(); i = (s + y).topk(6).indices; w = s.gather(1, i); return w / w.sum(1, True), i",
        "torch.randn(20, 32), torch.randn(32)",
        1,
    ),
    "dense weights": (
        "best = x.topk(4).values; lost = x < best[:, -1:]; "
        "return best.softmax(-1), x.masked_fill(lost, -torch.inf).softmax(-1)",
        "torch.randn(37, 50)",
        1,
    ),
    "scattered weights": (
        "w, i = x.softmax(-1).topk(2); return torch.zeros_like(x).scatter(1, i, w)",
        "torch.randn(20, 16)",
        1,
    ),
    "rows of a table": ("i = x.topk(3).indices; return y[i]", "torch.randn(10, 24), torch.randn(24, 8)", 2),
    "of long rows": ("x.topk(3)", "torch.randn(2, 10007)", 2),
    "of long rows without a rest": (
        "(x * 2).topk(4, largest=False).values.softmax(-1)",
        "torch.randn(2, 9000)",
        2,
    ),
    "more of long rows": ("x.topk(12, dim=0)", "torch.randn(9000, 2)", 2),
    "the nucleus of a row": (
        "p = x.softmax(-1).sort(-1, descending=True).values; return p, (p.cumsum(-1) - p < 0.8).sum(-1)",
        ROWS,
        1,
    ),
}
"""Forward, inputs, and how many kernels it is."""


def structure_of(forward: str, inputs: str) -> tuple[Structure, list[Any], list[torch.Tensor]]:
    """The program's kernels, its inputs, and what PyTorch computes of them."""
    arguments = "x, y" if inputs.count("torch.randn") > 1 else "x"
    task = program(forward, inputs, arguments=arguments)
    structure = structured(simplify(capture_once(task)), Target(H200))
    with Program.load(task) as loaded:
        module = loaded.build(0, CPU, Precision.MATCH)
        given = loaded.inputs(0, CPU, Precision.MATCH)
        wanted = [t for _, t in outputs_of(loaded.run(module, given)) if isinstance(t, torch.Tensor)]
    return structure, given, wanted


@pytest.mark.parametrize("name", SELECTED)
def test_rows_are_ordered_in_registers(name: str) -> None:
    forward, inputs, kernels = SELECTED[name]
    structure, given, wanted = structure_of(forward, inputs)
    assert not structure.left_to_pytorch
    assert sum(len(part.launches) for part in structure.parts) == kernels

    def compare() -> None:
        for got, want in zip(harness.run(structure.graph, structure.parts, given, {}), wanted, strict=True):
            assert got.dtype == want.dtype
            if want.dtype == torch.int64 and "16 bits" in name:
                continue  # any of equal elements is right
            torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-6)

    INTERPRETED.once(compare, harness.source(structure.graph, structure.parts))


@pytest.mark.parametrize("forward", ["x.topk(6)", "x.topk(6, largest=False)", "x.topk(40)", "x.sort(-1)"])
def test_equal_elements_come_in_their_order_and_nan_is_above_all_numbers(forward: str) -> None:
    structure, _, _ = structure_of(forward, ROWS)
    x = torch.randint(-2, 3, (37, 50)).float()
    x[:, 7], x[3, 11], x[5], x[6] = -0.0, math.nan, -math.inf, math.nan
    x[8, 40:] = math.inf
    got = harness.run(structure.graph, structure.parts, [x], {})
    falling = "largest=False" not in forward and "sort" not in forward
    order = torch.sort(x, dim=-1, descending=falling, stable=True)
    count = got[0].shape[1]
    torch.testing.assert_close(got[0], order.values[:, :count], equal_nan=True)
    torch.testing.assert_close(got[1], order.indices[:, :count])


def test_places_that_nothing_reads_are_not_stored() -> None:
    structure, _, _ = structure_of("x.topk(4).values", ROWS)
    (part,) = structure.parts
    (kernel,) = [text for name, text in part.kernels.items() if name in part.launched]
    assert kernel.count("tl.store") == 1


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("x.topk(4)", "torch.randn(9, 33).double()"),
        ("x.topk(3)", "torch.arange(99).view(9, 11)"),
        ("x.topk(40, dim=0)", "torch.randn(5000, 2)"),
    ],
)
def test_what_has_no_keys_and_many_of_long_rows_are_left_to_pytorch(forward: str, inputs: str) -> None:
    structure, given, wanted = structure_of(forward, inputs)
    assert structure.left_to_pytorch
    for got, want in zip(harness.run(structure.graph, structure.parts, given, {}), wanted, strict=True):
        torch.testing.assert_close(got, want)
