"""What stands before a product of 16-bit operands: folded into its loads, or a pass of its own, by price."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program, outputs_of
from egg.expert.algebra.simplify import simplify
from egg.expert.deciding.estimate import costs
from egg.expert.fusion.structure import Structure, structured
from egg.expert.graph import Graph
from egg.expert.parts import Group, Part, Target
from egg.expert.patterns import PATTERNS
from egg.expert.patterns.product import write as product
from egg.expert.patterns.product.pattern import Product
from egg.expert.reading.capture import capture
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.expert.captured import CPU, program, resized

H200 = resolve("H200")
KNOBS = "T, K, N, G = 24, 64, 48, 32"
OTHERS = "T, K, N, G = 40, 96, 32, 32"
INPUT = "torch.randn(T, K).bfloat16()"
BYTES = "self.register_buffer('w', torch.randint(-127, 128, (N, K), dtype=torch.int8))"
QUANTISED = program(
    "wide = x.float(); s = wide.abs().amax(-1, keepdim=True) / 127.0;"
    "return F.linear(torch.round(wide / s).to(x.dtype), self.w.to(x.dtype)) * s",
    INPUT, BYTES, KNOBS,
)  # fmt: skip
SCALED = program(
    "w = (self.w.to(x.dtype) - self.z) * self.s; return F.linear(x, w.flatten(1))",
    INPUT,
    "self.register_buffer('w', torch.randint(-127, 128, (N, K // G, G), dtype=torch.int8));"
    "self.register_buffer('z', torch.randint(6, 11, (N, K // G, 1)).bfloat16());"
    "self.register_buffer('s', torch.rand(N, K // G, 1).bfloat16())",
    KNOBS,
)
HALVES = program(
    "w = torch.stack((self.p & 15, self.p >> 4), -1).flatten(1); return F.linear(x, w.to(x.dtype))",
    INPUT,
    "self.register_buffer('p', torch.randint(0, 256, (N, K // 2), dtype=torch.uint8))",
    KNOBS,
)


def written(task: Task, settings: Mapping[str, Any] | None = None) -> Structure:
    class Settled(Product):
        def write(self, graph: Graph, group: Group, target: Target) -> Part:
            return product.write(graph, group, Target(target.gpu, {**target.settings, **(settings or {})}))

    return structured(simplify(capture(task)), Target(H200), PATTERNS.with_(Settled()))


def operators(structure: Structure, pattern: str) -> list[list[str]]:
    """Of each group of a pattern, what it does besides changes of shape."""
    kept = [group for group in structure.groups if group.pattern == pattern]
    return [[node.get("fn") or node.op for node in g.nodes if node.op != "view"] for g in kept]


@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("task", [QUANTISED, SCALED, HALVES], ids=["quantised", "scaled", "halves"])
def test_right_either_way_at_every_size(task: Task, fold: bool) -> None:
    structure = written(task, {"fold": fold})
    for sized in (task, resized(task, KNOBS, OTHERS)):
        loaded = Program.load(sized)
        module, inputs = loaded.build(0, CPU, Precision.MATCH), loaded.inputs(0, CPU, Precision.MATCH)
        (got,) = harness.run(structure.graph, structure.parts, inputs, module.state_dict())
        with loaded, torch.no_grad():
            ((_, want),) = outputs_of(loaded.run(module, inputs))
        assert isinstance(want, torch.Tensor)
        off = (got.double() - want.double()).square().mean().sqrt()
        assert off <= 8e-3 * want.double().square().mean().sqrt()


def test_what_many_tiles_would_compute_is_computed_once() -> None:
    large = written(resized(QUANTISED, KNOBS, "T, K, N, G = 2048, 4096, 2048, 128"))
    assert operators(large, "product") == [["matmul", "mul"]]
    first, second = operators(large, "loops")
    assert (first[-2:], second) == (["round", "cast"], ["cast"])


def test_what_few_tiles_compute_rides_on_their_loads() -> None:
    few = written(resized(QUANTISED, KNOBS, "T, K, N, G = 16, 14336, 4096, 128"))
    assert "cast" in operators(few, "product")[0]
    assert len(few.groups) == 2


def test_no_prologue_is_folded_by_half() -> None:
    """One step of it would be cheap, all of it is not: then the pass does all of it."""
    structure = written(resized(SCALED, KNOBS, "T, K, N, G = 128, 7168, 4096, 128"))
    assert operators(structure, "product") == [["matmul"]]
    assert operators(structure, "loops") == [["cast", "sub", "mul"]]


@pytest.mark.parametrize("fold", [True, False])
def test_halves_of_a_byte_are_loaded_once(fold: bool) -> None:
    structure = written(HALVES, {"fold": fold})
    assert len(structure.groups) == (1 if fold else 2)
    text = "\n".join(text for part in structure.parts for text in part.kernels.values())
    assert text.count("tl.load(p_ptr") == 1
    assert text.count("tl.load(") == (2 if fold else 3)


def test_the_estimate_knows_what_a_folded_prologue_costs() -> None:
    task = resized(QUANTISED, KNOBS, "T, K, N, G = 2048, 4096, 2048, 128")
    folded, apart = (
        sum(cost.device for cost in costs(written(task, {"fold": fold}), H200, {})) for fold in (True, False)
    )
    assert folded > 1.5 * apart
