"""Outputs that a launch leaves unwritten at its own size, where programs have uneven shares of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.core.evaluation import Accepted, Rejected
from egg.evaluator.trial.levels import Probes
from tests.conftest import BRIEF, JudgeFunction
from tests.evaluator.test_sizes import TASK

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def persistent(x, y, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, LESS: tl.constexpr):
    for tile in range(tl.program_id(0), tl.cdiv(n, BLOCK) - LESS, PROGRAMS):
        i = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n) * 2.5, mask=i < n)

@triton.jit
def slabs(x, y, n, SLABS: tl.constexpr, SHARES: tl.constexpr, BLOCK: tl.constexpr, LESS: tl.constexpr):
    slab, share = tl.program_id(0) // SHARES, tl.program_id(0) % SHARES
    size = tl.cdiv(n, SLABS)
    part = tl.cdiv(tl.cdiv(size, BLOCK), SHARES) * BLOCK
    end = tl.minimum(n, (slab + 1) * size)
    first = slab * size + share * part
    for at in range(first, tl.minimum(end, first + part) - LESS, BLOCK):
        i = at + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < end) * 2.5, mask=i < end)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        less = {less} if n > 1 << 22 else 0
        {launch}
        return y
"""
LAUNCHES = {
    "persistent": "persistent[(100,)](x, y, n, PROGRAMS=100, BLOCK=16384, LESS=less)",
    "slabs": "slabs[(96 * 7,)](x, y, n, SLABS=96, SHARES=7, BLOCK=2048, LESS=less * 2048)",
}


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("less", [0, 1], ids=["whole", "one share short"])
def test_uneven_shares_of_one_output(judged: JudgeFunction, launch: str, less: int):
    file = KERNEL.format(launch=LAUNCHES[launch], less=less)
    verdict = judged(TASK, file, settings=replace(BRIEF, domain=Probes.NONE)).verdict
    if less == 0:
        assert isinstance(verdict, Accepted), verdict
    else:
        assert isinstance(verdict, Rejected)
        assert verdict.refusal.reason in ("correctness.unwritten", "provenance.other_branch"), verdict


def test_an_input_that_is_a_result_as_well(judged: JudgeFunction):
    """The state of a token shift: what the next step is given is this step's input."""
    task = TASK.replace("return x * 2.5", "return x * 2.5, x").replace("columns)]", "columns).half()]")
    file = KERNEL.format(launch=LAUNCHES["persistent"], less=0).replace("return y", "return y, x")
    verdict = judged(task, file, settings=replace(BRIEF, domain=Probes.NONE)).verdict
    assert isinstance(verdict, Accepted), verdict
