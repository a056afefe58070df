"""What is left of a file's claims when time ends the trying."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import torch

from egg.core.domain import Domain, Gradients, Layout, TensorInput
from egg.core.source import Task
from egg.evaluator.gates.claims import Claims, Seen
from egg.evaluator.reference.forms import Form
from egg.evaluator.reference.probes import Change, Given
from egg.evaluator.task.dimensions import Axis, Place
from egg.evaluator.task.program import Program

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return 2 * x

def get_inputs():
    return [torch.randn(4, 8)]

def get_init_inputs():
    return []
"""
DOMAIN = Domain.of_literal(
    {
        "inputs": {"x": {"dtypes": ["float32"], "shape": ["rows", "2 * pairs"], "layout": "any"}},
        "sizes": {"rows": {}, "pairs": {}},
        "gradients": "backward",
    }
)
LARGER = Change(sizes=((Axis((Place((0,), 0),), 4), 9),))
SMALLER = Change(sizes=((Axis((Place((0,), 0),), 4), 3),))
LAID = Change(forms=(((0,), (Form.TRANSPOSED,)),))


def left(*right: Change, late: bool = True, gradients: bool = True) -> tuple[Domain, TensorInput, list[str]]:
    with Program.load(Task("small", TASK)) as program:
        reference = SimpleNamespace(program=program, module=SimpleNamespace(training=True))
        trial = cast(Any, SimpleNamespace(reference=reference))
        claims = Claims(trial, DOMAIN, Given.of([torch.randn(4, 8)]))
        domain, struck = claims.tried(Seen(right, (), late=late), gradients=gradients)
    assert domain is not None
    [given] = domain.inputs
    assert isinstance(given, TensorInput)
    return domain, given, struck


def test_a_size_of_which_nothing_larger_was_tried_is_the_tasks_own():
    _, given, struck = left(SMALLER, LAID)
    assert given.shape == (4, "2 * pairs")
    assert "rows at other sizes" in struck


def test_what_was_tried_is_left_and_a_layout_that_was_not_is_struck():
    _, given, struck = left(LARGER)
    assert given.shape[0] == "rows"
    assert given.layout is Layout.CONTIGUOUS
    assert "x in other layouts" in struck
    assert left(LARGER, LAID)[1].layout is Layout.ANY


def test_nothing_of_it_is_struck_where_there_was_time():
    _, given, _ = left(late=False)
    assert (given.shape[0], given.layout) == ("rows", Layout.ANY)


def test_gradients_that_were_never_tried_are_struck():
    domain, _, struck = left(LARGER, LAID, gradients=False)
    assert domain.gradients is Gradients.NONE
    assert "gradients" in struck
