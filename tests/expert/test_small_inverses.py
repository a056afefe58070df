"""Factorisations of small matrices are recorded, without the check that waits for the GPU."""

from __future__ import annotations

import pytest
import torch

from tests.expert import elsewhere

CALLS = {
    "torch.linalg.inv(a)": "torch.linalg.inv_ex(",
    "torch.inverse(a)": "torch.linalg.inv_ex(",
    "torch.linalg.cholesky(a)": "torch.linalg.cholesky_ex(",
    "torch.linalg.solve(a, x)": "torch.linalg.solve_ex(",
}


def source(call: str, n: int) -> str:
    forward = f"a = x @ x.transpose(1, 2) + 2.0 * torch.eye(N)\nreturn ({call} * 2.0).relu()"
    return elsewhere.program(forward, "x = torch.randn(B, N, N)", "pass", B=64, N=n)


@pytest.mark.parametrize("call", CALLS)
def test_small_ones_are_recorded(call: str) -> None:
    text = elsewhere.written(source(call, 12))
    assert CALLS[call] in text
    assert "torch.cuda.CUDAGraph()" in text
    elsewhere.check(source(call, 12), [], [torch.randn(5, 12, 12)], digits=1e-4)


@pytest.mark.parametrize("call", CALLS)
def test_large_ones_keep_their_check(call: str) -> None:
    text = elsewhere.written(source(call, 48))
    assert "_ex(" not in text
    assert "torch.cuda.CUDAGraph()" not in text
