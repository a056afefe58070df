"""Triangular systems: read in their spellings, solved by blocks at every size, against fp64."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
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
from tests.ledgers import INTERPRETED

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
