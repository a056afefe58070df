"""What calls of a task leave in Python objects, wherever these are."""

from __future__ import annotations

import pytest

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.lasting import lasting

SOURCE = """
import collections, functools, itertools, random, time
import torch
import torch.nn as nn
{top}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 8) * 0.1)
        {init}

    def forward(self, x):
        g = torch.softmax(x @ self.weight.t(), -1)
        {forward}
        return g


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return []
"""
CLOSURE = """
def make():
    held = None
    def put(value):
        nonlocal held
        held = value
    return put

PUT = make()
"""
COUNTING = """
def counting():
    number = 0
    while True:
        number += 1
        yield number
"""
BOX = """
class Box:
    __slots__ = ("load",)
"""


def _left(top: str, init: str, forward: str) -> list[str]:
    source = SOURCE.format(top=top, init=init or "pass", forward=forward)
    return lasting(Task("small", source), Precision.MATCH)


@pytest.mark.parametrize(
    ("top", "init", "forward", "path"),
    [
        ("", "self._load = None", "self._load = g.mean(0)", "self._load"),
        ("", "self.rows = set()", "self.rows = set(g.argmax(0).tolist())", "self.rows"),
        ("", "", "Model.load = g.mean(0)", "Model.load"),
        ("", "", "self.weight.load = g.mean(0)", "self._parameters['weight'].load"),
        ("STATE = {}", "", "STATE['load'] = g.mean(0)", "STATE['load']"),
        (CLOSURE, "", "PUT(g.mean(0))", "PUT.held's value"),
        ("def f(a=[]): return a", "", "f().append(g.mean(0))", "f's defaults"),
        ("@functools.lru_cache\ndef f(): return []", "", "f().append(g.mean(0))", "f's part"),
        (BOX, "self.box = Box()", "self.box.load = g.mean(0)", "self.box.load"),
        ("", "self.count = itertools.count()", "next(self.count)", "self.count's part"),
        (COUNTING, "self.count = counting()", "next(self.count)", "self.count's part"),
        ("DRAWS = random.Random(3)", "", "DRAWS.random()", "DRAWS"),
        ("", "self._n = 0", "g = g * (1 + 1e-6 * self._n)\n        self._n += 1", "self._n"),
        ("", "self._first = None", "self._first = self._first or float(g.max())", "self._first"),
        ("", "self._penalty = None", "self._penalty = self.weight.square().sum()", "self._penalty"),
    ],
)  # fmt: skip
def test_what_depends_on_inputs_calls_or_weights_is_left(top: str, init: str, forward: str, path: str):
    found = _left(top, init, forward)
    assert found
    assert found[0].startswith(path)


@pytest.mark.parametrize(
    ("top", "init", "forward"),
    [
        ("", "self._mask = None", "self._mask = torch.ones(16, 16).triu()\n        g = g * self._mask"),
        ("TABLES = {}", "", "g = g * TABLES.setdefault(len(x), torch.arange(16.0)[:, None])"),
        ("@functools.lru_cache\ndef table(n): return torch.arange(float(n))", "", "g = g * table(16)"),
        ("", "self._packed = {}", "g = g + x @ self._packed.setdefault('w', self.weight.t().contiguous())"),
        ("", "self._double = None", "self._double = 2 * self.weight\n        g = g + x @ self._double.t()"),
        ("", "self.part = nn.utils.weight_norm(nn.Linear(8, 16))", "g = g + self.part(x)"),
        ("", "self.part = nn.utils.spectral_norm(nn.Linear(8, 16))", "g = g + self.part(x)"),
        ("", "self.part = nn.LSTM(16, 16)", "g = self.part(g)[0]"),
        ("", "self.part = nn.BatchNorm1d(16)", "g = self.part(g)"),
        ("", "self._time = 0.0", "self._time = time.time()"),
        ("", "self._shape = None", "self._shape = x.shape"),
        (
            "",
            "self.register_buffer('mean', torch.zeros(2, 16))\n        self._row = self.mean[0]",
            "self.mean.mul_(0.9).add_(g.mean(0))\n        g = g + self._row",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_is_prepared_or_read_at_once_or_compared_elsewhere_is_not(top: str, init: str, forward: str):
    assert _left(top, init, forward) == []
