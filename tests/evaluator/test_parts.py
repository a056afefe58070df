"""Operators that stand for several others, where the reference is written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from egg.core.policy import Policy
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.transport.protocol import Record, Spent
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.watch import Watch

X, W = torch.randn(16, 40), torch.randn(40, 40)
Q, K, V = (torch.randn(1, 2, 32, 16) for _ in range(3))
IMAGE, FILTER = torch.randn(1, 8, 6, 6), torch.randn(8, 8, 3, 3)
CAUSAL = torch.ones(32, 32, dtype=torch.bool).tril()
Program = Callable[[], Any]


def ran(program: Program) -> Recorder:
    with torch.no_grad(), Recorder(launched=lambda: 0) as recorder:
        program()
    return recorder


def see(reference: Program, library: Program) -> None:
    """Hold what PyTorch ran beside own kernels to what the reference does."""
    wanted, done = ran(reference), ran(library)
    watch = Watch(Policy(), wanted.compute, wanted.moves, wanted.work()[1], 1, True, wanted.parts)
    spent = Spent(*astuple(done.work()[1]))
    watch.see(Record(done.compute, done.moves, {}, {}, {"kernel": 1}, spent, spent, done.parts))


def scores() -> torch.Tensor:
    return Q @ K.transpose(-1, -2) / 4.0


def exponentials() -> torch.Tensor:
    found = scores()
    powers = torch.exp(found - found.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True) @ V


def norm() -> torch.Tensor:
    mean, variance = X.mean(-1, keepdim=True), X.var(-1, keepdim=True, unbiased=False)
    return (X - mean) / torch.sqrt(variance + 1e-5) * W[0] + W[1]


@pytest.mark.parametrize(
    ("reference", "library"),
    [
        (lambda: X @ W + W[0], lambda: torch.addmm(W[0], X, W)),
        (lambda: X @ W * 0.5 + W[0], lambda: torch.addmm(W[0], X, W, alpha=0.5)),
        (lambda: Q[0] @ K[0].mT + 1.0, lambda: torch.baddbmm(torch.ones(1, 1, 1), Q[0], K[0].mT)),
        (lambda: F.conv2d(IMAGE, FILTER) + W[0, :8, None, None], lambda: F.conv2d(IMAGE, FILTER, W[0, :8])),
        (lambda: torch.softmax(scores(), -1) @ V, lambda: F.scaled_dot_product_attention(Q, K, V)),
        (exponentials, lambda: F.scaled_dot_product_attention(Q, K, V)),
        (
            lambda: torch.softmax(scores().masked_fill(~CAUSAL, -torch.inf), -1) @ V,
            lambda: F.scaled_dot_product_attention(Q, K, V, is_causal=True),
        ),
        (
            lambda: torch.softmax(scores() + W[:32, :32], -1) @ V,
            lambda: F.scaled_dot_product_attention(Q, K, V, attn_mask=W[:32, :32]),
        ),
        (norm, lambda: F.layer_norm(X, (40,), W[0], W[1])),
        (lambda: (X[:, None] - W[None]).square().sum(-1).sqrt(), lambda: torch.cdist(X, W)),
    ],
)
def test_the_whole_reference_in_one_operator(reference: Program, library: Program) -> None:
    with pytest.raises(Refused, match="as much work"):
        see(reference, library)


@pytest.mark.parametrize(
    ("reference", "library"),
    [
        (lambda: torch.relu(X @ W + W[0]), lambda: torch.addmm(W[0], X, W)),
        (lambda: F.gelu(F.linear(X, W, W[0])), lambda: F.linear(X, W, W[0])),
        (lambda: (X @ W + W[0]) * W[1], lambda: torch.addmm(W[0], X, W)),
        (lambda: X @ W + W[0], lambda: X @ W),
        (
            lambda: F.gelu(torch.softmax(scores(), -1) @ V),
            lambda: F.scaled_dot_product_attention(Q, K, V),
        ),
        (
            lambda: torch.softmax(scores(), -1) @ V * W[0, :16],
            lambda: F.scaled_dot_product_attention(Q, K, V),
        ),
        (lambda: F.gelu(norm()), lambda: F.layer_norm(X, (40,), W[0], W[1])),
        (lambda: norm() + X, lambda: F.layer_norm(X, (40,))),
    ],
)
def test_a_part_that_kernels_took_over(reference: Program, library: Program) -> None:
    see(reference, library)


def test_makers_that_are_given_tensors_compute() -> None:
    ends = torch.randn(2)
    assert ran(lambda: torch.linspace(ends[0], ends[1], 8)).compute == {"linspace": 1}
    assert not ran(lambda: torch.linspace(0.0, 1.0, 8)).compute
