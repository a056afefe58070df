"""Factorisations of matrices of a few rows by the library are recorded; errors are raised behind them."""

from __future__ import annotations

import re

import pytest
import torch

from tests.expert import elsewhere, harness

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
def test_what_has_no_factorisation_raises_as_in_pytorch(call: str) -> None:
    inputs = "a = torch.randn(B, N, N); x = torch.randn(B, N, N)"
    task = elsewhere.program(f"return ({call} * 2.0).relu()", inputs, "pass", B=64, N=12)
    bad = torch.eye(12).repeat(9, 1, 1)
    bad[5, 3, 3] = bad[7, 2, 2] = 0.0
    with pytest.raises(torch.linalg.LinAlgError) as wanted:
        eval(call, {"torch": torch, "a": bad, "x": bad})
    with pytest.raises(harness.Failed, match=re.escape(str(wanted.value))):
        elsewhere.run(task, [], [bad, bad])


@pytest.mark.parametrize("call", CALLS)
def test_large_ones_keep_their_check(call: str) -> None:
    text = elsewhere.written(source(call, 48))
    assert "_ex(" not in text
    assert "torch.cuda.CUDAGraph()" not in text
