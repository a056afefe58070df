"""What one call is written as: recorded in this process, on fake tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn

from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.plan.record import Request, record
from egg.evaluator.plan.writing import Written
from egg.evaluator.process.patterns import compiler_target
from egg.evaluator.worker.held import parameters_of, state_of
from egg.hardware.gpus import resolve


@triton.jit
def copied(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


SOURCE = "def copied(x, y, n, BLOCK):\n    tl.store(y, tl.load(x))\n"


class Flat(nn.Module):
    """One kernel over all elements of the input, or of a weight, as a flat tensor."""

    def __init__(self, flattened: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(128).view(8, 16))
        self.flattened = flattened

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        source = self.weight if self.flattened == "weight" else x
        ways: dict[str, Any] = {
            "reshape": lambda: x.reshape(-1),
            "strided": lambda: x.as_strided((128,), (1,)),
        }
        flat = ways.get(self.flattened, lambda: source.view(-1))()
        y = torch.empty_like(flat)
        copied[(1,)](flat, y, 128, 128)  # pyright: ignore
        return y


def plan_of(flattened: str) -> Written:
    make = partial(Flat, flattened)
    return record(
        Request(
            make,
            lambda: [torch.empty(128).as_strided((8, 16), (16, 1), 0)],
            list,
            ["x"],
            {"weight": ((8, 16), "torch.float32")},
            {},
            state_of,
            parameters_of,
            SOURCE,
            GpuTarget.of(compiler_target(resolve("H200"))),
        )
    )


def test_a_view_of_an_input_or_of_a_weight_is_a_view_of_it() -> None:
    for flattened, name in (("view", "x"), ("reshape", "x"), ("weight", "self.weight")):
        plan = plan_of(flattened)
        assert plan.statements[0] == f"t1 = {name}.view([-1])"
        assert "torch.empty(" not in " ".join(plan.statements)
        assert "randn" not in " ".join(plan.statements)


def test_a_strided_view_of_an_input_begins_where_the_input_begins() -> None:
    assert plan_of("strided").statements[0] == "t1 = torch.as_strided(x, [128], [1])"
