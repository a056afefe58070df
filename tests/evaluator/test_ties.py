"""Equal elements: where PyTorch leaves open which comes first, any order of all outputs together is right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from egg.core.policy import Policy, Precision
from egg.core.source import Task
from egg.evaluator.reference import ties
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.trial.checks import Checks
from egg.evaluator.trial.refused import Refused

HEAD = "import torch\nfrom torch import nn\n"
FEW_LEVELS = "torch.randint(0, 6, (8, 32)).float()"


def checks_of(forward: str, inputs: str = FEW_LEVELS, init: str = "pass") -> Checks:
    source = (
        f"{HEAD}\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, x):\n        {forward}\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
    )
    program = Program.load(Task("small", source))
    made = Reference(program, Precision.MATCH, torch.device("cpu"))
    return Checks(made, Policy(), cast(Any, SimpleNamespace()))


def right(checks: Checks, case: Case, *answer: torch.Tensor) -> bool:
    try:
        checks.check_values(case, list(answer))
    except Refused:
        return False
    return True


def by_first(x: torch.Tensor, *, falling: bool = True) -> torch.Tensor:
    return x.sort(dim=-1, descending=falling, stable=True).indices


def by_last(x: torch.Tensor, *, falling: bool = True) -> torch.Tensor:
    return x.shape[-1] - 1 - by_first(x.flip(-1), falling=falling)


def by_lot(x: torch.Tensor, *, falling: bool = True) -> torch.Tensor:
    mixed = torch.stack([torch.randperm(x.shape[-1]) for _ in x])
    return mixed.gather(-1, by_first(x.gather(-1, mixed), falling=falling))


@pytest.mark.parametrize("order", [by_first, by_last, by_lot])
@pytest.mark.parametrize(
    ("forward", "count", "falling"),
    [
        ("return x.topk(4)", 4, True),
        ("return x.topk(4, largest=False)", 4, False),
        ("return tuple(x.sort())", 32, False),
        ("return x.sort(descending=True).values, x.argsort(descending=True)", 32, True),
    ],
)
def test_any_order_of_equal_elements_is_right(order, forward, count, falling):
    checks = checks_of(forward)
    case = checks.reference.case("levels")
    [x] = case.inputs
    places = order(x, falling=falling)[:, :count].contiguous()
    assert right(checks, case, x.gather(1, places), places)


def test_an_order_in_which_a_smaller_element_stands_is_none():
    checks = checks_of("return x.topk(4)")
    case = checks.reference.case("levels")
    [x] = case.inputs
    places = by_first(x)[:, :4].contiguous()
    smaller = places.clone()
    smaller[0, 3] = by_first(x)[0, -1]
    assert not right(checks, case, x.gather(1, places), smaller)
    assert not right(checks, case, x.gather(1, smaller), smaller)
    twice = places.clone()
    twice[:, 1] = torch.where(
        x.gather(1, places)[:, 0] == x.gather(1, places)[:, 1], twice[:, 0], twice[:, 1]
    )
    assert not right(checks, case, x.gather(1, places), twice)


def test_outputs_follow_one_order_together():
    checks = checks_of("v, i = x[0].topk(4); return i, x[1].gather(1, i)", "torch.stack([FEW, ANY])".replace(
        "FEW", FEW_LEVELS).replace("ANY", "torch.randn(8, 32)"))  # fmt: skip
    case = checks.reference.case("levels")
    x, other = case.inputs[0]
    first, last = by_first(x)[:, :4].contiguous(), by_last(x)[:, :4].contiguous()
    assert right(checks, case, first, other.gather(1, first))
    assert not right(checks, case, first, other.gather(1, last))


@pytest.mark.parametrize("forward", ["return x.argmax(-1)", "return x.max(-1).indices"])
def test_the_first_of_equal_maxima_is_documented(forward):
    checks = checks_of(forward)
    case = checks.reference.case("levels")
    [x] = case.inputs
    assert right(checks, case, by_first(x)[:, 0].contiguous())
    assert not right(checks, case, by_last(x)[:, 0].contiguous())


def test_a_stable_order_is_one():
    checks = checks_of("return x.sort(stable=True).indices")
    case = checks.reference.case("levels")
    [x] = case.inputs
    assert right(checks, case, by_first(x, falling=False))
    assert not right(checks, case, by_last(x, falling=False))


@pytest.mark.parametrize("forward", ["return x.median(-1)", "return x.kthvalue(16)"])
def test_any_place_of_a_median_is_right(forward):
    checks = checks_of(forward)
    case = checks.reference.case("levels")
    [x] = case.inputs
    value = x.sort(-1).values[:, 15]
    equal = (x == value[:, None]).byte()
    assert right(checks, case, value, equal.argmax(-1))
    assert right(checks, case, value, 31 - equal.flip(-1).argmax(-1))
    assert not right(checks, case, value, (1 - equal).argmax(-1))


def test_an_order_that_does_not_show_is_right_where_it_is_one():
    """Experts by scores of 16 bits: which of two equal ones a row goes to shows in the row alone."""
    init = "self.w = nn.Parameter(torch.randn(8, 16))"
    inputs = "torch.randint(-1, 2, (64, 8)).bfloat16()"
    checks = checks_of("v, i = x.topk(2); return (self.w[i] * v[..., None].float()).sum(1)", inputs, init)
    case = checks.reference.case("rows")
    [x] = case.inputs
    w = checks.reference.module.state_dict()["w"]

    def routed(places: torch.Tensor) -> torch.Tensor:
        return (w[places] * x.gather(1, places)[..., None].float()).sum(1)

    first, last = by_first(x)[:, :2], by_last(x)[:, :2]
    assert right(checks, case, routed(first))
    assert right(checks, case, routed(last))
    assert not right(checks, case, routed(by_first(x)[:, 1:3]))


def test_two_operators_may_break_ties_otherwise():
    checks = checks_of("return x.topk(4).indices, (-x).topk(4).indices + 100")
    case = checks.reference.case("levels")
    [x] = case.inputs
    assert right(checks, case, by_first(x)[:, :4].contiguous(), by_last(-x)[:, :4] + 100)


def test_where_nothing_is_equal_there_is_one_answer():
    checks = checks_of("return x.topk(4).indices", "torch.randn(8, 32)")
    case = checks.reference.case("numbers")
    assert not list(ties.variants(checks.reference, case))
