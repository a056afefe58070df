"""Batch norms with running statistics ride on the convolution in front of them."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.program import Program
from egg.expert.algebra.simplify import simplify
from egg.expert.fusion.choices import Structure
from egg.expert.fusion.structure import structured
from egg.expert.parts import Target
from egg.expert.reading.capture import capture_once
from tests.expert import harness
from tests.expert.captured import CPU, program
from tests.expert.checking import H200
from tests.ledgers import INTERPRETED

NORM = "; self.bn.running_mean.uniform_(-1, 1); self.bn.running_var.uniform_(0.5, 2); self.eval()"
IMAGE = "torch.randn(batch, 16, 9, 10)"
CASES: dict[str, tuple[str, str, str]] = {
    "3 x 3": ("self.bn(self.conv(x)).relu() + 1", "nn.Conv2d(16, 24, 3, padding=1)", IMAGE),
    "one tap": ("F.silu(self.bn(self.conv(x)))", "nn.Conv2d(16, 24, 1, bias=False)", IMAGE),
    "depthwise": ("self.bn(self.conv(x)).clamp(0, 6)", "nn.Conv2d(16, 16, 3, padding=1, groups=16)", IMAGE),
    "transposed": ("self.bn(self.conv(x))", "nn.ConvTranspose2d(16, 24, 2, 2)", IMAGE),
    "along a sequence": (
        "self.bn(self.conv(x)).tanh()",
        "nn.Conv1d(16, 24, 1)",
        "torch.randn(batch, 16, 37)",
    ),
    "onto another": ("(self.bn(self.conv(x)) + x).relu()", "nn.Conv2d(16, 16, 3, padding=1)", IMAGE),
    "pooled": ("F.max_pool2d(self.bn(self.conv(x)).relu(), 2)", "nn.Conv2d(16, 24, 3, padding=1)", IMAGE),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fixed_scale_and_shift_are_part_of_the_convolution(name: str) -> None:
    forward, layer, inputs = CASES[name]
    channels = 24 if "24" in layer else 16
    norm = f"self.bn = nn.BatchNorm{'1d' if '1d' in layer else '2d'}({channels})"
    task = program(forward, inputs, f"self.conv = {layer}; {norm}{NORM}", "batch = 3")
    structure = structured(simplify(capture_once(task)), Target(H200))
    (group,) = structure.groups
    assert group.pattern == "convolution"
    INTERPRETED.once(lambda: compare(task, structure), harness.source(structure.graph, structure.parts))


def compare(task: Task, structure: Structure) -> None:
    with Program.load(task) as loaded:
        module, given = loaded.build(0, CPU, Precision.MATCH), loaded.inputs(0, CPU, Precision.MATCH)
        with torch.no_grad():
            wanted = loaded.run(module, given)
        held = dict(module.state_dict())
    (found,) = harness.run(structure.graph, structure.parts, given, held)
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=5e-3)


@pytest.mark.parametrize(
    ("operand", "taps", "patterns"),
    [
        ("torch.sigmoid(x)", 31, ["loops", "convolution"]),
        ("x * 2 + 1", 31, ["convolution"]),
        ("torch.sigmoid(x)", 3, ["convolution"]),
    ],
)
def test_a_special_function_is_stored_where_a_stencil_would_compute_it_at_many_taps(
    operand: str, taps: int, patterns: list[str]
) -> None:
    layer = f"self.conv = nn.Conv1d(16, 16, {taps}, padding={taps // 2}, groups=16)"
    task = program(f"self.conv({operand})", "torch.randn(batch, 16, 200)", layer, "batch = 3")
    structure = structured(simplify(capture_once(task)), Target(H200))
    assert [group.pattern for group in structure.groups] == patterns
