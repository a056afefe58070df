"""The two ways to the sums of a comparison give the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import astuple
from itertools import product

import pytest
import torch

from egg.evaluator.compare import sums
from egg.evaluator.compare.sums import Allowed

KINDS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
ALLOWED = Allowed(1e-3, 8 * 2.0**-24, 1e-4, own=1e-4, least=1e-5)


def three(kind: torch.dtype, size: int, *, special: bool, device: str = "cpu") -> list[torch.Tensor]:
    """A candidate, a reference and an exact result that disagree in every way there is."""
    generator = torch.Generator().manual_seed(size)
    g = torch.randn(size, generator=generator, dtype=torch.float64) * 10
    r = (g + 1e-4 * torch.randn(size, generator=generator, dtype=torch.float64)).to(kind)
    c = (g + 2e-4 * torch.randn(size, generator=generator, dtype=torch.float64)).to(kind)
    if special:
        values = (1.0, float("nan"), float("inf"), -float("inf"))
        for at, (x, y, z) in enumerate(product(values, repeat=3)):
            if at < size:
                c[-1 - at], r[-1 - at], g[-1 - at] = x, y, z
    return [t.to(device) for t in (c, r, g)]


def check(device: str) -> None:
    sizes = (1, 1023, 70_001 if device == "cuda" else 10_001)
    for kind, size, special in product(KINDS, sizes, (False, True)):
        given = three(kind, size, special=special, device=device)
        label = f"{kind} {size} {special}"
        assert_alike(sums._fused_norms(given), sums._norms_by_pieces(given), label)
        assert_alike(sums._fused_errors(given, ALLOWED), sums._errors_by_pieces(given, ALLOWED), label)


def assert_alike(fused: object, by_pieces: object, label: str) -> None:
    assert astuple(fused) == pytest.approx(astuple(by_pieces), rel=1e-12), label  # pyright: ignore[reportArgumentType]


def test_one_kernel_says_what_many_operations_say():
    """In the interpreter, with few programs, so that each has several blocks."""
    code = "from tests.evaluator import test_sums as t; t.sums.PROGRAMS = 3; t.check('cpu')"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_one_kernel_says_what_many_operations_say_on_a_gpu():
    check("cuda")


@pytest.mark.gpu
def test_more_elements_than_32_bits_count():
    a = torch.ones(2**31 + 5, dtype=torch.float16, device="cuda")
    b = a.clone()
    b[-1] = 3.0
    found = sums.errors([b, a, a], ALLOWED)
    assert (found.cand_sq, found.close) == (4.0, False)
    assert sums.norms([b, a, a]).count == 2**31 + 5
