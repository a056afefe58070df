"""Reads of what an earlier call left, by operators of PyTorch; kernels that load it are in the corpus."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from egg.evaluator.interpreter.left import Left
from egg.evaluator.interpreter.session import Session
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.task.containers import contents
from egg.evaluator.worker import kept as kept_module
from egg.evaluator.worker.kept import Kept
from egg.evaluator.worker.memories import Spared

NOTHING = Spared(frozenset())


def own(kept: Kept, *weights: torch.Tensor) -> Spared:
    return Spared(frozenset(held.data_ptr() for held in kept.copies()), weights)


Use = Callable[[torch.Tensor], object]


def found(use: Use) -> str:
    """What is seen where ``use`` is given a tensor of which the second row was left by an earlier call."""
    kept = torch.ones(4, 8)
    raw: torch.Tensor = torch.empty(0, dtype=torch.uint8).set_(kept.untyped_storage(), 0, (kept.nbytes,))  # pyright: ignore
    marks = torch.zeros(kept.nbytes, dtype=torch.bool)
    marks[32:64] = True
    left = Left({kept.data_ptr(): (raw, marks)}, Session())
    with left, Recorder(reader=left):
        use(kept)
    return left.found


@pytest.mark.parametrize(
    "use",
    [
        lambda kept: kept + 1,
        lambda kept: kept.t()[3].sum(),
        lambda kept: kept[1, 2].item(),
        lambda kept: torch.cat([torch.ones(1, 8), kept]),
        lambda kept: kept.add_(1),
        lambda kept: (kept[1, :7].zero_(), kept[1].clone()),
        lambda kept: torch.ones(4, 8).copy_(kept),
    ],
)
def test_what_was_left_is_read(use: Use) -> None:
    assert "reads" in found(use)


@pytest.mark.parametrize(
    "use",
    [
        lambda kept: kept[0] + kept[2:].sum(),
        lambda kept: (kept.zero_(), kept + 1),
        lambda kept: (kept[1].copy_(torch.ones(8)), kept.sum()),
        lambda kept: (torch.mul(torch.ones(4, 8), 2, out=kept), kept.sum()),
        lambda kept: (kept.view(8, 4), kept.t(), torch.empty_like(kept), torch.zeros_like(kept), kept.shape),
    ],
)
def test_what_was_written_anew_or_never_left_is_not(use: Use) -> None:
    assert not found(use)


def test_a_counter_of_calls_follows_from_no_input() -> None:
    """Both calls start from the same contents: the counter is the same behind them, the copy is not."""
    counter, copy = torch.zeros(1), torch.zeros(2)
    kept = Kept()
    kept.note(NOTHING)

    def call(value: float) -> None:
        counter.add_(1)
        copy.fill_(value)

    call(5.0)
    assert kept.compare(NOTHING) >= 2
    kept.rewind(own(kept))
    call(3.0)
    left = kept.left(own(kept))
    assert not left[counter.data_ptr()][1].any()
    assert left[copy.data_ptr()][1].any()


def test_a_counter_of_calls_is_known_where_nothing_was_put_back() -> None:
    counter, copy = torch.zeros(1, dtype=torch.int32), torch.zeros(2)
    kept = Kept()

    def call(value: float) -> None:
        counter.add_(1)
        copy.fill_(value)

    call(4.0)
    kept.note(NOTHING)
    call(5.0)
    kept.compare(own(kept))
    call(3.0)
    left = kept.left(own(kept))
    assert not left[counter.data_ptr()][1].any()
    assert left[copy.data_ptr()][1].any()


@pytest.mark.parametrize("step", [1, 2])
def test_of_memory_with_a_weight_in_it_the_weight_alone_is_spared(step: int) -> None:
    whole = torch.zeros(64)
    weight = whole[: 16 * step : step]
    kept = Kept()
    kept.note(Spared(frozenset(), (weight,)))
    whole.fill_(1.0)
    kept.compare(own(kept, weight))
    assert whole.data_ptr() in dict(kept.changed)
    kept.rewind(own(kept, weight))
    assert weight.eq(1.0).all()
    assert whole.sum() == 16
    whole.fill_(2.0)
    marks = kept.left(own(kept, weight))[whole.data_ptr()][1]
    assert int(marks.view(64, 4).any(1).sum()) == 48


@pytest.mark.parametrize(
    "change",
    [
        lambda given: given[1].update(a=2),
        lambda given: given[1].update(b=None),
        lambda given: given[1].pop("a"),
        lambda given: given[1]["names"].reverse(),
        lambda given: given[1].update(a=1.0),
        lambda given: given.append(3),
    ],
)
def test_contents_show_what_changed(change: Callable[[list], object]) -> None:
    given = [torch.ones(2), {"a": 1, "names": ["p", "q"]}]
    before = contents(given)
    assert contents(given) == before
    change(given)
    assert contents(given) != before


def test_values_are_put_back_beside_the_key_that_stays() -> None:
    """A copy of the inputs and what was made of them, in one tensor."""
    first, second = torch.arange(4.0), torch.arange(4.0) + 10
    memory = torch.cat([first, first * 0.5 - 100])
    kept = Kept()
    kept.note(NOTHING)
    memory.copy_(torch.cat([second, second * 0.5 - 100]))
    kept.compare(own(kept))
    number = [at for at, _ in kept.changed].index(memory.data_ptr())
    kept.put_back(number, own(kept), [second])
    assert torch.equal(memory, torch.cat([second, first * 0.5 - 100]))


def test_a_new_tensor_stands_for_the_one_of_its_size_that_has_gone() -> None:
    kept, holder = Kept(), [torch.full((1237,), 1.0)]
    kept.note(NOTHING)
    made = torch.full((1237,), 2.0)
    holder[0] = made
    kept.compare(own(kept))
    number = [at for at, _ in kept.changed].index(made.data_ptr())
    kept.put_back(number, own(kept))
    assert made.eq(1.0).all()


def fresh(use: Callable[[], object]) -> str:
    """What is seen where ``use`` takes memory."""
    left = Left({}, Session())
    with left, Recorder(reader=left, fill_empties=left.fresh):
        use()
    return left.found


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(8) + 1,
        lambda: torch.empty(4, 8)[1].clone(),
        lambda: torch.ones(4).resize_(64).sum(),
    ],
)
def test_new_memory_is_read_that_nothing_has_written(use: Callable[[], object]) -> None:
    assert "before anything is stored there" in fresh(use)


def inverse() -> torch.Tensor:
    order = torch.arange(7, -1, -1)
    found = torch.empty_like(order)
    found[order] = torch.arange(8)
    return found + 1


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.empty(8).zero_() + 1,
        lambda: torch.empty(8).normal_() + 1,
        lambda: torch.zeros(8) + torch.ones(8),
        lambda: torch.ones(4).resize_(64)[:4].sum(),
        inverse,
    ],
)
def test_new_memory_is_written_first(use: Callable[[], object]) -> None:
    assert not fresh(use)


def test_pages_of_a_large_memory_that_two_calls_leave_different_are_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_module, "MOST_COPIED", 1 << 12)
    held, kept = torch.zeros(3 << 10), Kept()
    kept.note(NOTHING)
    held[0] = 1.0
    assert not kept.compare(own(kept))
    assert kept.new
    held[0], held[2000] = 2.0, 3.0
    _, marks = kept.left(own(kept))[held.data_ptr()]
    assert marks.view(3, -1).all(dim=1).tolist() == [True, True, False]


def test_values_of_a_sparse_tensor_are_kept_too() -> None:
    held, kept = torch.ones(64).to_sparse(), Kept()
    kept.note(NOTHING)
    held.values()[3] = 5.0
    assert kept.compare(own(kept)) == 1


def test_an_attribute_that_the_judge_compares_is_spared_and_its_neighbour_is_not() -> None:
    storage, kept = torch.zeros(16), Kept()
    load = storage[:8]
    kept.note(Spared(frozenset(), (load,)))
    load += 1
    assert not kept.compare(own(kept, load))
    storage[8] = 1.0
    assert kept.compare(own(kept, load)) == 1
