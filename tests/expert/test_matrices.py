"""Small matrices: read in their spellings, factored by one thread each, raising what PyTorch raises."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.source import Task
from egg.expert.algebra.simplify import simplify
from egg.expert.reading.capture import capture
from tests.expert import elsewhere, harness
from tests.expert.captured import check as check_graph

A, B = "a = torch.randn(B, N, N)", "b = torch.randn(B, N, K)"
SPD = "s = a @ a.mT + 0.5 * torch.eye(N)\n"
CALLS = {
    "torch.linalg.cholesky(s)": 1,
    "torch.linalg.cholesky(s, upper=True)": 1,
    "torch.linalg.cholesky_ex(s)": 2,
    "torch.cholesky_solve(b, torch.linalg.cholesky(s))": 1,
    "torch.cholesky_solve(b, torch.linalg.cholesky(s, upper=True), upper=True)": 1,
    "torch.linalg.solve_triangular(a.tril(), b, upper=False, unitriangular=True)": 1,
    "torch.linalg.solve_triangular(s.mT, b.mT, upper=True, left=False)": 1,
    "torch.linalg.solve(a, b)": 1,
    "torch.linalg.solve(a, b[..., 0])": 1,
    "torch.linalg.solve(a, b.mT, left=False)": 1,
    "torch.linalg.solve_ex(a, b)": 2,
    "torch.linalg.inv(a)": 1,
    "torch.linalg.inv_ex(a)": 2,
    "a.inverse() @ b": 1,
    "torch.linalg.det(a)": 1,
    "torch.linalg.slogdet(a)": 2,
    "torch.logdet(s)": 1,
}
"""How many results each has."""


def source(call: str, n: int, k: int = 2, batch: int = 40) -> str:
    forward = f"{SPD if 's' in call.replace('solve', '').replace('linalg', '') else ''}made = {call}\n"
    forward += "return made" if CALLS.get(call, 1) == 1 else "return made[0], made[1]"
    return elsewhere.program(forward, f"{A}; {B}", "pass", B=batch, N=n, K=k)


def matrices(batch: int, n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(batch, n, n, generator=torch.Generator().manual_seed(seed)) + 0.1 * torch.eye(n)


@pytest.mark.parametrize("call", CALLS)
def test_every_spelling_is_one_kernel(call: str) -> None:
    text = elsewhere.written(source(call, 3))
    assert text.count("@triton.jit") == 1
    assert "torch.linalg.LinAlgError" in text if "raises" in _attributes(call) else "LinAlgError" not in text
    elsewhere.check(source(call, 3), [], [matrices(37, 3), torch.randn(37, 3, 2)], digits=2e-3)


def _attributes(call: str) -> str:
    """``raises`` for the calls that look for failures."""
    silent = ("_ex(", "det(", "solve_triangular(")
    return "" if any(word in call for word in silent) else "raises"


@pytest.mark.parametrize("call", CALLS)
def test_the_graph_computes_the_same(call: str) -> None:
    task = Task("spelled", source(call, 4))
    check_graph(simplify(capture(task)), task)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_every_order_that_a_thread_holds(n: int) -> None:
    call = "torch.linalg.solve(a, b)"
    elsewhere.check(source(call, n, 1), [], [matrices(33, n, 3), torch.randn(33, n, 1)], digits=2e-3)


def test_larger_ones_are_left_to_the_library() -> None:
    text = elsewhere.written(source("torch.linalg.solve(a, b).relu()", 12))
    assert "torch.linalg.solve" in text
    assert "matrices in the registers" not in text


def run(text: str, *inputs: torch.Tensor) -> list[Any]:
    return harness.execute(text + elsewhere.RUN, inputs, {"arguments": [], "state": {}})


# -- pivots, and matrices without a factorisation -------------------------------------------------------


@given(st.lists(st.lists(st.integers(-3, 3), min_size=9, max_size=9), min_size=1, max_size=6))
@settings(max_examples=25, deadline=None)
def test_pivots_are_those_of_lapack(rows: list[list[int]]) -> None:
    """Whole numbers, many of them equal or zero: rows must be exchanged, and some matrices are singular."""
    text = elsewhere.written(source("torch.linalg.solve_ex(a, b)", 3, 1))
    a = torch.tensor(rows, dtype=torch.float32).reshape(-1, 3, 3)
    b = torch.arange(3.0).reshape(1, 3, 1).repeat(len(a), 1, 1) + 1
    made, codes = run(text, a, b)
    exact = torch.linalg.det(a.double()).abs() > 0.5
    wanted = torch.linalg.solve(a[exact].double(), b[exact].double())
    torch.testing.assert_close(made[exact].double(), wanted, rtol=2e-4, atol=2e-4)
    assert not codes[exact].any()
    assert codes.dtype == torch.int32


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_codes_of_indefinite_matrices_are_those_of_lapack(seed: int, batch: int) -> None:
    text = elsewhere.written(elsewhere.program("return torch.linalg.cholesky_ex(a)", A, "pass", B=9, N=4))
    a = matrices(batch, 4, seed)
    a = a + a.mT + 2 * torch.eye(4)
    _, codes = run(text, a)
    assert torch.equal(codes, torch.linalg.cholesky_ex(a)[1])


FAILING = {
    "torch.linalg.cholesky(a)": torch.tensor([1.0, 1.0, -1.0]).diag(),
    "torch.linalg.inv(a)": torch.tensor([1.0, 0.0, 1.0]).diag(),
    "torch.linalg.solve(a, b)": torch.ones(3, 3),
    "torch.linalg.inv_ex(a, check_errors=True)[0]": torch.zeros(3, 3),
}


@pytest.mark.parametrize("call", FAILING)
def test_what_has_no_factorisation_raises_as_in_pytorch(call: str) -> None:
    """The first item that fails, in the same words; and the call after it is not refused for it."""
    text, good = elsewhere.written(source(call, 3)), torch.eye(3).repeat(70, 1, 1)
    bad, right = good.clone(), torch.randn(70, 3, 2)
    bad[41], bad[69] = FAILING[call], FAILING[call]
    with pytest.raises(torch.linalg.LinAlgError) as wanted:
        eval(call, {"torch": torch, "a": bad, "b": right})
    first = "\n\ndef forward(self, *inputs):\n    model = ModelNew()\n    try:\n        model(*inputs[:2])\n"
    first += "    except torch.linalg.LinAlgError as error:\n        message = str(error)\n"
    first += "    model(*inputs[2:])\n    return [torch.tensor([ord(letter) for letter in message])]\n"
    (letters,) = harness.execute(text + first, [bad, right, good, right], {})
    assert "".join(map(chr, letters.tolist())) == str(wanted.value)


def test_a_single_matrix_is_named_without_an_item() -> None:
    task = elsewhere.program("return torch.linalg.inv(a)", "a = torch.randn(N, N)", "pass", N=3)
    text = elsewhere.written(task)
    elsewhere.check(task, [], [matrices(1, 3)[0]], digits=1e-4)
    with pytest.raises(Exception, match=r"linalg.inv: The diagonal element 2 is zero"):
        run(text, torch.tensor([1.0, 0.0, 1.0]).diag())


# -- what surrounds them --------------------------------------------------------------------------------


def test_a_filter_step_is_one_kernel() -> None:
    forward = """
