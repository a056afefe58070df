"""Codes and places that a program returns: what they are taken from is rounded as PyTorch rounds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.expert import harness
from tests.expert.elsewhere import RUN, program, written

GIVEN = (
    "x = torch.randn(rows, 64).bfloat16(); y = torch.randn(rows, 64).bfloat16();"
    " z = torch.randn(rows, 64).bfloat16()"
)
STEPS = {
    "codes": "return ((x * y + z) * 20).round().clamp(-127, 127).to(torch.int8)",
    "codes by the largest": "v = F.silu(x) * y\nscale = v.abs().amax(-1, keepdim=True).float() / 127\n"
    "return (v.float() / scale).round().to(torch.int8), scale",
    "packed": "c = ((x * y - z) * 2).round().clamp(-8, 7).to(torch.int32) & 15\n"
    "return c[:, ::2] | (c[:, 1::2] << 4)",
    "places": "return (y + 1.5 * (x - y)).argmax(-1)",
    "a branch": "return x * y + z > y * z",
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_discrete_results_are_pytorchs(step: str):
    source = program(step, GIVEN, "self.none = 0", "", rows=64)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(64, 64, generator=generator).bfloat16() for _ in range(3)]
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    right = space["Model"]()(*(tensor.clone() for tensor in inputs))
    expected = right[0] if isinstance(right, tuple) else right
    found = harness.execute(written(source) + RUN, inputs, {"arguments": [], "state": {}})[0]
    assert torch.equal(found, expected), f"{int((found != expected).sum())} differ"
