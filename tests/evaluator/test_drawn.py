"""Integers, masks, complex numbers and counts: other draws of the constructor, and later calls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from egg.core.errors import TaskError
from egg.evaluator.reference.drawn import counts, redraw


class Drawn(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        lots = torch.Generator().manual_seed(seed)
        self.phase = nn.Parameter(torch.randn(8, dtype=torch.cfloat, generator=lots))
        self.root = nn.Parameter(torch.polar(torch.full((8,), 0.99), torch.arange(8.0)))
        self.register_buffer("order", torch.randperm(64, generator=lots))
        self.register_buffer("kept", (torch.rand(64, generator=lots) < 0.5).float())
        self.register_buffer("diagonal", torch.tril(torch.ones(8, 8)))
        self.register_buffer("places", torch.arange(8))
        self.norm = nn.BatchNorm1d(8)


def test_what_the_constructor_draws_is_drawn_anew_and_the_rest_is_part_of_the_program() -> None:
    module = Drawn(42)
    first = {name: value.clone() for name, value in module.state_dict().items()}
    redraw(module, first, Drawn)
    held = module.state_dict()
    changed = {name for name in held if not torch.equal(held[name], first[name])}
    assert changed == {"phase", "root", "order", "kept"}
    assert sorted(held["order"].tolist()) == list(range(64))
    assert set(held["kept"].tolist()) == {0.0, 1.0}
    assert bool((held["root"].abs() <= 0.99 + 1e-6).all())  # a recurrence by it stays bounded


def test_nothing_is_built_where_nothing_of_the_kind_is_held() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    redraw(module, module.state_dict(), lambda seed: pytest.fail("built"))


class Counting(nn.Module):
    """Moves two buffers in a way of its own."""

    calls: torch.Tensor
    place: torch.Tensor

    def __init__(self, step: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.step = step
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def forward(self) -> None:
        self.calls += 1
        self.place.copy_(self.step(self.place))


def test_a_count_is_put_where_it_stands_many_calls_later() -> None:
    module = Counting(lambda place: place + 3)
    found = counts(module, ["calls", "place"], module)
    assert found.steps == {"calls": 1, "place": 3}
    assert found.most == 1 << 20
    assert int(module.calls) == 0
    found.put(module, late=True)
    assert (1 << 19) <= int(module.calls) <= 1 << 20
    assert int(module.place) == 3 * int(module.calls)


def ring(place: torch.Tensor) -> torch.Tensor:
    if int(place) >= 40:
        raise TaskError("an index", "of a place that there is not")
    return (place + 1) % 40


@pytest.mark.parametrize(
    ("step", "most"),
    [
        (lambda place: (place + 1) % 300, 1 << 8),
        (lambda place: (place + 1).clamp(max=20), 1 << 4),
        (ring, 1 << 4),
    ],
    ids=["a ring", "a count that stops", "a place"],
)
def test_a_place_in_a_ring_stays_in_it(step: Callable[[torch.Tensor], torch.Tensor], most: int) -> None:
    module = Counting(step)
    assert counts(module, ["calls", "place"], module).most == most


def test_what_moves_by_other_steps_is_no_count() -> None:
    module = Counting(lambda place: place * 2 + 1)
    assert counts(module, ["calls", "place"], module).steps == {"calls": 1}


class Warming(nn.Module):
    """Counts in floats, for each channel too, beside an average."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("time", torch.tensor(0.3))
        self.register_buffer("steps", torch.zeros(4))
        self.register_buffer("level", torch.zeros(4))

    def forward(self) -> None:
        self.get_buffer("time").add_(0.01)
        self.get_buffer("steps").add_(torch.tensor([1.0, 1.0, 2.0, 0.0]))
        self.get_buffer("level").lerp_(torch.randn(4), 0.1)


def test_counts_are_floats_and_vectors_too_and_stand_at_whole_steps() -> None:
    module = Warming()
    found = counts(module, ["time", "steps", "level"], module)
    assert set(found.steps) == {"time", "steps"}
    assert found.most == 1 << 14  # behind more calls a step of the time is no longer seen
    assert float(module.get_buffer("time")) == pytest.approx(0.3)
    module.get_buffer("steps").copy_(torch.tensor([0.4, 1.2, -0.3, 0.7]))  # as other weights are drawn
    found.put(module, late=True)
    steps = module.get_buffer("steps")
    assert bool((steps[:3] == steps[:3].round()).all())
    assert (1 << 13) <= int(steps[0]) <= (1 << 14) + 1
    assert int(steps[2]) % 2 == 0
    assert float(steps[3]) == pytest.approx(0.7)
