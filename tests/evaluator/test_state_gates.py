"""Many calls, what they leave behind, inputs that a task never varies, and numbers that are none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from egg.core.evaluation import Gate, Rejected
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.gates import beyond, many
from egg.evaluator.reference import reserve
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.distributions import spiked
from egg.evaluator.task.program import Program
from egg.evaluator.task.unvaried import can_vary, other_values
from egg.evaluator.trial.levels import LEVELS
from egg.evaluator.trial.refused import Refused
from egg.evaluator.worker.outputs import aliases, overlap
from tests.conftest import JudgeFunction
from tests.evaluator.test_timing_gates import HONEST, trial_for

__all__ = ["trial_for"]

RING = HONEST.replace(
    "        return x * self.weight",
    """        self.calls = getattr(self, "calls", -1) + 1
        if not hasattr(self, "ring"):
            self.ring = [torch.empty_like(x) for _ in range(16)]
        return torch.mul(x, self.weight, out=self.ring[self.calls % 16])""",
)

COPYING_RING = RING.replace(
    "        return torch.mul(x, self.weight, out=self.ring[self.calls % 16])",
    """        self.ring[self.calls % 16].data = x * self.weight
        return self.ring[self.calls % 16]""",
)

STALE = HONEST.replace(
    "        return x * self.weight",
    """        self.calls = getattr(self, "calls", 0) + 1
        if self.calls < 80:
            self.last = x * self.weight
        return self.last""",
)


def called(trial: Any, calls: int) -> dict[str, Any]:
    trial.settings = replace(trial.settings, calls=calls, calls_seconds=60.0)
    return many.run(trial, 1e-3)


def test_an_honest_candidate_is_called_as_often_as_the_level_says(trial_for) -> None:
    notes = called(trial_for(HONEST), 128)
    assert 128 <= notes["calls"] < 160
    assert notes["held"] >= 6 * notes["calls"] // 8  # the others are of other instances
    assert notes["rechecked"] >= 2


@pytest.mark.parametrize("source", [RING, COPYING_RING], ids=["a ring of buffers", "a ring of tensors"])
def test_a_ring_of_outputs_is_found_however_long_it_is(trial_for, source: str) -> None:
    with pytest.raises(Refused) as refused:
        called(trial_for(source), 128)
    assert refused.value.reason == "state.aliased"


def test_a_candidate_that_stops_after_many_calls_is_found(trial_for) -> None:
    with pytest.raises(Refused) as refused:
        called(trial_for(STALE), 128)
    assert refused.value.reason in ("state.stale", "state.aliased", "state.callers")
    assert "of many" in refused.value.evidence or "both held" in refused.value.evidence


def test_slow_candidates_are_called_less_often(trial_for) -> None:
    trial = trial_for(HONEST)
    trial.settings = replace(trial.settings, calls=160, calls_seconds=1.0)
    assert all(3 <= many._how_many(trial, 10.0) <= 4 for _ in range(20))


# -- where outputs lie -----------------------------------------------------------------------------------


def test_parts_of_one_buffer_are_apart_and_views_of_the_same_elements_are_not() -> None:
    both = torch.empty(2, 8)
    assert not overlap(both[0], both[1])
    assert not overlap(both[:, ::2], both[:, 1::2])
    assert overlap(both[:, ::2], both[:, 2:4])
    assert not overlap(torch.empty(4), torch.empty(4))
    given, module = torch.randn(4, 4), torch.nn.Linear(4, 4)
    leaves = [("0", given[1:]), ("1", torch.ones(1).expand(3)), ("2", module.weight.t()), ("3", given[:2])]
    assert aliases(leaves, [given], module) == [
        ("0", "an input"), ("1", "itself"), ("2", "a parameter"), ("3", "an input"),
    ]  # fmt: skip


# -- inputs that the task never varies ---------------------------------------------------------------------


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("fill", [True, False])
def test_a_mask_is_redrawn_and_no_row_is_masked_where_none_was(fill: bool) -> None:
    mask = torch.full((64, 9), fill)
    made = other_values(mask, generator())
    assert made.dtype is torch.bool
    assert 0.2 < made.float().mean() < 0.8
    assert made.any(1).all() == fill or not fill
    assert (~made).any(1).all() or fill


def test_integers_are_redrawn_within_what_was_seen() -> None:
    lengths = other_values(torch.full((64,), 128), generator())
    assert lengths.min() >= 1
    assert lengths.max() <= 128
    assert len(lengths.unique()) > 8
    offsets = torch.tensor([0, 4, 9, 16, 31])
    made = other_values(offsets, generator())
    assert (made[1:] >= made[:-1]).all()
    assert (made[0], made[-1]) == (0, 31)
    shuffled = other_values(torch.tensor([5, 2, 9, 7, 1, 0]), generator())
    assert sorted(shuffled.tolist()) == [0, 1, 2, 5, 7, 9]
    assert set(other_values(torch.ones(8, 8, dtype=torch.int64), generator()).unique().tolist()) == {0, 1}
    assert not can_vary(torch.zeros(4, dtype=torch.int64))
    assert not can_vary(torch.ones(4))


def test_an_expanded_mask_stays_expanded() -> None:
    made = other_values(torch.ones(1, 8, dtype=torch.bool).expand(4, 8), generator())
    assert made.stride() == (0, 1)


@pytest.mark.gpu
def test_an_expanded_mask_stays_expanded_on_a_gpu() -> None:
    made = other_values(torch.ones(1, 8, dtype=torch.bool, device="cuda").expand(4, 8), generator())
    assert (made.stride(), made.device.type) == ((0, 1), "cuda")


def test_spikes_stand_in_floats_alone_and_spare_the_originals() -> None:
    given = [torch.zeros(64, 64), torch.arange(8)]
    made = spiked(given, (float("nan"), float("inf")), 5)
    assert 1 <= made[0].isnan().sum() <= 3
    assert made[0].isinf().any()
    assert torch.equal(made[1], given[1])
    assert not given[0].isnan().any()


def test_a_candidate_that_raises_at_values_that_are_no_numbers_is_believed_and_asked_on(trial_for) -> None:
    picky = """        if not x.isfinite().all():
            raise ValueError("finite numbers only")
        return x * self.weight"""
    trial = trial_for(HONEST.replace("        return x * self.weight", picky))
    assert set(beyond.not_numbers(trial).values()) == {"raises"}
    assert called(trial, 8)["calls"] >= 8


def test_draws_that_share_memory_are_taken_apart() -> None:
    whole = torch.randn(2, 8)
    first, second = reserve.apart([whole[0], whole[1]])
    first.fill_(0.0)
    assert torch.equal(second, whole[1])
    assert (whole[0] != 0).all()


# -- random numbers ------------------------------------------------------------------------------------------


def test_every_question_has_a_seed_of_its_own() -> None:
    source = (
        "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n\n"
        "class Model(nn.Module):\n    def forward(self, x):\n        return F.dropout(x, 0.5, True)\n\n"
        "def get_inputs():\n    return [torch.ones(64, 64)]\n\ndef get_init_inputs():\n    return []\n"
    )
    made = Reference(Program.load(Task("drop", source)), Precision.MATCH, torch.device("cpu"))
    one, other = made.case("one"), made.case("other")
    assert made.stochastic
    assert not torch.equal(one.outputs[0][1], other.outputs[0][1])
    again = made.answer("again", one.inputs, seed=one.seed)
    assert torch.equal(one.outputs[0][1], again.outputs[0][1])


# -- what is said ------------------------------------------------------------------------------------------

SCALED = """
import torch
import torch.nn as nn

rows = 4096
columns = 2048


class Model(nn.Module):
    def forward(self, x):
        return 2.0 * x


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""

WRONG = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2.5 * tl.load(x + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        double[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), BLOCK=4096)
        return y
"""


def test_a_refusal_names_the_shape_that_was_run(judged: JudgeFunction) -> None:
    verdict = judged(SCALED, WRONG).verdict
    assert isinstance(verdict, Rejected)
    assert verdict.refusal.gate is Gate.CORRECTNESS
    assert "float32; rescaled: " in verdict.refusal.evidence
    assert "rows 4096 -> " in verdict.refusal.evidence


def test_levels_differ_in_how_often_a_candidate_is_called() -> None:
    quick, full, _ = LEVELS.values()
    assert full.calls >= 128
    assert quick.calls < full.calls
