"""Groups are called by what they are for, where the program has a word for it."""

from __future__ import annotations

import re

import pytest

from tests.expert.elsewhere import program, written

ROWS = "x = torch.randn(n, d)"
PAIR = "x = torch.randn(n, d);y = torch.randn(n, d)"
CLASSES = "x = torch.randn(n, d);y = torch.randint(0, d, (n,))"
PURPOSES = {
    "cross_entropy": ("return F.cross_entropy(x, y)", CLASSES),
    "mse_loss": ("return torch.mean((x - y) ** 2)", PAIR),
    "huber_loss": ("return F.smooth_l1_loss(x, y)", PAIR),
    "layer_norm": (
        "m = x.mean(-1, keepdim=True)\n"
        "return (x - m) / torch.sqrt(((x - m) ** 2).mean(-1, keepdim=True) + 1e-5)",
        ROWS,
    ),
    "rms_norm": ("return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)", ROWS),
    "normalize": ("return F.normalize(x, dim=1)", ROWS),
    "gelu": ("return 0.5 * x * (1.0 + torch.erf(x / 2.0**0.5))", ROWS),
    "silu": ("return x * torch.sigmoid(x)", ROWS),
    "silu_mul": ("return x * torch.sigmoid(x) * y", PAIR),
    "log_softmax": ("return torch.log_softmax(x, dim=1)", ROWS),
    "rotary": ("a, b = x.chunk(2, dim=-1)\nreturn x * y + torch.cat([-b, a], dim=-1) * y", PAIR),
    "add_relu": ("return torch.relu(x + y)", PAIR),
}


@pytest.mark.parametrize("purpose", PURPOSES)
def test_kernels_are_named_by_purpose(purpose: str) -> None:
    forward, inputs = PURPOSES[purpose]
    text = written(program(forward, inputs, n=512, d=64))
    kernels = re.findall(r"^def (\w+)_kernel\(", text, re.MULTILINE)
    assert purpose in {re.sub("_(parts|finish)$", "", name) for name in kernels}
