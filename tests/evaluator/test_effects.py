"""What operations do to elements, seen by their values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from egg.core.policy import LibraryCalls, Policy
from egg.evaluator.operators.effects import Effects, picking
from egg.evaluator.operators.lossy import narrows
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.transport.protocol import Record, Spent
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.watch import Effected, Watch

Function = Callable[[torch.Tensor], object]


def effects(function: Function, x: torch.Tensor) -> Effects:
    found = Effects()
    with Recorder(flow=found):
        function(x)
    return found


def in_steps(x: torch.Tensor) -> torch.Tensor:
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(mantissa * 256) / 256, exponent)


@pytest.mark.parametrize(
    ("function", "masks", "coarsens"),
    [
        (lambda x: x.masked_fill(torch.eye(32, dtype=torch.bool), 0.0), True, False),
        (lambda x: x * torch.ones(32, 32).tril(), True, False),
        (torch.relu, True, False),
        (in_steps, False, True),
        (lambda x: torch.round(x * 20), False, True),
        (lambda x: x * 2, False, False),
        (lambda x: torch.softmax(x, 1), False, False),
        (torch.sign, False, False),
        (lambda x: x.bfloat16().float() * 2, False, False),
    ],
)
def test_masks_and_steps(function: Function, masks: bool, coarsens: bool) -> None:
    found = effects(function, torch.randn(32, 32))
    assert (found.masks, found.coarsens) == (masks, coarsens)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: F.max_pool2d(x, 1, 2), {"max_pool2d_with_indices"}),
        (lambda x: x.masked_fill(torch.eye(16, dtype=torch.bool), 0.0), {"masked_fill"}),
        (lambda x: F.max_pool2d(x, 2, 2), set()),
        (torch.relu, set()),
        (lambda x: F.max_pool2d(x, 1, 2) * 2, {"max_pool2d_with_indices"}),
    ],
)
def test_picks(function: Function, names: set[str]) -> None:
    draws = [torch.randn(4, 4, 16, 16) for _ in range(2)]
    assert picking(lambda x=x: function(x) for x in draws) == names


def test_floats_that_occur() -> None:
    assert effects(lambda x: x.bfloat16() * 2, torch.randn(4, 4)).floats == {
        "torch.float32",
        "torch.bfloat16",
    }


def test_narrowing() -> None:
    x = torch.randn(64)
    assert narrows(x, x.bfloat16())
    assert narrows(x.half(), x.half().bfloat16())
    assert not narrows(x.bfloat16(), x.bfloat16().float())
    assert not narrows(torch.arange(64.0), torch.arange(64.0).half())
    assert not narrows(x, x.int())


@pytest.mark.parametrize(
    ("write", "count"),
    [
        (lambda y: y.diagonal().zero_(), 1),
        (lambda y: y[:, :1].copy_(torch.zeros(4, 1)), 1),
        (lambda y: y.zero_(), 0),
        (lambda y: y[:2].copy_(torch.randn(2, 4)), 0),
        (lambda y: torch.empty(4, 5)[:, 4:].zero_(), 0),
        (lambda y: torch.zeros(4, 5)[:, 4:].fill_(1), 0),
    ],
)
def test_written_over(write: Function, count: int) -> None:
    x = torch.randn(4, 4)
    with Recorder(fill_empties=lambda t: t.fill_(float("nan"))) as recorder:
        write(x.clone())
        x[:1].zero_()
    assert recorder.overwritten == count


@pytest.mark.parametrize(
    ("done", "found"),
    [
        (Effected(), False),
        (Effected(masks=True), True),
        (Effected(coarsens=True, floats=frozenset(["torch.float32"])), True),
        (Effected(coarsens=True, floats=frozenset(["torch.float32", "torch.bfloat16"])), False),
    ],
)
def test_the_work_of_a_task(done: Effected, found: bool) -> None:
    policy = Policy(library_calls=LibraryCalls.FORBID)
    watch = Watch(policy, {"mul": 1}, effects=done)
    record = Record({}, {}, {}, {}, {"k": 1}, Spent(0, 0, 0, 0), Spent(0, 0, 0, 0))
    record = Record(**{**vars(record), "narrowed": {"torch.bfloat16": 1}, "overwritten": int(done.masks)})
    if found:
        with pytest.raises(Refused):
            watch.see(record)
    else:
        watch.see(record)
