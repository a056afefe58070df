"""Calls beside the captured one: values in other memory, sizes that indices allow, smaller examples."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from egg.core.source import Task
from egg.evaluator.reference.arguments import (
    far_arguments,
    far_values,
    jointly,
    other_arguments,
    other_values,
)
from egg.evaluator.reference.forms import LEVELLING, Form, fitting
from egg.evaluator.reference.probes import (
    Alias,
    Change,
    Given,
    axes_of,
    even_size,
    larger_size,
    legal,
    odd_size,
    residue_size,
)
from egg.evaluator.task.dimensions import Axis, Place
from egg.evaluator.task.program import Program

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features, slope=0.01, residual=False, name="relu", mask=None):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.slope, self.residual = slope, residual

    def forward(self, x):
        y = torch.nn.functional.leaky_relu(self.linear(x), self.slope)
        return y + x if self.residual else y

def get_inputs():
    return [torch.randn(8, 8)]

def get_init_inputs():
    return [8]
"""
TASK = Task("small", SOURCE)
ROWS = Axis((Place((0,), 0),), 8)


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("shape", [(6,), (4, 6), (2, 3, 4, 5), (2, 3, 4, 5, 2)], ids=str)
def test_a_form_keeps_the_values_and_changes_the_memory(form: Form, shape: tuple[int, ...]):
    given = torch.randn(shape)
    if not fitting(form, given):
        assert form not in (Form.STRIDED, Form.OFFSET, Form.EXPANDED)
        return
    [made] = Change(forms=(((0,), (form,)),)).inputs([given], 0)
    if form not in (*LEVELLING, Form.WINDOWS):
        assert torch.equal(made, given)
    assert (made.stride(), made.storage_offset()) != (given.stride(), 0)
    if form is Form.OFFSET:
        assert made.data_ptr() % 16
    if form is Form.STRIDED:
        assert made.untyped_storage().nbytes() == 2 * given.untyped_storage().nbytes()
    if form is Form.ROWS:
        assert made.stride(-1) == 1
        assert made.stride(-2) > given.shape[-1]


@pytest.mark.parametrize("shape", [(3, 3), (16, 64), (4, 6), (2, 7), (5, 2)], ids=str)
def test_windows_share_elements_and_end_inside_the_tensor(shape: tuple[int, int]):
    given = torch.arange(float(shape[0] * shape[1])).view(shape)
    [made] = Change(forms=(((0,), (Form.WINDOWS,)),)).inputs([given], 0)
    assert len(torch.unique(made)) < made.numel()
    assert int(made.max()) < given.numel()


def test_windows_reach_as_far_as_a_dense_tensor_where_sizes_permit():
    [made] = Change(forms=(((0,), (Form.WINDOWS,)),)).inputs([torch.arange(1024.0).view(16, 64)], 0)
    assert int(made.max()) == 1023
    assert made.stride() not in ((64, 1), (1, 16))


def test_a_cycle_of_dimensions_is_not_its_own_inverse():
    given = torch.randn(2, 3, 4)
    [inner] = Change(forms=(((0,), (Form.INNERMOST,)),)).inputs([given], 0)
    [outer] = Change(forms=(((0,), (Form.OUTERMOST,)),)).inputs([given], 0)
    assert (inner.stride(), outer.stride()) == ((1, 8, 2), (3, 1, 6))


def test_a_later_part_begins_on_a_boundary_behind_as_many_elements():
    [made] = Change(forms=(((0,), (Form.LATER,)),)).inputs([torch.randn(4, 6)], 0)
    assert made.storage_offset() == 64
    assert made.is_contiguous()


@pytest.mark.parametrize("transposed", [False, True])
def test_two_inputs_may_lie_in_one_memory(transposed: bool):
    alias = Alias((0,), (1,), transposed)
    a, b = Change(alias=alias).inputs([torch.randn(4, 6), torch.randn(4, 6)], 0)
    assert a.data_ptr() == b.data_ptr()
    assert b.stride() == ((1, 4) if transposed else (6, 1))


def test_gaps_between_elements_and_between_rows_go_together():
    given = torch.randn(4, 6)
    [made] = Change(forms=(((0,), (Form.STRIDED, Form.OFFSET, Form.ROWS)),)).inputs([given], 0)
    assert torch.equal(made, given)
    assert made.stride() == (15, 2)
    [swapped] = Change(forms=(((0,), (Form.TRANSPOSED, Form.SWAPPED)),)).inputs([torch.randn(2, 3, 4)], 0)
    assert swapped.shape == (2, 3, 4)


