"""Inputs that forward writes to: what is left there is part of the answer, and questions stay as drawn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program, outputs_of
from egg.evaluator.task.written_inputs import answered, only_read, spared, written_of
from egg.evaluator.timing import opponents
from egg.evaluator.transport import exchange
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.trial import left_alone
from egg.evaluator.trial.refused import Refused

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, given):
{body}

def get_inputs():
    {made}
    return [given]

def get_init_inputs():
    return []
"""


def reference(body: str, made: str) -> Reference:
    indented = "\n".join("        " + line for line in body.splitlines())
    task = Task("written", TASK.format(body=indented, made=made))
    return Reference(Program.load(task), Precision.MATCH, torch.device("cpu"))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["alone", "list", "dict"]), min_size=1, max_size=5), st.data())
def test_what_is_written_goes_by_the_numbers_that_tensors_travel_by(forms: list[str], data: st.DataObject):
    tensor = lambda: torch.randn(3, 4).t()  # noqa: E731
    made = {"alone": tensor, "list": lambda: [tensor(), 2, tensor()], "dict": lambda: {"a": tensor()}}
    inputs = [made[form]() for form in forms]
    _, tensors = exchange.pack(inputs)
    writes = tuple(sorted(data.draw(st.sets(st.integers(0, len(tensors) - 1)))))
    given_ = spared(inputs, writes)
    _, copies = exchange.pack(given_)
    for number, (one, other) in enumerate(zip(tensors, copies, strict=True)):
        assert (one is other) == (number not in writes)
        assert one.stride() == other.stride()
        assert torch.equal(one, other)
    assert [*written_of(given_, writes)] == [f"input {number}" for number in writes]
    found = [one.data_ptr() for one in written_of(given_, writes).values()]
    assert found == [copies[number].data_ptr() for number in writes]
    assert len(only_read(given_, writes)) == len(tensors) - len(writes)


def test_a_result_is_given_out_with_what_was_written():
    inputs = [torch.ones(2), torch.zeros(3)]
    assert answered("result", inputs, ()) == "result"
    paths = [path for path, _ in outputs_of(answered((torch.ones(1), 2), inputs, (1,)))]
    assert paths == ["returned.0", "returned.1", "written.input 1"]
    assert [path for path, _ in outputs_of(answered(None, inputs, (0,)))] == ["written.input 0"]


def test_a_task_that_writes_to_an_input_is_answered_on_a_copy_and_may_return_nothing():
    found = reference("given[1][0] += given[0].sum()", "given = [torch.randn(4), torch.randn(2, 3)]")
    assert found.writes == (1,)
    assert any("writes to input 1" in warning for warning in found.warnings)
    case = found.case("a question")
    before = case.tensors[1].clone()
    (path, left), (_, exact) = case.outputs[0], case.golden[0]
    assert path == "written.input 1"
    assert torch.equal(case.tensors[1], before)
    assert torch.allclose(left[0], before[0] + case.tensors[0].sum())
    assert torch.equal(left[1], before[1])
    assert exact.dtype is torch.float64


def test_what_is_written_is_given_a_whole_draw_before_each_timed_call():
    found = reference(
        "given[1][0] += given[0]\nreturn given[0] * 2", "given = [torch.randn(64), torch.zeros(2, 64)]"
    )
    assert found.kinds[1] is Kind.DRAWN


def test_what_is_written_may_not_overlap_another_input():
    with pytest.raises(TaskError, match="overlaps another"):
        reference(
            "given[0].add_(1)\nreturn given[1] * 2",
            "whole = torch.randn(8, 8); given = [whole[:, :6], whole[:, 2:]]",
        )


def test_an_opponent_finds_what_it_writes_to_as_it_was(monkeypatch: pytest.MonkeyPatch):
    seen: list[float] = []

    def time_calls(call, repeats, device, *, before):
        for index in range(repeats):
            before(index)
            call(index)
        return [1.0] * repeats, None

    def step(counter: torch.Tensor) -> None:
        seen.append(float(counter))
        counter.add_(1)

    monkeypatch.setattr(opponents.stopwatch, "time_calls", time_calls)
    opponent = opponents.Opponent("eager", step, Precision.MATCH, writes=(0,))
    opponent.time([[torch.tensor(3.0)], [torch.tensor(5.0)]], 4, torch.device("cpu"))
    assert seen == [3.0, 5.0, 3.0, 5.0]


def test_a_write_that_changes_no_value_is_one():
    found = reference("given[0].clamp_(-50, 50)\nreturn given[0] * 2", "given = [torch.randn(64)]")
    assert found.writes == (0,)


def test_a_batch_norm_writes_its_statistics():
    body = "return torch.nn.functional.batch_norm(given[0], given[1], given[2], training=True)"
    made = "given = [torch.randn(8, 4), torch.randn(4), torch.rand(4) + 0.5]"
    assert reference(body, made).writes == (1, 2)


def test_a_write_at_some_calls_only_is_an_error():
    found = reference(
        "if given[2]:\n    given[1].add_(1)\nreturn given[0] * 2",
        "given = [torch.randn(4), torch.zeros(3), False]",
    )
    inputs = found.draw()
    inputs[0][2] = True
    with pytest.raises(TaskError, match="writes to input 1 at some calls"):
        found.answer("another call", inputs)


def test_another_tensor_in_a_container_is_an_error():
    with pytest.raises(TaskError, match="changes its inputs"):
        reference(
            "given['mean'] = given['mean'] * 0.9\nreturn given['mean'] * 2",
            "given = {'mean': torch.randn(4)}",
        )


def test_what_is_left_alone_keeps_every_bit():
    found = reference(
        "given[1][0] = given[0] * 2\nreturn given[0] + 1", "given = [torch.randn(4), torch.randn(3, 4)]"
    )
    case = found.case("a question")
    (path, expected), (_, exact) = case.outputs[1], case.golden[1]
    left_alone.check(case, path, expected.clone(), expected, exact)
    near = expected.clone()
    near[0] *= 1.0000001
    left_alone.check(case, path, near, expected, exact)
    near[2, 3] = torch.nextafter(near[2, 3], torch.tensor(9.0))
    with pytest.raises(Refused, match="1 elements of input 1 changed"):
        left_alone.check(case, path, near, expected, exact)
