"""Elements that join others at places known only when it runs: what is captured, and the kernels of it."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.task.program import Program, outputs_of
from egg.expert.algebra.simplify import simplify
from egg.expert.emit.keys import FEWEST, MOST, key
from egg.expert.fusion.choices import Structure
from egg.expert.fusion.structure import structured
from egg.expert.parts import Target
from egg.expert.pattern import FREE
from egg.expert.reading.capture import capture_once
from tests.expert import harness
from tests.expert.captured import CPU, program
from tests.expert.checking import H200
from tests.ledgers import INTERPRETED

SIZES = "E, N, W = 37, 5, 6"
EDGES = "torch.randn(E, W), torch.randint(0, N, (E,))"
ROWS = "i[:, None].expand(E, W)"
ZEROS = "torch.zeros(N, W)"
BASE = f"{EDGES}, torch.randn(N, W)"
JOINED: dict[str, tuple[str, str, int]] = {
    "index_add": (f"{ZEROS}.index_add(0, i, x.relu(), alpha=2)", EDGES, 1),
    "index_add onto a tensor": ("y.index_add(0, i, x)", BASE, 1),
    "index_add along another": ("torch.zeros(W, N).index_add(1, i, x.T * 2)", EDGES, 1),
    "scatter_add": (f"{ZEROS}.scatter_add(0, {ROWS}, x.exp())", EDGES, 1),
    "scatter_add of a part": (f"{ZEROS}.scatter_add(0, i[:7, None].expand(7, 3), x)", EDGES, 1),
    "counts": ("torch.zeros(N, dtype=i.dtype).scatter_add(0, i, torch.ones_like(i)), x + 1", EDGES, 1),
    "sum": (f"{ZEROS}.scatter_reduce(0, {ROWS}, x, 'sum', include_self=False)", EDGES, 1),
    "mean": (f"{ZEROS}.scatter_reduce(0, {ROWS}, x, 'mean', include_self=False)", EDGES, 2),
    "mean onto a tensor": (f"y.scatter_reduce(0, {ROWS}, x, 'mean')", BASE, 2),
    "amax": (f"{ZEROS}.scatter_reduce(0, {ROWS}, x - 3, 'amax', include_self=False)", EDGES, 1),
    "amax of all": (f"torch.full((N, W), -torch.inf).scatter_reduce(0, {ROWS}, x, 'amax')", EDGES, 1),
    "amin onto a tensor": (f"y.scatter_reduce(0, {ROWS}, x, 'amin')", BASE, 1),
    "index_reduce": ("y.index_reduce(0, i, x, 'amax', include_self=False)", BASE, 1),
    "index_put": (
        "torch.zeros(3, N, W).index_put((j, i), x, accumulate=True)",
        f"{EDGES}, torch.randint(-3, 3, (E,))",
        1,
    ),
    "rows in their slots": (
        "torch.zeros(E + 1, W).index_copy(0, torch.where(i < 3, torch.arange(E), E), x)[:-1] * 2",
        EDGES,
        1,
    ),
    "at counted places": ("torch.zeros(40, W).index_add(0, torch.arange(E) + 2, x)", EDGES, 1),
    "in 16 bits": (f"{ZEROS}.bfloat16().index_add(0, i, x.bfloat16())", EDGES, 1),
}
"""Forward, inputs, and how many scatters it is."""


def structure_of(forward: str, inputs: str) -> tuple[Structure, list[Any], list[torch.Tensor]]:
    """The program's kernels, its inputs, and what PyTorch computes of them."""
    third = {3: ", j" if "randint(-3" in inputs else ", y"}.get(inputs.count("torch"), "")
    task = program(forward, inputs, knobs=SIZES, arguments=f"x, i{third}")
    structure = structured(simplify(capture_once(task)), Target(H200))
    with Program.load(task) as loaded:
        module = loaded.build(0, CPU, Precision.MATCH)
        given = loaded.inputs(0, CPU, Precision.MATCH)
        given[0][3, 2], given[0][5, 4] = math.nan, -math.inf
        wanted = [t for _, t in outputs_of(loaded.run(module, given)) if isinstance(t, torch.Tensor)]
    return structure, given, wanted


