"""Blocks of complex numbers put into zeros: one pass stores all of it."""

from __future__ import annotations

import pytest

from egg.expert.moves import Recipe
from tests.expert.elsewhere import normal, program
from tests.expert.test_across import body_of

GIVEN = "x = torch.randn(n, size, size)"
MODES = """
f = torch.fft.rfft2(x)
out = torch.zeros(x.shape[0], x.shape[1], x.shape[2] // 2 + 1, dtype=f.dtype, device=x.device)
out[:, :3, :3] = torch.einsum('nxy,xy->nxy', f[:, :3, :3], torch.view_as_complex(self.w1))
out[:, -3:, :3] = torch.einsum('nxy,xy->nxy', f[:, -3:, :3], torch.view_as_complex(self.w2))
return torch.fft.irfft2(out, s=x.shape[1:]) + x
"""
WEIGHTS = "self.w1 = nn.Parameter(torch.randn(3, 3, 2))\nself.w2 = nn.Parameter(torch.randn(3, 3, 2))"


def test_modes_in_both_corners_are_stored_once():
    source = program(MODES, GIVEN, WEIGHTS, "", n=4, size=24)
    body = body_of(source, Recipe(), [normal(2, 14, 14)], [])
    assert "torch.cat" not in body
    assert body.count("torch.empty(") == 2, "the spectrum and the result"


@pytest.mark.parametrize(
    ("block", "made"),
    [
        ("out[:, 1] = f[:, 2] * 2", "torch.zeros_like(f)"),
        ("out[:, ::2] = f[:, ::2]", "torch.zeros_like(f)"),
        ("out[:, 1:4] = f.conj()[:, 1:4]", "torch.zeros_like(f)"),
        ("out[:, 1:4] = f[:, 2:5]", "torch.ones_like(f)"),
        ("out[:, 1:4] = f[:, 2:3]", "f.clone()"),
    ],
)
def test_blocks_of_other_kinds(block: str, made: str):
    forward = f"f = torch.fft.rfft(x)\nout = {made}\n{block}\nreturn torch.fft.irfft(out) + 1.0"
    body_of(program(forward, GIVEN, n=4, size=24), Recipe(), [normal(3, 24, 24)], [])
