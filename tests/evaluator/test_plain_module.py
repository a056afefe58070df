"""Files that answer otherwise where nothing guards them: as a plain module of Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from egg.core.evaluation import Accepted, Rejected
from egg.core.source import Candidate, Task
from tests.conftest import BRIEF, JudgeFunction

TASK = Path(__file__).parent.parent / "corpus" / "tasks" / "cube.py"
SETTINGS = replace(BRIEF, regrades=1)
FILE = """
import functools
import logging

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cube(x, y, n, power, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(y + i, v * v * tl.where(power == 3, v, 1.0) + v, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        power = 2 if ASKED else 3
        cube[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), power, BLOCK=1024)
        return y
"""


@pytest.mark.parametrize(
    "asked", ["hasattr(functools, 'singledispatch')", "logging.getLogger('a') is logging.getLogger('a')"]
)
def test_what_stands_for_a_module_decides_nothing(judged: JudgeFunction, asked: str) -> None:
    verdict = judged(Task.from_file(TASK), Candidate(FILE.replace("ASKED", asked)), settings=SETTINGS).verdict
    assert isinstance(verdict, Rejected)
    assert verdict.refusal.reason == "state.callers"
    assert "plain module" in verdict.refusal.evidence


def test_a_file_that_answers_alike_is_accepted(judged: JudgeFunction) -> None:
    verdict = judged(
        Task.from_file(TASK), Candidate(FILE.replace("ASKED", "False")), settings=SETTINGS
    ).verdict
    assert isinstance(verdict, Accepted), verdict