@pytest.mark.parametrize("residue", [4, 8, 16])
def test_a_size_may_be_a_multiple_of_little(residue: int):
    given = Given.of([torch.randn(16, 40)])
    for size in (1, 7, 16, 40, 513):
        found = residue_size(Axis((Place((0,), 0),), size), residue, {size}, given)
        assert found is not None
        assert found % (2 * residue) == residue
        assert found != size


def test_other_sizes_do_not_merely_repeat_what_was_there():
    given = torch.randn(8, 8)
    [grown] = Change(sizes=((ROWS, 19),)).inputs([given], 3)
    assert grown.shape == (19, 8)
    assert not torch.equal(grown[:8], grown[8:16])
    assert torch.equal(torch.sign(grown[8:16]), torch.sign(given))
    mask = (torch.rand(8, 8) < 0.5).float()
    [masked] = Change(sizes=((ROWS, 19),)).inputs([mask], 3)
    assert set(masked.unique().tolist()) <= {0.0, 1.0}


def test_an_axis_that_may_be_indexed_does_not_shrink():
    words = Axis((Place((0,), 1),), 40)
    given = Given.of([torch.randn(16, 40), torch.tensor([3, 39, 7])])
    assert not legal(words, 21, given)
    assert legal(words, 41, given)
    assert legal(Axis((Place((0,), 0),), 16), 1, given), "39 is no index into 16 rows"
    assert odd_size(words, set(), given) > 40
    assert larger_size(words, given) == 83


def test_an_even_size_is_no_multiple_of_four():
    given = Given.of([torch.randn(16, 40)])
    for size in (1, 7, 16, 40, 513):
        found = even_size(Axis((Place((0,), 0),), size), {6}, given)
        assert found is not None
        assert found % 4 == 2
        assert found not in (6, size)
    assert even_size(Axis((Place((0,), 0),), 16, step=4), set(), given) is None


def test_numbers_are_tried_on_the_other_side_of_one_and_zero():
    found = far_arguments(TASK)
    assert [value for name, value in found if name == "slope"] == [1.52, -0.01, 0.0]
    assert far_values(3, largest=40) == [0, -1, -3, 44]
    assert far_values(True) == []


def test_strings_are_those_that_pytorch_takes_instead_and_those_of_the_text():
    source = SOURCE.replace("self.residual = slope, residual", "self.residual = slope, name == 'plain'")
    task = Task("words", source)
    found = {value for name, value in far_arguments(task) if name == "name"}
    assert {"gelu", "tanh"} <= found
    plain = Task("plain", task.source.replace('name="relu"', 'name="other"'))
    assert ("name", "plain") in far_arguments(plain)


def test_simple_arguments_get_other_values_with_which_the_program_runs():
    found = dict(other_arguments(TASK))
    assert found == {"slope": 0.005, "residual": True, "name": "gelu"}
    assert dict(jointly(TASK, tuple(found.items()))) == found
    change = Change(arguments=tuple(found.items()))
    with Program.load(TASK) as program:
        assert change.init(program) == ([8], found)


@pytest.mark.parametrize(
    ("value", "others"),
    [
        (True, [False]),
        (None, []),
        ("word", []),
        ("mean", ["sum", "none"]),
        (0.0, [0.125, 0.5]),
        (3, [4, 6, 2, 1]),
    ],
)
def test_values_are_changed_by_their_kind(value: Any, others: list[Any]):
    assert other_values(value) == others


def test_sizes_that_are_equal_by_accident_are_different_axes():
    [rows] = axes_of(TASK)
    assert rows.places == (Place((0,), 0),)


def test_a_change_of_several_things_has_parts_and_smaller_ones():
    change = Change(sizes=((ROWS, 5),), forms=(((0,), (Form.STRIDED, Form.OFFSET)),), training=False)
    assert list(change.parts()) == [
        Change(sizes=((ROWS, 5),)),
        Change(forms=(((0,), (Form.STRIDED,)),)),
        Change(forms=(((0,), (Form.OFFSET,)),)),
        Change(training=False),
    ]
    assert list(Change(training=False).parts()) == []
    assert [value for small in Change(sizes=((ROWS, 5),)).smaller() for _, value in small.sizes] == [1, 2, 3]
    assert Change(sizes=((ROWS, 1),)).degenerate
    assert not change.degenerate
