"""Stacks that elements are picked from, and concatenations that are taken apart again: neither is stored."""

from __future__ import annotations

import pytest
import torch

from tests.expert import elsewhere

CASES = """
v, q, p = x[:, 0], x[:, 1] * 2, x[:, 2] - x[:, 0]
stacked = torch.stack((v, q, p, p, v, q), dim=1)
cases = torch.stack((case % 3, case, (case + 1) % 6), dim=1)
return stacked.gather(1, cases)
"""
PACKED = """
h, s, v = x.max(1)[0], x.min(1)[0], x.sum(1)
packed = torch.stack((h * 2, s, v + 1), dim=1)
first, second = packed[:, 0] / 3, packed[:, 1] * packed[:, 2]
return torch.where(first > second, first, second)
"""
INPUTS = {
    "cases": "x = torch.rand(B, 3, H, W); case = torch.randint(6, (B, H, W))",
    "packed": "x = torch.rand(B, 3, H, W)",
}


def source(name: str) -> str:
    forward = {"cases": CASES, "packed": PACKED}[name]
    return elsewhere.program(forward, INPUTS[name], "pass", B=8, H=64, W=80)


@pytest.mark.parametrize("name", INPUTS)
def test_right(name: str) -> None:
    inputs = [torch.rand(2, 3, 5, 7), torch.randint(6, (2, 5, 7))]
    elsewhere.check(source(name), [], inputs[: 1 + (name == "cases")])


@pytest.mark.parametrize("name", INPUTS)
def test_one_kernel_and_nothing_in_between(name: str) -> None:
    text = elsewhere.written(source(name))
    launches = text.count("](\n")
    assert launches == 1, text
    assert "torch.cat(" not in text
    assert "torch.stack(" not in text


def test_a_stack_that_is_returned_is_stored() -> None:
    forward = CASES.replace("return stacked", "return stacked, stacked")
    elsewhere.check(
        elsewhere.program(forward, INPUTS["cases"], "pass", B=8, H=64, W=80),
        [],
        [torch.rand(2, 3, 5, 7), torch.randint(6, (2, 5, 7))],
    )


LISTED = "return x[:, [2, 1, 0]] * 2, x[..., [0, 3, 1]]"


def test_lists_of_places() -> None:
    """As in an image whose channels are turned around."""
    source = elsewhere.program(LISTED, "x = torch.rand(B, 3, H, W)", "pass", B=8, H=64, W=80)
    elsewhere.check(source, [], [torch.rand(2, 3, 5, 7)])


def test_powers_of_a_constructors_argument() -> None:
    source = elsewhere.program(
        "return x ** self.power", "x = torch.rand(B, power)", "self.power = power", "power", B=64, power=20
    )
    elsewhere.check(source, [20], [torch.rand(5, 20)])