predicted = f @ p @ f.mT + 0.1 * torch.eye(D)
cross = predicted @ h.mT
left = torch.linalg.cholesky(h @ cross + r)
gain = torch.cholesky_solve(cross.mT, left).mT
moved = x + (gain @ (z - x @ h.mT).unsqueeze(-1)).squeeze(-1)
return moved, predicted - gain @ h @ predicted"""
    inputs = "x = torch.randn(B, D); p = torch.randn(B, D, D); z = torch.randn(B, M); f = torch.eye(D)"
    inputs += "; h = torch.eye(M, D); r = torch.eye(M)"
    task = elsewhere.program(forward, inputs, "pass", B=50, D=4, M=2)
    text = elsewhere.written(task)
    assert text.count("@triton.jit") == 1
    p = matrices(37, 4)
    given = [torch.randn(37, 4), p @ p.mT + torch.eye(4), torch.randn(37, 2), matrices(1, 4)[0]]
    elsewhere.check(task, [], [*given, torch.randn(2, 4), torch.eye(2)], digits=2e-4)


def test_what_is_too_much_for_a_thread_is_several_kernels() -> None:
    forward = "i = torch.linalg.inv(a)\nreturn torch.linalg.solve(b + i, c @ i)"
    inputs = "a = torch.randn(B, N, N); b = torch.randn(B, N, N); c = torch.randn(B, N, N)"
    task = elsewhere.program(forward, inputs, "pass", B=40, N=7)
    text = elsewhere.written(task)
    assert text.count("@triton.jit") > 1
    elsewhere.check(task, [], [matrices(5, 7, seed) + 4 * torch.eye(7) for seed in range(3)], digits=2e-3)
