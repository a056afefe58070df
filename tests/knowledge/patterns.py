"""Patterns that are wrong, each in its own way, made from one that is right."""

from __future__ import annotations

from pathlib import Path

from tests.knowledge.folders import write_skill

RIGHT = '''"""Twice the rows, in one pass."""
import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 64


@triton.jit
def scale(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    tl.store(out_ptr + at, 2 * x, mask=at < size)


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x):
        return 2 * (x + self.weight)


class ModelNew(Model):
    def forward(self, x):
        x = x + self.weight
        out = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)
        return out


def get_init_inputs():
    return [33]


def get_inputs():
    return [torch.randn(5, 33)]
'''

LAUNCH = "        scale[(triton.cdiv(x.numel(), BLOCK),)](x, out, x.numel(), BLOCK=BLOCK)\n"
OWN_WEIGHT = """class ModelNew(Model):
    def __init__(self, width):
        super().__init__(width)
        self.weight = nn.Parameter(torch.rand(width + 1))
"""
BROKEN: dict[str, tuple[str, str, str]] = {
    "wrong result": ("2 * x, mask", "3 * x, mask", "pattern.wrong"),
    "a part that is never written": ("triton.cdiv(x.numel(), BLOCK)", "1", "pattern.wrong"),
    "a fault only where a GPU is": (
        "        x = x + self.weight\n",
        "        if x.is_cuda:\n            raise ValueError(x.shape)\n        x = x + self.weight\n",
        "candidate.error",
    ),
    "another shape": ("        return out\n", "        return out.view(-1)\n", "pattern.form"),
    "another dtype": ("        return out\n", "        return out.half()\n", "pattern.form"),
    "one output more": ("        return out\n", "        return out, out\n", "pattern.outputs"),
    "an input that is changed": (
        "        x = x + self.weight\n",
        "        x += self.weight\n",
        "pattern.wrong",
    ),
    "no launch": (LAUNCH, "        out.copy_(2 * x)\n", "pattern.no_kernel"),
    "weights of another shape": ("class ModelNew(Model):\n", OWN_WEIGHT, "pattern.weights"),
    "a load past the end": ("tl.load(x_ptr + at, mask=at < size)", "tl.load(x_ptr + at)", "kernel."),
    "does not compile": ("2 * x, mask", "tl.dot(x, x), mask", "build.compile"),
    "host code that raises": ("        return out\n", "        return out.nothing\n", "candidate.error"),
    "ends the process": ("        return out\n", "        import os; os._exit(0)\n", "limits.died"),
}


def write_pattern(folder: Path, name: str, source: str, **metadata: str) -> Path:
    """A skill with one pattern."""
    asset = write_skill(folder, name, **metadata).parent / "assets" / "pattern.py"
    asset.parent.mkdir(exist_ok=True)
    asset.write_text(source, encoding="utf-8")
    return asset
