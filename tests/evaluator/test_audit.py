"""Null candidates: degenerate tasks are named, sound ones are not, and hardened inputs are offered."""

from __future__ import annotations

import json
import textwrap

import pytest
import torch

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.audit import NULLS, Audit, audit

CPU = torch.device("cpu")


def task(
    forward: str, inputs: str = "torch.rand(rows, columns)", init: str = "pass", extra: str = ""
) -> Task:
    source = f"""\
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{textwrap.indent(textwrap.dedent(init), " " * 8)}
    def forward(self, x):
{textwrap.indent(textwrap.dedent(forward), " " * 8)}

rows = 8
columns = 96
{extra}
def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
    return Task("sample", source)


def audited(sample: Task, precision: Precision = Precision.MATCH, *, rescaled: bool = False) -> Audit:
    return audit(sample, precision, CPU, rescaled=rescaled)


@pytest.mark.parametrize(
    ("forward", "inputs", "accepts", "cure"),
    [
        ("return torch.relu(x)", "torch.rand(rows, columns)", {"input", "affine"}, "normal"),
        ("return F.selu(x)", "torch.rand(rows, columns)", {"affine"}, "normal"),
        ("return x.softmax(-1)", "torch.rand(2, 1 << 16)", {"zeros", "constant", "other input"}, "large"),
        ("return x.cumprod(-1)", "torch.rand(rows, 4000)", {"first half"}, None),
        ("return (x.sum(-1) * 1e-6 + 1.0)", "torch.rand(rows, columns)", {"constant", "other input"}, None),
    ],
    ids=["identity", "affine", "vanishing", "first-half", "constant"],
)
def test_degenerate_tasks_are_named_with_what_they_accept(forward, inputs, accepts, cure):
    found = audited(task(forward, inputs))
    assert found.degenerate
    assert accepts <= set(found.passing)
    assert "degenerate task" in found.warnings[0]
    if cure:
        assert cure in found.hardened


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return x @ x.t()", "pass"),
        ("return F.gelu(x)", "pass"),
        ("return x / x.square().mean(-1, keepdim=True).sqrt()", "pass"),
        ("return F.leaky_relu(self.linear(x) * 2.0, 0.1)", "self.linear = nn.Linear(96, 64)"),
        ("return x.max(-1)", "pass"),
        ("return {'a': torch.sin(9 * x), 'b': [x.sum()]}", "pass"),
    ],
    ids=["product", "gelu", "rms-norm", "linear", "max-and-index", "nested"],
)
def test_sound_tasks_are_not_named(forward, init):
    found = audited(task(forward, init=init))
    assert found.passing == ()
    assert not found.degenerate
    assert not found.stochastic
    assert [n.name for n in found.nulls] == list(NULLS)


def test_an_output_that_is_always_zero_has_no_cure():
    found = audited(task("return torch.clamp(torch.minimum(x, x * 0), min=0.0, max=1.0)"))
    assert {"zeros", "constant", "other input"} <= set(found.passing)
    assert found.independent_of_input
    assert found.hardened == ()
    assert "no inputs or weights we know" in found.warnings[0]


def test_weights_that_hide_the_computation_are_cured_by_other_weights():
    init = """
        self.linear = nn.Linear(96, 96)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        """
    found = audited(task("return self.linear(x)", init=init))
    assert "zeros" in found.passing
    assert "weights" in found.hardened


def test_every_output_must_pass_for_a_null_to_pass():
    found = audited(task("return torch.relu(x), torch.sin(9 * x)"))
    assert not found.degenerate


def test_dropout_in_training_mode_is_stochastic_but_not_degenerate():
    found = audited(task("return self.drop(torch.sin(9 * x))", init="self.drop = nn.Dropout(0.5)"))
    assert found.stochastic
    assert not found.degenerate
    assert any("stochastic" in w for w in found.warnings)


def test_inputs_that_ignore_the_seed_are_told_from_an_output_that_ignores_the_input():
    found = audited(task("return torch.sin(x)", "torch.linspace(0, 9, 96).expand(8, 96)"))
    assert found.constant_inputs
    assert "other input" in found.passing
    assert not found.independent_of_input
    assert "normal" in found.hardened


def test_in_place_forwards_and_batch_statistics_do_not_leak_between_runs():
    init = "self.norm = nn.BatchNorm1d(96, momentum=0.9)"
    found = audited(task("return torch.sin(3 * self.norm(x.mul_(2.0)))", init=init))
    assert not found.degenerate
    assert not found.stochastic


def test_a_blind_tolerance_is_reported_without_making_the_task_degenerate():
    seeing = audited(task("return x.cumsum(-1)"))
    blind = audited(task("return x.cumsum(-1)", "torch.randint(0, 5, (8, 8)).float()"))
    assert not seeing.precision_blind
    assert blind.precision_blind
    assert not blind.degenerate
    assert any("lower precision" in w for w in blind.warnings)


def test_half_precision_is_judged_at_its_own_tolerance_with_eight_bit_operands():
    found = audited(task("return torch.sin(9 * x)"), Precision.BF16)
    assert found.tolerance == 1e-2
    lower = next(n for n in found.nulls if n.name == "lower precision")
    assert 0.01 < lower.error < 1.0
    assert not lower.passes


def test_a_null_that_cannot_run_is_noted():
    init = "self.register_buffer('scale', torch.ones(96))"
    forward = "assert x.dtype == torch.float32\nreturn torch.sin(9 * x) * self.scale"
    found = audited(task(forward, init=init))
    assert not found.degenerate
    assert any("'lower precision' could not run" in note for note in found.notes)


def test_a_reference_that_is_not_finite_is_noted():
    found = audited(task("return torch.sin(9 * x) / (x - x)"))
    assert "output 0 of the reference is not finite" in found.notes


def test_rescaling_takes_the_batch_and_leaves_the_row():
    sample = task("return x.softmax(-1)", "torch.rand(batch, width)", extra="batch = 4096\nwidth = 1 << 15")
    found = audited(sample, rescaled=True)
    assert set(found.rescaled) == {"batch"}
    assert found.task_hash == sample.hash
    assert "zeros" in found.passing


def test_a_null_must_pass_every_trial_not_one():
    """The first draw has every row's maximum in the first half; that is luck, and others have not."""
    found = audited(task("return x.amax(-1)"))
    half = next(n for n in found.nulls if n.name == "first half")
    assert half.error == 0.0
    assert not half.passes


def test_json_round_trip():
    found = audited(task("return torch.relu(x)"))
    again = Audit.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    with pytest.raises(ValueError, match="schema"):
        Audit.from_json({**found.to_json(), "schema": "other"})


def test_a_task_that_does_not_run_is_a_task_error():
    with pytest.raises(TaskError, match=r"Model\.forward failed"):
        audited(task("return x @ x"))
