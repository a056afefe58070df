"""Triangular systems: read in their spellings, solved by blocks at every size, against fp64."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator import offline
from egg.evaluator.task.precision import double_scope
from egg.evaluator.task.program import Program, outputs_of, to_double
from egg.expert.algebra.simplify import simplify
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.structure import structured
from egg.expert.graph import Graph
from egg.expert.parts import Target
from egg.expert.reading.capture import capture
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import CPU, check, program, resized
from tests.expert.compiling import module_of
from tests.ledgers import COMPILED, INTERPRETED

KNOBS = "B, N, K = 3, 37, 21"
OTHERS = "B, N, K = 2, 16, 70"
INPUTS = "torch.randn(B, N, N) / N + 2 * torch.eye(N), torch.randn(B, N, K)"
FORMS = (
    "torch.linalg.solve_triangular(a, b, upper=False)",
    "torch.linalg.solve_triangular(a, b * 2, upper=True)",
    "torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)",
    "torch.linalg.solve_triangular(a.mT, b.mT, upper=False, left=False)",
)
TASK = program(f"return {', '.join(FORMS)}", INPUTS, "pass", KNOBS, "a, b")
LARGEST, MEAN = 1.5e-5, 1.9e-6
"""Errors relative to the result's mean square, as the judge allows them in fp32."""


@cache
def simple(task: Task) -> Graph:
    return simplify(capture(task))


def written(task: Task, choices: Choices | None = None) -> Structure:
    choices = choices or Choices(without=frozenset({"matrices"}))
    return structured(simple(task), Target(resolve("H200")), choices=choices)


def test_all_spellings_are_one_kind_of_node() -> None:
    graph = simple(TASK)
    found = [(n["upper"], n["unit"]) for n in graph if n.op == "triangular_solve"]
    assert found == [(False, False), (True, False), (False, True), (True, False)]
    check(graph, TASK)
    check(graph, resized(TASK, KNOBS, OTHERS))


def test_the_library_can_have_it() -> None:
    structure = written(TASK, Choices(without=frozenset({"triangular"})))
    assert "triangular system" in structure.left_to_pytorch
    calls = [line for part in structure.parts for line in part.call if "solve_triangular" in line]
    assert ["unitriangular=True" in line for line in calls] == [False, False, True, False]


@pytest.mark.parametrize("sizes", [KNOBS, OTHERS])
def test_right_at_every_size(sizes: str) -> None:
    structure, task = written(TASK), resized(TASK, KNOBS, sizes)
    assert sum(group.pattern == "triangular" for group in structure.groups) == len(FORMS)
    text = harness.source(structure.graph, structure.parts)
    INTERPRETED.once(lambda: compare(structure, task), text, task.source)


def compare(structure: Structure, task: Task) -> None:
    loaded = Program.load(task)
    module, inputs = loaded.build(0, CPU, Precision.MATCH), loaded.inputs(0, CPU, Precision.MATCH)
    ours = harness.run(structure.graph, structure.parts, inputs, module.state_dict())
    double, exact = to_double(module, inputs)
    with loaded, double_scope():
        wanted = [tensor for _, tensor in outputs_of(loaded.run(double, exact))]
    for got, want in zip(ours, wanted, strict=True):
        off, scale = got.double() - want, want.square().mean().sqrt()
        assert off.abs().max() <= LARGEST * scale
        assert off.square().mean().sqrt() <= MEAN * scale


def test_entries_of_one_grow_no_further_than_in_substitution() -> None:
    """The solution with a lower triangle of minus ones doubles from row to row."""
    forward = "return torch.linalg.solve_triangular(a.tril() * 0 - 1, b, upper=False, unitriangular=True)"
    task = program(forward, "torch.randn(B, N, N), torch.ones(B, N, K)", "pass", KNOBS, "a, b")
    structure = written(task)
    ones = torch.ones(3, 37, 21)
    (got,) = harness.run(structure.graph, structure.parts, [torch.zeros(3, 37, 37), ones], {})
    want = (2.0 ** torch.arange(37))[:, None].expand(37, 21)
    assert torch.equal(got, want.expand_as(got))


@pytest.mark.parametrize("knobs", ["B, N, K = 2, 1, 1", "B, N, K = 2, 37, 1", "B, N, K = 2, 1, 21"])
def test_one_row_and_one_right_side(knobs: str) -> None:
    task = resized(TASK, KNOBS, knobs)
    structure = written(task)
    assert sum(group.pattern == "triangular" for group in structure.groups) == len(FORMS)
    compare(structure, task)


def test_what_is_computed_beyond_the_last_row_does_not_reach_it() -> None:
    """Beyond it the right side is a quotient by what was loaded as zero, and so is the matrix."""
    forward = "return torch.linalg.solve_triangular(1 / a, 1 / b, upper=False)"
    inputs = "torch.rand(B, N, N) + 1 + N * (1 - torch.eye(N)), torch.rand(B, N, K) + 1"
    task = program(forward, inputs, "pass", KNOBS, "a, b")
    structure = written(task)
    assert len(structure.groups) == 1
    compare(structure, task)


@pytest.mark.parametrize(
    ("batch", "rows", "columns"),
    [
        ("", 1, 1), ("3, ", 3, 1), ("2, 1, 3, ", 16, 1), ("", 17, 1), ("3, ", 100, 1),
        ("2, 1, 3, ", 1, 3), ("", 3, 16), ("3, ", 16, 17), ("2, 1, 3, ", 17, 100), ("", 100, 3),
    ],
)  # fmt: skip
def test_kernels_compile_at_any_size_and_batch(batch: str, rows: int, columns: int, tmp_path: Path) -> None:
    inputs = f"torch.eye({rows}).expand({batch}{rows}, {rows}) * 2, torch.ones({batch}{rows}, {columns})"
    forward = "return torch.linalg.solve_triangular(a, b * 2, upper=False)"
    structure = written(program(forward, inputs, "pass", "", "a, b"))
    assert [group.pattern for group in structure.groups].count("triangular") == 1
    path, argument = tmp_path / "written.py", structure.graph.arguments
    path.write_text(harness.source(structure.graph, structure.parts))
    shapes = [[int(s.value) for s in structure.graph.value(str(name)).shape] for name in argument]

    def compile_all() -> None:
        found = offline.capture(
            module_of(path), lambda: [torch.ones(s, device="cuda") for s in shapes], "sm_90"
        )
        assert len(offline.compile_all(found, "sm_90")) == len(structure.groups)

    COMPILED.once(compile_all, path.read_text())
