"""The structure of results, and which tensors of a task the judge computes with."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.task.structure import plain, structure_of

Pair = namedtuple("Pair", "first second")
X = torch.zeros(2)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (X, "tensor"),
        (nn.Parameter(X), "tensor"),
        ((X, 3, 3.0, True), "tuple(tensor, int, float, bool)"),
        ([X, (X,)], "list(tensor, tuple(tensor))"),
        (Pair(X, 1j), "tuple(tensor, complex)"),
        (OrderedDict(a=X), "dict(a: tensor)"),
        (torch.topk(torch.arange(4.0), 2), "tuple(tensor, tensor)"),
    ],
)
def test_structure_in_words(value: Any, words: str) -> None:
    assert structure_of(value) == words
    assert structure_of(plain(value)) == words


class Lenient(torch.Tensor):
    pass


class Large(float):
    def __sub__(self, other: Any) -> float:
        return 0.0


def test_numbers_become_pythons_own() -> None:
    assert type(plain({"a": Large(2.5)})["a"]) is float


@pytest.mark.parametrize("value", [X.as_subclass(Lenient), (X, [X.as_subclass(Lenient)])])
def test_a_tensor_of_another_class_is_refused(value: Any) -> None:
    with pytest.raises(TaskError, match="class Lenient"):
        plain(value)


TASK = """
import torch
import torch.nn as nn


class Lenient(torch.Tensor):
    pass


class Model(nn.Module):
    def forward(self, x):
        return {returned}


def get_inputs():
    return [{given}]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("returned", "given"),
    [("(x + 1).as_subclass(Lenient)", "torch.randn(4)"), ("x + 1", "torch.randn(4).as_subclass(Lenient)")],
)
def test_a_task_has_plain_tensors(returned: str, given: str) -> None:
    task = Task("lenient", TASK.format(returned=returned, given=given))
    with Program.load(task) as program, pytest.raises(TaskError, match="class Lenient"):
        Reference(program, Precision.MATCH, torch.device("cpu"))
