"""Rows joined by place: filed under their places, gathered there, with what makes them and what follows."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.offline import capture
from egg.evaluator.task.program import Program, outputs_of
from egg.expert.algebra.simplify import simplify
from egg.expert.cost import Machine
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.structure import structured
from egg.expert.moves import Recipe, Without
from egg.expert.parts import Target
from egg.expert.patterns import PATTERNS
from egg.expert.reading.capture import capture_once
from tests.expert import harness
from tests.expert.captured import CPU, program
from tests.expert.checking import H200
from tests.expert.compiling import module_of
from tests.ledgers import COMPILED, INTERPRETED

SIZES = "E, N, W = 37, 11, 20"
EDGES = "torch.randn(E, W), torch.randint(0, N, (E,))"
GRAPH = "torch.randn(N, W), torch.randint(0, N, (2, E)), torch.randn(E)"
ROWS = "i[:, None].expand(E, W)"
ZEROS = "torch.zeros(N, W)"
LISTED = Target(H200, {"lists": True, "NODES": 2, "ROWS": 4, "BLOCK_F": 16, "BLOCK": 16, "PLACES": 4})
"""Small tiles, so that every loop and mask of the kernels is met at these sizes."""
SOFTMAX = (
    "s, d = i; score = (x[s] * x[d]).view(E, 4, 5).sum(-1); at = d[:, None].expand(E, 4)"
    "; top = torch.full((N, 4), -torch.inf).scatter_reduce(0, at, score, 'amax')"
    "; w = (score - top[d]).exp(); total = torch.zeros(N, 4).scatter_add(0, at, w)"
    "; w = w / (total[d] + 1e-16)"
)
JOINED: dict[str, tuple[str, str]] = {
    "index_add": (f"{ZEROS}.index_add(0, i, x.relu(), alpha=2)", EDGES),
    "index_add onto a tensor": ("y.index_add(0, i, x)", f"{EDGES}, torch.randn(N, W)"),
    "scatter_add": (f"{ZEROS}.scatter_add(0, {ROWS}, x.exp())", EDGES),
    "mean": (f"{ZEROS}.scatter_reduce(0, {ROWS}, x, 'mean', include_self=False)", EDGES),
    "amax": (f"{ZEROS}.scatter_reduce(0, {ROWS}, x - 3, 'amax', include_self=False)", EDGES),
    "amin onto a tensor": (f"y.scatter_reduce(0, {ROWS}, x, 'amin')", f"{EDGES}, torch.randn(N, W)"),
    "index_put": (
        "torch.zeros(3, N, W).index_put((j, i), x, accumulate=True)",
        f"{EDGES}, torch.randint(-3, 3, (E,))",
    ),
    "in 16 bits": (f"{ZEROS}.bfloat16().index_add(0, i, x.bfloat16()).relu()", EDGES),
    "whole numbers": ("torch.zeros(N, W, dtype=torch.long).index_add(0, i, (x * 9).long())", EDGES),
    "all to one place": (f"{ZEROS}.index_add(0, i * 0 + 3, x)", EDGES),
    "places without rows": (f"{ZEROS}.index_add(0, i // 4, x) + 1", EDGES),
    "rows of two dimensions": ("torch.zeros(N, 4, 5).index_add(0, i, x.view(E, 4, 5) * 2)", EDGES),
    "along the second": ("torch.zeros(2, N, W).index_add(1, i, torch.stack([x, -x]))", EDGES),
    "messages": (f"s, d = i; return ({ZEROS}.index_add(0, d, x[s] * w[:, None]) + x).relu()", GRAPH),
    "mean of neighbours": (
        f"s, d = i; t = {ZEROS}.index_add(0, d, x[s]); one = torch.ones(E)"
        "; n = torch.zeros(N).scatter_add(0, d, one); return t / n.clamp(min=1)[:, None]",
        GRAPH,
    ),
    "softmax over edges": (
        f"{SOFTMAX}; return torch.zeros(N, 4, 5).index_add(0, d, x[s].view(E, 4, 5) * w[..., None])",
        "torch.randn(N, W), torch.randint(0, N, (2, E))",
    ),
    "softmax, wide heads": (
        f"{SOFTMAX}; v = torch.cat([x, x + 1, x - 1, x * 2], 1)[s].view(E, 4, W)"
        "; return torch.zeros(N, 4, W).index_add(0, d, v * w[..., None]).flatten(1).relu()",
        "torch.randn(N, W), torch.randint(0, N, (2, E))",
    ),
    "softmax, mean over heads": (
        f"{SOFTMAX}; v = torch.cat([x, x + 1, x - 1, x * 2], 1)[s].view(E, 4, W)"
        "; return torch.zeros(N, 4, W).index_add(0, d, v * w[..., None]).mean(1)",
        "torch.randn(N, W), torch.randint(0, N, (2, E))",
    ),
}
"""Forward and inputs."""


def names_of(inputs: str) -> str:
    """Arguments of a forward with these inputs."""
    third = ", j" if "randint(-3" in inputs else ", w" if "randn(E)" in inputs else ", y"
    return "x, i" + (third if inputs.count("torch") == 3 else "")


def structure_of(
    forward: str, inputs: str, target: Target = LISTED, sizes: str = SIZES, choices: Choices | None = None
) -> tuple[Structure, list[Any], list[torch.Tensor]]:
    """The program's kernels, its inputs, and what PyTorch computes of them."""
    task = program(forward, inputs, knobs=sizes, arguments=names_of(inputs))
    structure = structured(simplify(capture_once(task)), target, choices=choices)
    with Program.load(task) as loaded:
        module = loaded.build(0, CPU, Precision.MATCH)
        given = loaded.inputs(0, CPU, Precision.MATCH)
        if "long()" not in forward:
            given[0][3, 2], given[0][5, 4] = math.nan, -math.inf
        wanted = [t for _, t in outputs_of(loaded.run(module, given)) if isinstance(t, torch.Tensor)]
    return structure, given, wanted


