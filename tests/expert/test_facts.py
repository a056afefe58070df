"""What a part says of itself (launches, packing, kept weights) is what its text does."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.moves import Recipe, parsed
from egg.expert.parts import Part, Use
from egg.hardware.gpus import resolve
from tests.expert.captured import program

LINEAR = program("F.gelu(self.a(x))", "torch.randn(B, C)", "self.a = nn.Linear(C, C)", "B, C = 512, 256")
CONVOLUTION = program(
    "self.n(self.a(x))",
    "torch.randn(B, C, 32, 32)",
    "self.a = nn.Conv2d(C, C, 3, padding=1); self.n = nn.GroupNorm(8, C)",
    "B, C = 8, 64",
)
ATTENTION = program("F.scaled_dot_product_attention(x, x, x)", "torch.randn(B, 4, 256, 64)", "pass", "B = 2")
ROWS = program("x.sum(-1)", "torch.randn(B, 1 << 20)", "pass", "B = 4")
WALK = program(
    "self.r(x)[0]", "torch.randn(B, 12, 32)", "self.r = nn.LSTM(32, 64, batch_first=True)", "B = 4"
)


def parts(task: Task, *moves: str) -> tuple[Part, ...]:
    recipe = Recipe().after(*(parsed(move) for move in moves))
    return kernel_file(task, graph_of(task), recipe, resolve("H200")).structure.parts


def launches_in(part: Part) -> Counter[str]:
    """``kernel[grid](...)`` in the host's code."""
    code = ast.parse("\n".join((*part.call, *part.helpers.values())))
    calls = (node.func for node in ast.walk(code) if isinstance(node, ast.Call))
    launched = (f.value for f in calls if isinstance(f, ast.Subscript) and isinstance(f.value, ast.Name))
    return Counter(name.id for name in launched)


@pytest.mark.parametrize(
    ("task", "moves", "uses"),
    [
        (LINEAR, ["set matmul_gelu packing True"], {Use.PACKING, Use.KEPT_WEIGHTS, Use.DESCRIPTORS}),
        (LINEAR, ["set matmul_gelu packing False", "set a_gelu descriptors False"], set()),
        (CONVOLUTION, [], {Use.PACKING}),
        (ATTENTION, [], {Use.PACKING}),
        (ROWS, [], set()),
        (WALK, ["set recurrent mode steps"], {Use.STEPPED}),
        (WALK, ["set recurrent mode cooperative"], {Use.COOPERATIVE}),
    ],
    ids=["packed", "direct", "convolution", "attention", "rows", "steps", "cooperative"],
)
def test_a_part_says_what_its_text_does(task: Task, moves: list[str], uses: set[Use]) -> None:
    found = parts(task, *moves)
    assert {use for part in found for use in part.uses} == uses
    for part in found:
        stated = Counter(launch.kernel for launch in part.launches)
        assert stated == launches_in(part)
        assert set(stated) <= set(part.kernels)
        text = "\n".join((*part.call, *part.helpers.values(), *part.kernels.values()))
        assert (Use.DESCRIPTORS in part.uses) == ("TensorDescriptor" in text and "product" in part.summary)
        assert (Use.KEPT_WEIGHTS in part.uses) == any(launch.kept for launch in part.launches)
        assert (Use.COOPERATIVE in part.uses) == ("launch_cooperative_grid" in text)
