"""Broadcast products that are summed become products of matrices, and change no value of any program."""

# ruff: noqa: E501 (tables of programs, one a line)

from __future__ import annotations

import pytest
import torch

from egg.expert.algebra.simplify import simplify
from egg.expert.graph import Graph
from egg.expert.reading.capture import capture
from tests.expert.captured import check, kinds, resized
from tests.expert.captured import program as small
from tests.expert.elsewhere import check as check_file
from tests.expert.elsewhere import program, written

KNOBS = "B, C, H, W = 3, 16, 24, 20"
OTHERS = "B, C, H, W = 2, 17, 19, 23"
X = "torch.randn(B, C, H)"

PRODUCTS = {
    "rows by rows": "(x[:, :, None] * (x + 1)[:, None]).sum(-1)",
    "columns by columns": "(x[..., None] * (x + 1)[:, :, None]).sum(1)",
    "kept dimensions": "(x[:, :, None] * (x + 1)[:, None]).sum(-1, keepdim=True).exp()",
    "columns stand before rows": "(x[:, None] * (x + 1)[:, :, None]).sum(3)",
    "several dimensions are summed": "(x.permute(1, 0, 2)[:, None] * (x + 1).permute(1, 0, 2)[None]).sum((2, 3))",
    "the batch stands between": "(x.permute(1, 0, 2)[:, None] * (x + 1).permute(1, 0, 2)[None]).sum(-1)",
    "an operand without the batch": "(x[:, :, None] * (x[0] + 1)).sum(-1)",
}


def _late(forward: str) -> Graph:
    """Simplified, and the same at other sizes."""
    task = small(forward, X, "pass", KNOBS)
    graph = simplify(capture(task))
    check(graph, task)
    check(graph, resized(task, KNOBS, OTHERS))
    return graph


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_summed_broadcast_product_is_a_product_of_matrices(name: str) -> None:
    found = kinds(_late(PRODUCTS[name]))
    assert (found["matmul"], found["mul"], found["sum"]) == (1, 0, 0)


@pytest.mark.parametrize(
    "forward",
    [
        "(x[:, :4, None] * (x + 1)[:, None]).sum(-1)",
        "(x[:, :, None, :4] * (x + 1)[:, None, :, :4]).sum(-1)",
        "(x[:, :, None] * (x + 1)[:, None]).sum(1)",
        "(x[:, :, None] * (x + 1)[:, None]).sum((1, 3))",
        "(x * (x + 1)).sum(-1)",
        "(x[:, :, None] * (x + 1)[:, None]).mean(-1)",
    ],
    ids=["few rows", "short sums", "one operand is summed", "rows are summed too", "no rows", "means"],
)
def test_other_sums_stay(forward: str) -> None:
    assert kinds(_late(forward))["matmul"] == 0


def test_a_broadcast_product_that_is_read_elsewhere_stays() -> None:
    forward = "y = x[:, :, None] * (x + 1)[:, None]; return y.sum(-1), y"
    assert kinds(_late(forward))["matmul"] == 0


def test_what_repeats_itself_is_multiplied_once() -> None:
    """Heads that share keys: the product has no dimension for them, the result is repeated."""
    heads = "x[:, :, None].expand(B, C, 2, H).reshape(B, C, 2, H)"
    graph = _late(f"({heads}[:, :, None] * ({heads} + 1)[:, None]).sum(-1)")
    assert kinds(graph)["matmul"] == 1  # one operand is computed from the repeated values
    forward = f"y = {heads}; z = (x * 2)[:, :, None].expand(B, C, 2, H).reshape(B, C, 2, H)"
    graph = _late(f"{forward}; return (y[:, :, None] * z[:, None]).sum(-1)")
    (product,) = (node for node in graph if node.op == "matmul")
    assert graph.result(product).elements.value == 3 * 16 * 16


SCAN = """
n, heads = 32, x.shape[2]
b = b.repeat_interleave(heads, dim=2, output_size=heads).reshape(B, -1, n, heads, D)
c = c.repeat_interleave(heads, dim=2, output_size=heads).reshape(B, -1, n, heads, D)
x = x.reshape(B, -1, n, heads, P)
a = a.reshape(B, -1, n, heads).permute(0, 3, 1, 2)
below = torch.tril(torch.ones(n, n, device=x.device, dtype=torch.bool), diagonal=-1)
total = torch.cumsum(a[..., None].expand(*a.shape, n).masked_fill(~below, 0), dim=-2)
mask = torch.tril(torch.ones(n, n, device=x.device, dtype=torch.bool), diagonal=0)
decay = torch.exp(total.masked_fill(~mask, -torch.inf))
scores = (c[:, :, :, None] * b[:, :, None]).sum(-1)
weights = (scores[..., None] * decay.permute(0, 2, 3, 4, 1)[..., None]).sum(-1)
near = (weights[..., None] * x[:, :, None]).sum(3)
states = (b[..., None, :] * x[..., None]).sum(2)
far = (c[..., None, :] * states[:, :, None]).sum(-1)
return (near + far).reshape(B, -1, heads * P)
"""


def test_a_scan_over_chunks_is_products_and_a_cumulative_sum() -> None:
    """The scan of a state-space layer with its products spelled as broadcasts: the file has a kernel for each
    product, and is right in the interpreter."""
    inputs = (
        "x = torch.randn(B, L, N, P);a = -torch.rand(B, L, N);"
        "b = torch.randn(B, L, 1, D);c = torch.randn(B, L, 1, D)"
    )
    source = program(SCAN, inputs, "pass", B=2, L=64, N=2, P=16, D=16)
    assert written(source).count("tl.dot(") >= 4
    draw = torch.Generator().manual_seed(3)
    made = [torch.randn(shape, generator=draw) for shape in ((2, 64, 2, 16), (2, 64, 2), (2, 64, 1, 16))]
    again = torch.randn((2, 64, 1, 16), generator=draw)
    check_file(source, (), [made[0], -made[1].abs(), made[2], again])