def walks(structure: Structure) -> list[str]:
    """The kernels that walk lists."""
    found = zip(structure.groups, structure.parts, strict=True)
    return [list(part.kernels.values())[-1] for group, part in found if group.pattern == "segments"]


@pytest.mark.parametrize("name", JOINED)
def test_rows_are_joined_in_lists(name: str) -> None:
    structure, given, wanted = structure_of(*JOINED[name])
    assert len(walks(structure)) == 1
    assert not structure.left_to_pytorch
    assert not any("tl.atomic" in text for text in walks(structure))

    def compare() -> None:
        for got, want in zip(harness.run(structure.graph, structure.parts, given, {}), wanted, strict=True):
            assert got.dtype == want.dtype
            rounding = 2e-2 if want.dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(got, want, rtol=rounding, atol=rounding, equal_nan=True)

    INTERPRETED.once(compare, harness.source(structure.graph, structure.parts))


def test_what_is_gathered_for_a_row_is_never_stored() -> None:
    structure, _, _ = structure_of(*JOINED["messages"])
    (part,) = structure.parts
    assert len(part.launches) == 4
    stored = [line for line in part.call if "torch.empty(" in line and "float32" in line]
    assert len(stored) == 1, "the result, and no row of an edge"


def test_positions_are_read_off_the_list_and_edges_only_where_they_are_needed() -> None:
    plain, _, _ = structure_of(*JOINED["mean of neighbours"])
    weighted, _, _ = structure_of(*JOINED["messages"])
    assert not any("edges_ptr" in text for text in walks(plain))
    assert all("edges_ptr" in text for text in walks(weighted))


def test_counts_are_the_lengths_of_the_lists() -> None:
    structure, _, _ = structure_of(*JOINED["mean of neighbours"])
    assert len(structure.groups) == 1
    (walk,) = walks(structure)
    assert walk.count("for start in") == 1
    assert "count.to(tl.float32)" in walk


def test_a_softmax_over_edges_walks_each_list_three_times() -> None:
    """For maxima, sums and rows; the four heads of a mean are joined in the same walks."""
    structure, _, _ = structure_of(*JOINED["softmax, mean over heads"])
    (walk,) = walks(structure)
    assert walk.count("for start in") == 3
    assert not any("tl.atomic_max" in text for part in structure.parts for text in part.kernels.values())


def test_programs_have_columns_of_one_head() -> None:
    """Weights of edges are numbers of rows then, not computed anew for each column."""
    structure, _, _ = structure_of(*JOINED["softmax, wide heads"])
    (walk,) = walks(structure)
    assert "head = chunk //" in walk
    assert walk.count("tl.full((NODES, 1, 1)") == 2
    assert walk.count("tl.full((NODES, 1, BLOCK_F)") == 1


