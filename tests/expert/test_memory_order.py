"""Values that lie otherwise than their dimensions are ordered: spectra, reductions over several of them."""

from __future__ import annotations

import pytest

from egg.expert.moves import Recipe
from tests.expert.elsewhere import normal, program, written
from tests.expert.test_across import body_of

SPECTRUM = """
power = torch.stft(x, 64, 16, window=self.hann, return_complex=True)[..., :-1].abs() ** 2
log = torch.clamp(self.filters.abs() @ power, min=1e-10).log10()
return torch.maximum(log, log.amax(dim=(1, 2), keepdim=True) - 8.0)
"""
BUFFERS = """
self.register_buffer('hann', torch.hann_window(64))
self.filters = nn.Parameter(torch.rand(bands, 33))
"""


def loads(text: str) -> str:
    """The lines of kernels that load or store something."""
    return "\n".join(line for line in text.split("\n") if "tl.load(" in line or "tl.store(" in line)


def test_a_spectrum_is_read_as_the_library_makes_it():
    source = program(SPECTRUM, "x = torch.randn(n, 4096)", BUFFERS, "bands", n=4, bands=16)
    body = body_of(source, Recipe(), [normal(2, 4096)], [16])
    launches = body.split("def launches")[-1]
    assert "torch.view_as_real(stft).transpose(1, 2).contiguous()" in launches, "which copies nothing"
    assert "empty_strided" not in launches


@pytest.mark.parametrize("fn", ["amax", "mean"])
def test_a_reduction_goes_over_its_rows_as_they_lie(fn: str):
    """All of each example, whose last dimension is not the innermost one."""
    forward = f"y = torch.tanh(x.permute(0, 2, 1))\nreturn y - y.{fn}(dim=(1, 2), keepdim=True)"
    source = program(forward, "x = torch.randn(n, 100, 80)", n=4)
    body_of(source, Recipe(), [normal(3, 100, 80)], [])
    assert " % " not in loads(written(source)), "rows of the operand are not looked for"


PARTS = """
spectrum = torch.stft(x, 64, 16, window=self.hann, return_complex=True)
power = spectrum.real ** 2 + spectrum.imag ** 2
return torch.sqrt(power + 1e-9).mean(dim=(1, 2))
"""


def test_both_parts_of_a_spectrum_are_read_where_they_lie():
    source = program(PARTS, "x = torch.randn(n, 4096)", BUFFERS, "bands", n=4, bands=16)
    body = body_of(source, Recipe(), [normal(2, 4096)], [16])
    launches = body.split("def launches")[-1]
    assert launches.count("view_as_real(") == 1
    assert "torch.real" not in launches
    assert "torch.imag" not in launches


def test_parts_are_taken_where_a_conjugation_may_be_outstanding():
    forward = "z = torch.fft.rfft(x).adjoint()\nreturn z.real * 2.0 + z.imag"
    body = body_of(program(forward, "x = torch.randn(n, 64)", n=4), Recipe(), [normal(4, 64)], [])
    assert "view_as_real" not in body
    assert "torch.imag" in body


def test_parts_of_an_argument_are_pytorchs():
    forward = "return z.real * 2.0 + z.imag"
    text = written(program(forward, "z = torch.fft.rfft(torch.randn(n, 64))", n=4))
    assert "view_as_real" not in text
