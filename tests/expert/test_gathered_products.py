"""Products of gathered rows become gathered rows of products, and change no value of any program."""

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

KNOBS = "N, E, C, D = 12, 48, 128, 64"
OTHERS = "N, E, C, D = 30, 26, 129, 72"
INPUTS = (
    "torch.randn(N, C), torch.randn(E, C), torch.randint(0, N, (E,)), torch.randint(0, N, (E,)), "
    "torch.randn(C, D), torch.randn(3 * C, D)"
)
ARGUMENTS = "x, e, s, r, w, v"

TAKEN = {
    "rows alone": ("x.index_select(0, s) @ w", 1, 1),
    "with a bias": ("F.linear(x.index_select(0, s), w.T, v[0])", 1, 1),
    "an embedding": ("F.embedding(s, x) @ w", 1, 1),
    "an embedding of many": ("F.embedding(s.view(2, -1), x) @ w", 1, 1),
    "before the rest": ("torch.cat([x[s], x[r], e], dim=1) @ v", 3, 2),
    "behind the rest": ("torch.cat([e, x.index_select(0, s), x.index_select(0, r)], dim=1) @ v", 3, 2),
    "around the rest": ("torch.cat([x.index_select(0, s), e, x.index_select(0, r)], dim=1) @ v", 3, 2),
    "nothing else": ("torch.addmm(v[0], torch.cat([F.embedding(s, x), x[r]], 1), v[:2 * C])", 2, 2),
    "a batch": ("x.view(2, -1, C).index_select(1, s % 6) @ w", 1, 1),
}  # fmt: skip
KEPT = {
    "few rows": "x.index_select(0, s[:20]) @ w",
    "narrow rows": "x[:, :64].index_select(0, s) @ w[:64]",
    "a wide result": "x.index_select(0, s) @ torch.cat([w] * 9, dim=1)",
    "columns": "x.T.index_select(1, s).T @ w",
    "the rest in two pieces": "torch.cat([e, x.index_select(0, s), e], dim=1) @ v",
    "rows that are stored": "y = torch.cat([x.index_select(0, s), e, e], dim=1); return y, y @ v",
}


def _simplified(forward: str) -> Graph:
    """The same at other sizes."""
    task = small(forward, INPUTS, "pass", KNOBS, ARGUMENTS)
    graph = simplify(capture(task))
    check(graph, task)
    check(graph, resized(task, KNOBS, OTHERS))
    return graph


def _rows_of_products(graph: Graph) -> int:
    products = {node.output for node in graph if node.op == "matmul"}
    return sum(node.op == "gather" and node.inputs[0] in products for node in graph)


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken_from_few_rows_is_multiplied_before(name: str) -> None:
    forward, products, gathers = TAKEN[name]
    graph = _simplified(forward)
    assert (kinds(graph)["matmul"], _rows_of_products(graph)) == (products, gathers)


@pytest.mark.parametrize("name", KEPT)
def test_other_products_stay(name: str) -> None:
    assert _rows_of_products(_simplified(KEPT[name])) == 0


EDGES = """
y = F.silu(self.first(torch.cat([e, x.index_select(0, s), x[r]], dim=-1)))
return self.second(y)
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_gathered_in_the_epilogue_of_what_is_left(dtype: torch.dtype) -> None:
    """The layer on the edges of a graph: no pass beside its products; 16-bit terms are kept in fp32."""
    name = str(dtype).removeprefix("torch.")
    inputs = ";".join(
        (
            f"x = torch.randn(N, C, dtype=torch.{name})",
            f"e = torch.randn(E, C, dtype=torch.{name})",
            "s = torch.randint(0, N, (E,))",
            "r = torch.randint(0, N, (E,))",
        )
    )
    layers = f"self.first = nn.Linear(3 * C, 32)\nself.second = nn.Linear(32, 32)\nself.to(torch.{name})"
    source = program(EDGES, inputs, layers, N=12, E=48, C=128)
    text = written(source)
    assert text.count("tl.dot(") >= 4
    assert "gather_matmul_silu_kernel" in text
    draw = torch.Generator().manual_seed(3)
    made = [torch.randn(shape, generator=draw).to(dtype) for shape in ((17, 128), (40, 128))]
    places = [torch.randint(0, 17, (40,), generator=draw) for _ in range(2)]
    check_file(source, (), [*made, *places], digits=2e-5 if dtype == torch.float32 else 2e-2)
