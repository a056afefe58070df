"""Compensated sums in 16 bits: what is rounded off is kept, and makes up for what is stored."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.expert import harness
from tests.expert.elsewhere import RUN, program, written

GIVEN = (
    "p = torch.randn(rows, 64).bfloat16(); k = torch.randn(rows, 64).bfloat16();"
    " g = torch.randn(rows, 64).bfloat16()"
)
STEPS = {
    "kahan": "k = k + g * -0.01\nnew = p + k\nreturn new, k + (p - new)",
    "in place": "p = p.mul(0.99)\nk = k.add(g, alpha=-0.01)\nold = p.clone()\np.add_(k)\n"
    "return p, k.add(old.sub_(p))",
    "an average": "step = ((g - p) * 0.01).add_(k)\nnew = p + step\nreturn new, step - (new - p)",
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_what_is_rounded_off_is_not_lost(step: str):
    source = program(step, GIVEN, "self.none = 0", "", rows=64)
    generator = torch.Generator().manual_seed(0)
    drawn = (torch.randn(9, 64, generator=generator) * scale for scale in (1.0, 0.01, 0.3))
    inputs = [tensor.bfloat16() for tensor in drawn]
    space: dict[str, Any] = {}
    exec(compile(source, "task", "exec"), space)
    right = space["Model"]()(*(tensor.clone() for tensor in inputs))
    ours = harness.execute(written(source) + RUN, inputs, {"arguments": [], "state": {}})
    found, expected = ([made.double() for made in results] for results in (ours, right))
    assert expected[1].abs().max() > 1e-3  # of values about one
    assert torch.allclose(found[0] + found[1], expected[0] + expected[1], atol=5e-4)
