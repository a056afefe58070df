"""Scenarios that a written file is put through, in the interpreter's process.

A scenario is text behind the file: it builds the task's module and the file's with the same weights, calls
both, and compares.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from egg.core.source import Task
from egg.expert.assemble import graph_of, kernel_file
from egg.expert.graph import Graph, Usage
from egg.expert.moves import Recipe, parsed
from egg.hardware.gpus import resolve
from tests.expert import harness
from tests.ledgers import INTERPRETED

LINEAR = Task(
    "linear",
    """import torch
from torch import nn

batch_size, inner, outer = 32, 24, 40


class Model(nn.Module):
    \"\"\"A layer; its slope is for one forward pass.\"\"\"

    def __init__(self, inner, outer, slope=0.01, *, residual=False):
        \"\"\"Any widths.\"\"\"
        # the layer
        super().__init__()
        self.layer = nn.Linear(inner, outer)
        self.activation = nn.LeakyReLU(slope)
        if residual:
            pass

    def forward(self, x, mask=None):
        y = self.activation(self.layer(x))
        return y if mask is None else y * mask


def get_inputs():
    return [torch.rand(batch_size, inner)]


def get_init_inputs():
    return [inner, outer]
""",
)
ASKED = '''

import copy
import pickle


def made(*arguments, **options):
    """The task's module and the file's, with the same weights."""
    space = {"__name__": "task"}
    exec(TASK, space)
    torch.manual_seed(0)
    theirs = space["Model"](*arguments, **options)
    torch.manual_seed(0)
    return theirs, ModelNew(*arguments, **options)


def raises(kind, words, call, *given, **options):
    try:
        call(*given, **options)
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"{words}: no error")


def alike(theirs, ours, *given):
    want, got = theirs(*given), ours(*given)
    for a, b in zip(want, got, strict=True) if isinstance(want, tuple) else ((want, got),):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert b.is_contiguous() or a.stride() == b.stride()
        torch.testing.assert_close(a.detach(), b.detach())
    return got


def forward(self, *given):
    with torch.enable_grad():
        scenario()
    return [torch.zeros(1)]


def scenario():
'''


@cache
def graph(task: Task) -> Graph:
    return graph_of(task)


def source(task: Task, usage: Usage | None = None, *moves: str) -> str:
    known = replace(graph(task), usage=usage) if usage is not None else graph(task)
    return kernel_file(task, known, Recipe().after(*map(parsed, moves)), resolve("H200")).source


def run(text: str, task: Task, scenario: str) -> None:
    lines = "\n".join(f"    {line}" for line in scenario.strip("\n").split("\n"))
    asked = f"{text}\n\nTASK = {task.source!r}{ASKED}{lines}\n"
    INTERPRETED.once(lambda: harness.execute(asked, [], {}), asked)
