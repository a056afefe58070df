"""Choices between a number and an element in memory: what is not chosen is not loaded, by whole rows."""

from __future__ import annotations

import pytest

from tests.expert.captured import program
from tests.expert.test_reading import run_and_compare

STATES = "torch.randn(rows, 40, 128), (torch.arange(40) < torch.tensor([[9], [40], [31]])).long()[:rows]"
SKIPPED = {
    "a sum": "x.masked_fill(m.unsqueeze(-1) == 0, 0.0).sum(1)",
    "a mean of what counts": "x.masked_fill(m[..., None] == 0, 0.0).sum(1) / m.sum(1, keepdim=True)",
    "the other way round": "torch.where(m[..., None] > 0, x, -1.0).amax(1)",
    "no sum": "torch.where(m[..., None] > 0, x, 0.0).exp()",
}
LOADED = {
    "a condition for each element": "x.masked_fill(x > 0, 0.0).sum(1)",
    "along the run": "x[:, :, :40].masked_fill(m[:, None] == 0, 0.0).sum(1)",
    "needed elsewhere": "x.masked_fill(m[..., None] == 0, 0.0) + x.exp()",
}


@pytest.mark.parametrize("name", [*SKIPPED, *LOADED])
def test_hidden_rows_are_loaded_only_where_they_must_be(name: str) -> None:
    task = program({**SKIPPED, **LOADED}[name], STATES, knobs="rows = 3", arguments="x, m")
    text = run_and_compare(task)
    kernel = text[text.index("@triton.jit") : text.index("def outside")]
    masks = [line for line in kernel.splitlines() if "mask=" in line]
    guarded = [
        line
        for line in masks
        if any(f"& {sign}{word}" in line for sign in ("", "~") for word in ("eq", "gt"))
    ]
    assert bool(guarded) == (name in SKIPPED)
