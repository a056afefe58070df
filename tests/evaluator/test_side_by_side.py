"""Side-by-side timing asked of a real judge: ranked on a GPU, refused without one."""

from __future__ import annotations

import pytest

from egg.core.errors import UsageError
from egg.core.evaluation import Compiled
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question

TASK = Task(
    "double",
    """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.rand(4096, 8192)]

def get_init_inputs():
    return []
""",
)

SHARED = """
import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = {block}
ROWS = {rows}


@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    at = tl.program_id(0) * BLOCK * ROWS + tl.arange(0, ROWS)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {value}, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), BLOCK * ROWS),)](x, y, x.numel(), BLOCK, ROWS)
        return y
"""


def file(block: int, rows: int = 1, value: str = "x * 2") -> Candidate:
    return Candidate(SHARED.format(block=block, rows=rows, value=value))


def question(*contenders: Candidate) -> Question:
    return Question(TASK, file(256), Policy(level=Level.QUICK), contenders=contenders)


def test_without_a_gpu_side_by_side_timing_is_refused_as_a_question(oracle: Oracle) -> None:
    with pytest.raises(UsageError, match="no GPU"):
        oracle.judge(question(file(512)))


@pytest.mark.gpu
def test_tiles_are_ranked_on_a_gpu() -> None:
    """Tiny blocks are slow, one that does not fit is told, and one that is wrong is ranked all the same."""
    oracle = Oracle("cuda:0")
    try:
        tiny, good, large, wrong = file(16), file(1024), file(1 << 17, 16), file(1024, value="x * 3")
        evaluation = oracle.judge(question(tiny, good, large, wrong))
    finally:
        oracle.close()
    assert evaluation.accepted
    assert not evaluation.checked
    assert isinstance(getattr(evaluation.verdict, "performance", None), Compiled)
    assert [rival.candidate_hash for rival in evaluation.contenders] == [
        candidate.hash for candidate in (tiny, good, large, wrong)
    ]
    slow, fast, none, other = evaluation.contenders
    assert slow.gain is not None
    assert fast.gain is not None
    assert other.gain is not None
    assert slow.gain.high < 0.8 < 0.95 < fast.gain.low
    assert 0.9 < other.gain.median / fast.gain.median < 1.1
    assert none.milliseconds is None
    assert none.reason
