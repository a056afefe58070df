"""NumPy in what constructors alone call, and nowhere a call may reach."""

from __future__ import annotations

import pytest

from egg.core.policy import LibraryCalls
from egg.evaluator.static import findings

FILE = """
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


class Helper:
    def __init__(self, x):
        self.value = np.sqrt(x)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = self.made(width)

    def made(self, width):
        return self.root(width) + 1

    def root(self, width):
        return np.sqrt(width)

    def forward(self, x):
        BODY
        y = torch.empty_like(x)
        copy[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), B=64)
        return y
"""


def refused(text: str) -> bool:
    return "static.import" in findings(text, LibraryCalls.ALLOW).codes


def test_methods_that_the_constructor_alone_calls_may_use_it() -> None:
    assert not refused(FILE.replace("BODY", "assert x.dim() > 0"))


@pytest.mark.parametrize(
    "body", ["self.root(2)", "self.made(2)", "kept = self.root", "Helper(2)", "kept = Helper", "'root'"]
)
def test_what_a_call_names_may_not(body: str) -> None:
    assert refused(FILE.replace("BODY", body))


@pytest.mark.parametrize("name", ["train", "extra_repr"])
def test_methods_that_pytorch_calls_may_not(name: str) -> None:
    assert refused(FILE.replace("BODY", "assert x.dim() > 0").replace("root(", f"{name}("))


def test_a_layer_of_pytorchs_calls_more_methods_than_a_module() -> None:
    text = FILE.replace("BODY", "assert x.dim() > 0").replace("ModelNew(nn.Module)", "ModelNew(nn.GRU)")
    assert refused(text)


def test_a_method_that_the_constructor_keeps_may_not() -> None:
    text = FILE.replace("BODY", "assert x.dim() > 0").replace("self.made(width)\n", "self.root\n", 1)
    assert refused(text)
