"""Arithmetic between transforms is done on parts: whole files, at other sizes than they were written at."""

from __future__ import annotations

import pytest
import torch

from tests.expert.elsewhere import check, program, written

GIVEN = "x = torch.randn(B, T)"
PROGRAMS = {
    "correlation": """
f = torch.fft.rfft(x)
g = torch.fft.rfft(x.flip(0) * 2)
return torch.fft.irfft(f * torch.conj(g), n=x.shape[1])
""",
    "phases with momentum": """
f = torch.fft.rfft(x)
g = f - torch.fft.rfft(x.flip(1)) * 0.5
angles = g / g.abs().add(1e-3)
return torch.fft.irfft(angles * f.abs(), n=x.shape[1]), (f + angles).real
""",
    "sums with real numbers": """
f = torch.fft.rfft(x)
g = x[:, :1] - (f + 0.25) * 2.0 + x[0, 0]
return torch.fft.irfft(g / x[:, :1].exp(), n=x.shape[1]), (1.0 - g).abs()
""",
    "numbers of parts": """
z = torch.polar(x.exp(), x) + torch.complex(x, -x[:1])
return torch.fft.ifft(z).abs()
""",
    "turned pairs": """
z = torch.view_as_complex(x.reshape(x.shape[0], -1, 2)) * self.turns[: x.shape[1] // 2]
return torch.view_as_real(z).flatten(1)
""",
}
TURNS = "self.register_buffer('turns', torch.polar(torch.ones(64), torch.arange(64.0)))"


@pytest.mark.parametrize("name", PROGRAMS)
def test_complex_numbers_are_computed_by_their_parts(name: str) -> None:
    layers = TURNS if "turns" in PROGRAMS[name] else "pass"
    source = program(PROGRAMS[name], GIVEN, layers, B=8, T=96)
    left = written(source).split('"""')[1].partition("Left to PyTorch:")[2]
    assert not {"mul", "div", "abs", "_conj", "sub", "add"} & {word.strip(".,\n ") for word in left.split()}
    check(source, [], [torch.randn(3, 64)])


def test_what_is_known_of_real_numbers_alone_is_left_to_pytorch_for_complex_ones() -> None:
    text = """
f = torch.fft.rfft(x / x.relu())
return torch.isfinite(f), torch.nan_to_num(f, 0.5).abs(), torch.diff(torch.fft.rfft(x)).abs()
"""
    source = program(text, GIVEN, "pass", B=8, T=96)
    made = written(source)
    assert all(f"torch.{name}(" in made for name in ("isfinite", "nan_to_num", "diff"))
    check(source, [], [torch.randn(3, 64)])
