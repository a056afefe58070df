"""Legal values that no distribution draws, and the constants of a file's own text."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.compare.compare import LeafError, compare
from egg.evaluator.gates.unusual import _with_integer as drawn_with_integer
from egg.evaluator.reference import conditioning
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.task.rare import rare_integers, rare_weights, with_integer, with_masks
from egg.evaluator.task.unusual import constants, unusual, with_constants
from egg.evaluator.task.unusual_kinds import MINUTE, OFFSET, SORTED, UNUSUAL, ZEROS

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(32, 64)]

def get_init_inputs():
    return []
"""


def judged(forward: str, name: str, candidate) -> LeafError:
    task = Task("small", TASK.format(forward=forward))
    made = Reference(Program.load(task), Precision.MATCH, torch.device("cpu"))
    case = made.answer(name, unusual(made.draw(), name, 1), own=False)
    [(_, expected)], [(_, exact)] = case.outputs, case.golden
    return compare(
        candidate(*case.inputs), expected, exact, made.precision, conditioning.moved(made, case, 0).times(8.0)
    )


@pytest.mark.parametrize(
    ("forward", "name", "wrong", "right"),
    [
        ("x.var(-1, unbiased=False)", OFFSET, lambda x: (x * x).mean(-1) - x.mean(-1) ** 2,
         lambda x: (x - x.sum(-1, keepdim=True) / 64).square().sum(-1) / 64),
        ("torch.nn.functional.normalize(x)", ZEROS, lambda x: x / x.norm(dim=-1, keepdim=True),
         lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)),
        ("torch.where(x == 0, 0.0, x / x.abs())", MINUTE, lambda x: x / (x.abs() + 1e-8),
         lambda x: x.sign()),
    ],
)  # fmt: skip
def test_values_that_are_never_drawn_show_what_they_break(forward, name, wrong, right):
    assert not judged(forward, name, wrong).passed
    assert judged(forward, name, right).passed


@pytest.mark.parametrize("name", UNUSUAL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_layout_and_type_stay_as_they_were(name, dtype):
    given = torch.randn(6, 8, dtype=dtype).t().expand(3, 8, 6)
    whole = torch.arange(5)
    [made, kept] = unusual([given, whole], name, 7)
    assert (made.dtype, made.shape, made.stride()) == (given.dtype, given.shape, given.stride())
    assert bool(made.isfinite().all())
    assert kept is whole


def test_the_numbers_and_patterns_of_a_text_are_found():
    found = constants("def f(v, flag=True):\n    return (v & 0x3FFF) == 0x1234 or v > 1.5 or v < -1e30\n")
    assert found.values == (1.5, 4660.0)
    assert (0x3FFF, 0x1234) in found.patterns


def test_they_are_put_into_the_inputs():
    known = constants("v == 1.2345 or bits & 0xFFFF == 0x1234")
    [made] = with_constants([torch.zeros(64, 64) + 3.0], known, 5)
    for value in (1.2345, -1.2345):
        assert int((made == value).sum()) == 1
    assert int(((made.view(torch.int32) & 0xFFFF) == 0x1234).sum()) >= 1
    assert int((made != 3.0).sum()) < made.numel() // 2


def test_a_text_without_numbers_leaves_the_inputs():
    given = [torch.ones(4)]
    assert with_constants(given, constants("pass"), 5) is given


def test_a_single_number_takes_one_of_them():
    [made] = with_constants([torch.tensor(3.0)], constants("v == 1.2345"), 5)
    assert made.shape == ()
    assert made != 3.0


def test_rare_integers_keep_to_what_the_generator_may_draw():
    known = constants("a, b = 77, 5000")
    free = torch.randint(0, 100, (8, 16), generator=torch.Generator().manual_seed(3))
    pairs = torch.stack([torch.arange(32) % 7, 500 + torch.arange(32) % 9], dim=1)
    kept = [torch.arange(50), torch.randperm(50), free % 2, torch.randn(4, 4)]
    made = [rare_integers([free, pairs, *kept], known, {128}, seed) for seed in range(8)]
    assert any((m[0] == 77).any() for m in made)
    assert all(set(m[0][m[0] != free].tolist()) <= {77, 127} for m in made)
    assert any((m[0] == 127).any() for m in made)
    assert not any((m[1] == 77).any() for m in made)
    assert all(torch.equal(a, b) for m in made for a, b in zip(m[2:], kept, strict=True))


def test_rare_weights_are_few_and_hold_zero():
    module = torch.nn.Linear(64, 64)
    before = module.weight.detach().clone()
    rare_weights(module, constants("v = 3.0"), 5)
    changed = module.weight[module.weight != before]
    assert 0 < len(changed) <= 9
    assert {0.0, 3.0, -3.0} <= set(changed.tolist())


def test_sorted_inputs_rise_in_one_half_and_fall_in_the_other():
    [made] = unusual([torch.randn(8, 32)], SORTED, 3)
    steps = made.diff(dim=1)
    assert bool((steps[:4] <= 0).all())
    assert bool((steps[4:] >= 0).all())
    assert bool((made[4:].diff(dim=0) >= 0).all())


@pytest.mark.parametrize("share", [0.0, 0.05, 0.95, 1.0])
def test_masks_get_another_density_where_the_task_draws_them(share):
    drawn, again, fixed = torch.rand(32, 64) < 0.5, torch.rand(32, 64) < 0.5, torch.ones(4, 4).tril().bool()
    lengths, others = (torch.arange(64) < torch.randint(1, 64, (32, 1)) for _ in range(2))
    mask, same, rows = with_masks([drawn, fixed, lengths], [again, fixed.clone(), others], share, 5)
    assert abs(float(mask.float().mean()) - share) < 0.05
    assert same is fixed, "a part of the program"
    assert (rows is lengths) == (0.0 < share < 1.0), "made of lengths"


def test_integers_that_are_too_wide_for_their_type_are_left_out():
    narrow, wide = torch.randint(0, 1000, (64,), dtype=torch.int32), torch.randint(0, 1000, (64,))
    kept, made = with_integer([narrow, wide], 1 << 33, 5)
    assert kept is narrow
    assert int(made.max()) == 1 << 33


def test_few_values_that_differ_by_chance_in_one_draw_are_drawn_again():
    """Of 16 classes among 96 all differ in one draw of four; -100 is one to be ignored all the same."""

    def trial_of(draw: Callable[[], list[torch.Tensor]]) -> Any:
        return SimpleNamespace(reference=SimpleNamespace(draw=draw))

    classes = trial_of(lambda: [torch.randint(0, 96, (16,))])
    assert all(-100 in drawn_with_integer(classes, -100)[0] for _ in range(20))
    assert drawn_with_integer(trial_of(lambda: [torch.randperm(96)[:16]]), -100) == []


def test_values_that_differ_may_be_places_to_store_at_and_stay_so():
    places, routes = torch.randperm(512)[:64], torch.rand(64, 32).topk(4).indices
    [flat, rows] = with_integer([places, routes], -1, 5)
    assert (flat == -1).sum() == 1
    assert (rows == -1).sum() == 1
    assert len(set((flat % 512).tolist())) == 64, "the last one may be among them"
    assert all(len(set(row)) == 4 for row in (rows % 32).tolist())
    known = constants("v = 77")
    for seed in range(8):
        [made] = rare_integers([places], known, {512}, seed)
        assert len(made.unique()) == 64
