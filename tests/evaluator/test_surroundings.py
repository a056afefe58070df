"""What lies around inputs in shared memory, and inputs that are parts of one storage."""

from __future__ import annotations

import pytest
import torch

from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport.arena import Layout
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.together import groups
from egg.evaluator.trial.buffers import input_slots
from egg.evaluator.trial.surroundings import Surroundings

CPU = torch.device("cpu")


def laid(*tensors: torch.Tensor) -> tuple[arenas.Arena, tuple[Slot, ...], Surroundings]:
    layout = Layout()
    slots = input_slots(layout, tensors, groups(tensors))
    arena = arenas.create(layout.size, CPU)
    around = Surroundings(arena.view, CPU)
    around.fill(slots)
    for slot, tensor in zip(slots, tensors, strict=True):
        arena.view(slot).copy_(tensor)
    around.note(slots)
    return arena, slots, around


def test_halves_of_one_tensor_lie_in_one_region_as_far_apart_as_they_are():
    left, right = torch.randn(6, 8).chunk(2, dim=-1)
    arena, (first, second), around = laid(left, right)
    one, other = arena.view(first), arena.view(second)
    assert torch.equal(one, left)
    assert torch.equal(other, right)
    assert other.data_ptr() - one.data_ptr() == 4 * left.element_size()
    assert not around.changed((first, second))
    one.as_strided((6, 4), (8, 1), 4).fill_(1.0)  # between the rows of the one lies the other
    assert torch.equal(other, torch.ones(6, 4))


@pytest.mark.parametrize("shape", [(6, 4), (6, 1)])
def test_a_byte_between_rows_that_changed_is_seen_and_new_values_are_not(shape: tuple[int, int]):
    x = torch.randn(6, 8)[:, : shape[1]]
    arena, slots, around = laid(x)
    arena.view(slots[0]).mul_(2.0)
    assert not around.changed(slots)
    gap = arena.view(slots[0]).as_strided((1,), (1,), 7)
    gap.view(torch.uint8)[:1] ^= 1
    assert around.changed(slots)


def test_what_cannot_lie_together_is_laid_apart():
    whole = torch.randn(4, 64)
    assert [group.members for group in groups([whole[:2], whole[2:]])] == [(0, 1)]
    assert not list(groups([whole, whole[1:]])), "they have elements in common"
    assert not list(groups([whole[0, :2], whole[3, -2:]])), "the region would be mostly unused"
    assert not list(groups([whole[:, :1].expand(4, 8), whole[:, 1:]])), "it repeats elements"
    assert not list(groups([torch.randn(4), torch.randn(4)]))


def test_interleaved_inputs_lie_together_only_where_whole_draws_bring_their_values():
    halves = torch.randn(6, 8).chunk(2, dim=-1)
    assert list(groups(halves, [Kind.DRAWN, Kind.DRAWN]))
    assert not list(groups(halves, [Kind.DRAWN, Kind.FIXED]))
    assert list(groups(torch.randn(64).chunk(2), [Kind.LOOSE, Kind.FIXED]))
