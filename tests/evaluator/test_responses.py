"""What an answer lacks shows in its error; what rounding does, or an error in proportion, does not."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from egg.evaluator.gates.responses import Answers, Thing, check, suspected, things
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.trial.refused import Refused

MAIN, FAINT = torch.randn(2, 4096, dtype=torch.float64)
FAINT = 1e-6 * FAINT
EXACT = 4.0 + torch.sin(MAIN) + FAINT


def answers(theirs: torch.Tensor, exact: torch.Tensor = EXACT) -> Answers:
    return Answers([theirs.float()], [exact.float()], [exact])


@pytest.mark.parametrize(
    ("theirs", "doubtful"),
    [
        (lambda: EXACT - FAINT, True),
        (lambda: EXACT - FAINT / 2, True),
        (lambda: EXACT, False),
        (lambda: EXACT * (1.0 + 1e-6), False),
        (lambda: EXACT + 1e-6 * torch.randn(4096), False),
    ],
    ids=["left out", "half of it", "right", "in proportion", "noise"],
)
def test_a_term_that_is_left_out_is_suspected(theirs: Callable[[], torch.Tensor], doubtful: bool) -> None:
    other = EXACT - FAINT + FAINT.flip(0)
    assert suspected(answers(theirs()), [other]) is doubtful


def test_the_difference_of_two_answers_decides() -> None:
    other = EXACT - FAINT + FAINT.flip(0)
    check("faint", answers(EXACT), answers(other, other), [])
    with pytest.raises(Refused) as refused:
        check("faint", answers(EXACT - FAINT), answers(EXACT - FAINT, other), [])
    assert refused.value.reason == "correctness.response"
    check("faint", answers(EXACT - FAINT), answers(EXACT - FAINT, other), [1e-5])  # it may be rounding


class Held(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.randn(8))
        self.turn = nn.Parameter(torch.randn(8, dtype=torch.complex64))
        self.register_buffer("kept", torch.randn(8))
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)))
        self.register_buffer("table", torch.randn(8, dtype=torch.complex64))
        self.register_buffer("order", torch.randperm(8))


def trial_of(module: nn.Module, kinds: list[Kind]) -> Any:
    initial = {name: value.clone() for name, value in module.state_dict().items()}
    reference = SimpleNamespace(module=module, initial=initial, kinds=kinds)
    return SimpleNamespace(
        reference=reference, connection=SimpleNamespace(names={name: name for name in initial})
    )


def test_what_is_changed_may_hold_other_values() -> None:
    inputs = [
        torch.randn(4),
        torch.randint(9, (4,)),
        torch.randint(9, (4,)),
        torch.randn(4, dtype=torch.cfloat),
    ]
    trial = trial_of(Held(), [Kind.DRAWN, Kind.LOOSE, Kind.DRAWN, Kind.DRAWN])
    names = {thing.name for thing in things(trial, inputs)}
    assert names == {"gain", "turn", "kept", "input 0", "input 1", "input 3"}
    fewer = {thing.name for thing in things(trial, inputs, buffers=False)}
    assert fewer == names - {"kept"}


def test_a_thing_is_changed_meanwhile() -> None:
    module, inputs, others = Held(), [torch.zeros(4), torch.zeros(4)], [torch.ones(4), torch.ones(4)]
    before = module.get_buffer("kept").clone()
    with Thing("kept", "kept").changed(module, inputs, others) as given:
        assert given is inputs
        assert not torch.equal(module.get_buffer("kept"), before)
        assert torch.equal(module.get_buffer("kept").sort().values, before.sort().values)
    assert torch.equal(module.get_buffer("kept"), before)
    with Thing("input 1", 1).changed(module, inputs, others) as given:
        assert [float(tensor.sum()) for tensor in given] == [0.0, 4.0]
