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
    assert "return_complex=True, ) .transpose(1, 2) .contiguous()" in launches.replace(").", ") .")
    assert "empty_strided" not in launches


@pytest.mark.parametrize("fn", ["amax", "mean"])
def test_a_reduction_goes_over_its_rows_as_they_lie(fn: str):
    """All of each example, whose last dimension is not the innermost one."""
    forward = f"y = torch.tanh(x.permute(0, 2, 1))\nreturn y - y.{fn}(dim=(1, 2), keepdim=True)"
    source = program(forward, "x = torch.randn(n, 100, 80)", n=4)
    body_of(source, Recipe(), [normal(3, 100, 80)], [])
    assert " % " not in loads(written(source)), "rows of the operand are not looked for"