def test_layers_over_the_same_edges_file_them_once() -> None:
    step = f"; h = {ZEROS}.index_add(0, d, h[s] * w[:, None]); total = total + h"
    forward = f"s, d = i; h = x; total = x{step * 3}; return total"
    structure, given, wanted = structure_of(forward, GRAPH)
    launched = [launch.kernel for part in structure.parts for launch in part.launches]
    assert len(walks(structure)) == 3
    assert sum(name.endswith(("_count_kernel", "_stretch_kernel", "_fill_kernel")) for name in launched) == 3
    (got,) = harness.run(structure.graph, structure.parts, given, {})
    torch.testing.assert_close(got, wanted[0], rtol=1e-5, atol=1e-5, equal_nan=True)


def test_lists_of_other_edges_are_not_shared() -> None:
    """Back along the edges: other places, and other rows in the lists."""
    forward = f"s, d = i; h = {ZEROS}.index_add(0, d, x[s] * w[:, None])"
    forward += f"; return {ZEROS}.index_add(0, s, h[d] * w[:, None])"
    structure, given, wanted = structure_of(forward, GRAPH)
    launched = [launch.kernel for part in structure.parts for launch in part.launches]
    assert sum(name.endswith("_fill_kernel") for name in launched) == 2
    (got,) = harness.run(structure.graph, structure.parts, given, {})
    torch.testing.assert_close(got, wanted[0], rtol=1e-5, atol=1e-5, equal_nan=True)


def test_what_is_needed_elsewhere_is_not_taken_along() -> None:
    forward = f"a = x.exp(); t = {ZEROS}.index_add(0, i, a); return a / t[i]"
    structure, given, wanted = structure_of(forward, EDGES)
    (got,) = harness.run(structure.graph, structure.parts, given, {})
    torch.testing.assert_close(got, wanted[0], equal_nan=True)


LARGE = "E, N, W = 2000000, 50000, {}"


@pytest.mark.parametrize(
    ("width", "sizes", "listed"), [(64, LARGE, True), (4, LARGE, False), (64, SIZES, False)]
)
def test_long_rows_and_many_of_them_are_filed(width: int, sizes: str, listed: bool) -> None:
    task = program(f"{ZEROS}.index_add(0, i, x)", EDGES, knobs=sizes.format(width), arguments="x, i")
    structure = structured(simplify(capture_once(task)), Target(H200))
    assert bool(walks(structure)) == listed
    assert structure.kernels == (4 if listed else 1)


def test_atomics_are_the_alternative() -> None:
    task = program(f"{ZEROS}.index_add(0, i, x[i])", EDGES, knobs=LARGE.format(64), arguments="x, i")
    graph = simplify(capture_once(task))
    structure = structured(graph, Target(H200))
    (group,), (part,) = structure.groups, structure.parts
    (option,) = PATTERNS["segments"].alternatives(group, part, None)
    (move,) = option.moves
    assert isinstance(move, Without)
    other = structured(graph, Target(H200), choices=Choices(left=frozenset({(move.pattern, move.at)})))
    assert [group.pattern for group in other.groups] == ["loops"]
    assert re.search(r"tl\.atomic_add", str(other.parts[0].kernels))
    machine = Machine.of(H200)
    atomics = PATTERNS["loops"].cost(other.graph, other.groups[0], other.parts[0], {}, machine)
    lists = PATTERNS["segments"].cost(structure.graph, group, part, {}, machine)
    assert lists.device < atomics.device


def test_lists_are_the_alternative_where_rows_are_few() -> None:
    task = program(f"{ZEROS}.index_add(0, i, x[i])", EDGES, knobs=SIZES, arguments="x, i")
    graph = simplify(capture_once(task))
    structure = structured(graph, Target(H200))
    (group,), (part,) = structure.groups, structure.parts
    (option,) = PATTERNS[group.pattern].alternatives(group, part, None)
    chosen = Choices(settings=Recipe().after(*option.moves).settings)
    other = structured(graph, Target(H200), choices=chosen)
    assert [group.pattern for group in other.groups] == ["segments"]


@pytest.mark.parametrize("name", ["messages", "softmax, mean over heads", "amax"])
def test_kernels_compile_for_a_gpu_without_spills(name: str, tmp_path: Path) -> None:
    forward, inputs = JOINED[name]
    structure, given, _ = structure_of(forward, inputs, Target(H200, {"lists": True}))
    text = harness.source(structure.graph, structure.parts)

    def compile_all() -> None:
        path = tmp_path / "module.py"
        path.write_text(text)
        found = capture(module_of(path), lambda: given)
        assert len(found.compiled) == text.count("num_warps=")
        for outcome in found.compiled.values():
            assert getattr(outcome, "spill_bytes", None) == 0, f"{outcome}\n{text}"

    COMPILED.once(compile_all, text)
