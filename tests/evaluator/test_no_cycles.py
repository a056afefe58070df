"""What the judge held for a question is gone with the question, without waiting for the garbage collector."""

from __future__ import annotations

import gc
import weakref

import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program, map_tensors

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.fc(x))

def get_inputs():
    return [torch.randn(16, 8)]

def get_init_inputs():
    return []
"""


def test_changed_tensors_are_not_kept() -> None:
    gc.disable()
    try:
        changed = map_tensors([torch.ones(3), {"a": torch.ones(2)}], lambda t: t * 2)
        seen = weakref.ref(changed[0])
        del changed
        assert seen() is None
    finally:
        gc.enable()


def test_a_question_is_freed_with_its_fp64_run() -> None:
    with Program.load(Task("small", TASK)) as program:
        reference = Reference(program, Precision.MATCH, torch.device("cpu"))
        gc.collect()
        gc.disable()
        try:
            case = reference.case("one")
            held = [weakref.ref(t) for t in (*case.tensors, case.outputs[0][1], case.golden[0][1])]
            del case
            assert [ref() for ref in held] == [None] * 3
        finally:
            gc.enable()
