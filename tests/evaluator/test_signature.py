"""Names and defaults of ``forward``: what a caller gets without an error must be what the reference gives."""

from __future__ import annotations

import pytest
from torch import nn

from egg.evaluator.task.signature import otherwise, signature_of


def forward_of(arguments: str) -> nn.Module:
    made: dict[str, type] = {}
    exec(f"class Made(nn.Module):\n    def forward(self, {arguments}):\n        return x", {"nn": nn}, made)
    return made["Made"]()


@pytest.mark.parametrize(
    ("theirs", "word"),
    [
        ("x, y, scale=0.5", ""),
        ("a, b, c=0.5", ""),
        ("x, y, scale", ""),
        ("*args", ""),
        ("x, y, scale=(1, 2)", ""),
        ("y, x, scale=0.5", "y at place 1"),
        ("x, y, scale=0.25", "scale=0.25"),
        ("x, y, factor=0.25", "factor=0.25"),
        ("x, y, scale=None", "scale=None"),
    ],
)
def test_only_what_would_not_raise_is_found(theirs, word):
    found = otherwise(signature_of(forward_of("x, y, scale=0.5")), signature_of(forward_of(theirs)))
    assert word in found
    assert bool(found) == bool(word)