@pytest.mark.parametrize("name", JOINED)
def test_elements_join_in_one_pass(name: str) -> None:
    forward, inputs, scatters = JOINED[name]
    structure, given, wanted = structure_of(forward, inputs)
    assert sum(node.op == "scatter" for node in structure.graph) == scatters
    assert not structure.left_to_pytorch

    def compare() -> None:
        for got, want in zip(harness.run(structure.graph, structure.parts, given, {}), wanted, strict=True):
            assert got.dtype == want.dtype
            rounding = 2e-2 if want.dtype == torch.bfloat16 else 1e-5
            torch.testing.assert_close(got, want, rtol=rounding, atol=rounding, equal_nan=True)

    INTERPRETED.once(compare, harness.source(structure.graph, structure.parts))


def test_an_index_is_read_by_row_and_never_repeated_in_memory() -> None:
    structure, _, _ = structure_of(f"{ZEROS}.scatter_add(0, {ROWS}, x[i] * x)", EDGES)
    (part,) = structure.parts
    (kernel,) = part.kernels.values()
    assert re.search(r'tl.atomic_add\([^=]*mask=[^=]*sem="relaxed"', kernel)
    assert not any("expand" in line or "empty" in line for line in part.call)


def test_what_a_scatter_adds_up_is_read_by_another_kernel() -> None:
    """Also where the values that are added up are needed again: they are stored on the way."""
    forward = f"a = x.exp(); t = {ZEROS}.index_add(0, i, a); return a / t[i]"
    structure, given, wanted = structure_of(forward, EDGES)
    assert structure.kernels == 2
    (got,) = harness.run(structure.graph, structure.parts, given, {})
    torch.testing.assert_close(got, wanted[0], equal_nan=True)


def test_a_mean_over_heads_is_taken_before_the_scatter() -> None:
    forward = "torch.zeros(N, 2, 3).index_add(0, i, x.view(E, 2, 3)).mean(1)"
    structure, given, wanted = structure_of(forward, EDGES)
    (scatter,) = (node for node in structure.graph if node.op == "scatter")
    assert structure.graph.result(scatter).rank == 2
    assert structure.kernels == 1
    (got,) = harness.run(structure.graph, structure.parts, given, {})
    torch.testing.assert_close(got, wanted[0], equal_nan=True)


def test_sums_of_rows_are_scattered_by_the_kernel_that_computes_them() -> None:
    structure, _, _ = structure_of("torch.zeros(N).index_add(0, i, x.sum(1))", EDGES)
    assert structure.kernels == 1


def test_what_is_gathered_for_a_product_waits_for_the_pass_behind_it() -> None:
    """Riding on the product, ``y[i]`` would be stored and read again, and so would the result."""
    forward = f"{ZEROS}.index_add(0, i, y[i] * (x @ y.T @ y))"
    structure, _, _ = structure_of(forward, BASE)
    passes = [group for group in structure.groups if group.pattern == "loops"]
    assert [node.op for node in passes[-1].nodes if node.op in ("gather", "scatter")] == ["gather", "scatter"]
    assert len(passes) == 1


def test_counted_places_are_not_stored_for_two_readers() -> None:
    forward = "at = torch.arange(E).repeat(2); return torch.zeros(E, N).index_add(0, at, x[at] @ y.T)"
    structure, _, _ = structure_of(forward, BASE)
    written = zip(structure.groups, structure.parts, strict=True)
    computing = [group for group, part in written if part.kernels]
    assert all({node.op for node in group.nodes} - FREE for group in computing)


def test_few_scans_across_memory_have_a_program_each() -> None:
    structure, _, _ = structure_of("F.one_hot(i, N).cumsum(0), x + 1", EDGES)
    (part,) = (part for part in structure.parts if "cumsum" in str(part.kernels))
    assert any("(5,)" in line for line in part.call), part.call


def test_elements_that_all_go_to_one_place_are_left_to_pytorch() -> None:
    structure, given, wanted = structure_of("torch.zeros(N).scatter_add(0, i[:1].expand(E), x[:, 0])", EDGES)
    assert structure.left_to_pytorch
    (got,) = harness.run(structure.graph, structure.parts, given, {})
    torch.testing.assert_close(got, wanted[0], equal_nan=True)


def test_keys_have_the_order_of_their_numbers() -> None:
    numbers = [-math.inf, -3.5, -1e-40, -0.0, 0.0, 1e-40, 2.0, math.inf]
    for largest in (True, False):
        keys = [key(number, largest) for number in numbers]
        assert keys == sorted(keys)
        assert keys == sorted([FEWEST, *keys, MOST])[1:-1]
    assert key(math.nan, True) > key(math.inf, True)
    assert FEWEST < key(math.nan, False) < key(-math.inf, False)
