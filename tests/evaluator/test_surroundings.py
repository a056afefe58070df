"""What lies around inputs in shared memory, and inputs that are parts of one storage."""

from __future__ import annotations

import pytest
import torch

from egg.evaluator.transport import arena as arenas
from egg.evaluator.transport.arena import Layout
from egg.evaluator.transport.freshen import Kind
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.together import FAR, NEAR, drawn_whole, groups, joined
from egg.evaluator.trial.buffers import input_slots
from egg.evaluator.trial.surroundings import Surroundings
from egg.evaluator.worker.inputs import Inputs

CPU = torch.device("cpu")


def laid(*tensors: torch.Tensor) -> tuple[arenas.Arena, tuple[Slot, ...], Surroundings]:
    layout = Layout()
    slots = input_slots(layout, tensors, groups(tensors))
    arena = arenas.create(layout.size, CPU)
    around = Surroundings(arena.view, CPU)
    around.fill(slots)
    for slot, tensor in zip(slots, tensors, strict=True):
        arena.view(slot).copy_(tensor.detach())
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
    apart = list(groups([whole[0, :2], whole[3, -2:]]))
    assert [group.members for group in apart] == [(1,)], "the region would be mostly unused"
    apart = list(groups([whole[:, :1].expand(4, 8), whole[:, 1:]]))
    assert [group.members for group in apart] == [(1,)], "it repeats elements"
    assert not list(groups([torch.randn(4), torch.randn(4)]))


def test_interleaved_inputs_lie_together_only_where_whole_draws_bring_their_values():
    halves = torch.randn(6, 8).chunk(2, dim=-1)
    assert list(groups(halves, [Kind.DRAWN, Kind.DRAWN]))
    assert [group.members for group in groups(halves, [Kind.DRAWN, Kind.FIXED])] == [(1,)]
    assert list(groups(torch.randn(64).chunk(2), [Kind.LOOSE, Kind.FIXED]))


def test_windows_of_one_storage_are_windows_of_one_region():
    signal = torch.randn(68)
    arena, (first, second), around = laid(signal[:-4].view(8, 8), signal[4:].view(8, 8))
    now, later = arena.view(first), arena.view(second)
    assert later.data_ptr() - now.data_ptr() == 4 * signal.element_size()
    assert torch.equal(now, signal[:-4].view(8, 8))
    assert torch.equal(later, signal[4:].view(8, 8))
    assert not around.changed((first, second))


def test_values_come_to_windows_by_whole_draws():
    signal = torch.randn(68)
    windows = [signal[:-4], signal[4:], torch.randn(64)]
    kinds = drawn_whole(windows, [Kind.LOOSE, Kind.FIXED, Kind.LOOSE])
    assert kinds == [Kind.DRAWN, Kind.FIXED, Kind.LOOSE]
    assert [group.members for group in groups(windows, kinds)] == [(0, 1)]
    assert [group.members for group in groups(windows[:2], [Kind.LOOSE, Kind.LOOSE])] == [(1,)]


def test_windows_that_are_given_other_values_have_those_of_one_memory():
    signal = torch.randn(68)
    windows = [signal[:-4], signal[4:]]
    held = list(groups(windows))
    assert joined(windows, held) is windows, "they lie like that"
    changed = [torch.zeros(64), torch.ones(64, requires_grad=True)]
    first, second = joined(changed, held)
    assert torch.equal(first, torch.cat((torch.zeros(4), torch.ones(60))))
    assert torch.equal(second, torch.ones(64))
    assert second.requires_grad
    other = [signal[:-4], signal[2:-2]]  # of one storage, but not as far apart
    first, second = joined(other, held)
    assert second.data_ptr() - first.data_ptr() == 4 * signal.element_size()
    assert torch.equal(second, signal[2:-2])


def test_what_begins_inside_of_its_storage_does_so_in_the_arena():
    arena, (slot,), around = laid(torch.randn(70)[6:].view(8, 8))
    assert arena.view(slot).storage_offset() == 6
    assert not around.changed((slot,))
    before = arena.view(slot).as_strided((1,), (1,), 5)
    before.view(torch.uint8)[:1] ^= 1
    assert around.changed((slot,)), "what lies before it is the caller's"


def test_a_small_part_of_a_large_tensor_keeps_its_alignment():
    (group,) = groups([torch.empty(NEAR + 10_000)[NEAR + 5_003 :][:64]])
    assert group.leads == (FAR + (NEAR + 5_003) % FAR,)


def test_an_input_that_requires_a_gradient_does_so_wherever_it_lies():
    signal = torch.randn(68, requires_grad=True)
    arena, slots, _ = laid(signal[:-4].detach().requires_grad_(), torch.randn(4))
    inputs = Inputs(arena, CPU)
    for given in ([inputs.fetch(slot) for slot in slots], inputs.elsewhere(slots)):
        assert [tensor.requires_grad for tensor in given] == [True, False]
        assert given[0].is_leaf


def test_inputs_elsewhere_lie_together_too():
    signal = torch.randn(68)
    arena, slots, _ = laid(signal[:-4], signal[4:])
    now, later = Inputs(arena, CPU).elsewhere(slots)
    assert later.data_ptr() - now.data_ptr() == 4 * signal.element_size()
    assert now.data_ptr() != arena.view(slots[0]).data_ptr()
    assert torch.equal(later, signal[4:])
