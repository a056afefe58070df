"""Dimensions that a caller may change: alone, together, in steps; and inputs at other sizes."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.dimensions import Axis, Place, Rehearsal, Varied, axes, leaves, resized
from egg.evaluator.task.program import Program
from tests.expert.captured import program

CPU = torch.device("cpu")


def _axes(task: Task) -> dict[str, tuple[int, int]]:
    """``0:1+1:0`` for the dimensions of an axis, with its size and step."""
    with Program.load(task) as loaded:
        return {_spelled(axis): (axis.size, axis.step) for axis in axes(loaded)}


def _spelled(axis: Axis) -> str:
    return "+".join(f"{'.'.join(map(str, place.path))}:{place.dim}" for place in axis.places)


def test_equal_sizes_of_a_product_come_apart() -> None:
    task = program("a @ b", "torch.randn(6, 6), torch.randn(6, 6)", arguments="a, b")
    assert _axes(task) == {"0:0": (6, 1), "0:1+1:0": (6, 1), "1:1": (6, 1)}


def test_batch_and_heads_of_one_size_move_each_in_all_tensors() -> None:
    inputs = ", ".join(["torch.randn(4, 4, 6, 8)"] * 3)
    task = program("F.scaled_dot_product_attention(q, k, v)", inputs, arguments="q, k, v")
    assert set(_axes(task)) == {"0:0+1:0+2:0", "0:1+1:1+2:1", "0:2", "1:2+2:2", "0:3+1:3", "2:3"}


def test_what_the_constructor_decides_is_no_axis() -> None:
    task = program("self.fc(x)", "torch.randn(512, 512)", "self.fc = nn.Linear(512, 512)")
    assert _axes(task) == {"0:0": (512, 1)}


def test_a_dimension_that_is_cut_into_patches_moves_in_steps() -> None:
    task = program("x.view(x.shape[0], -1, 6).sum(1)", "torch.randn(3, 24)")
    assert _axes(task) == {"0:0": (3, 1), "0:1": (24, 6)}


def test_a_dimension_that_only_rounds_to_the_same_is_none() -> None:
    """A pool takes 24 to 26 for 24; a layer after it takes no other size."""
    task = program("self.fc(F.max_pool1d(x, 3))", "torch.randn(2, 5, 24)", "self.fc = nn.Linear(8, 4)")
    assert set(_axes(task)) == {"0:0", "0:1"}


def test_a_table_of_positions_bounds_a_length_from_above() -> None:
    task = program("x + self.at[: x.shape[1]]", "torch.randn(2, 32, 8)", "self.at = torch.zeros(32, 8)")
    assert set(_axes(task)) == {"0:0", "0:1"}


def test_transposed_convolutions_need_their_channels() -> None:
    task = program("self.a(x)", "torch.randn(2, 6, 9)", "self.a = nn.ConvTranspose1d(6, 4, 3)")
    assert set(_axes(task)) == {"0:0", "0:2"}


def test_state_that_a_forward_leaves_behind_does_not_decide_the_next() -> None:
    forward = "self.last = x if self.last is None else self.last + x; return self.last"
    task = program(forward, "torch.randn(4, 5)", "self.last = None")
    assert set(_axes(task)) == {"0:0", "0:1"}


def test_tensors_in_lists_and_dictionaries_have_paths() -> None:
    task = program("a[0] + a[1]['b']", "[torch.randn(4, 5), {'b': torch.randn(5)}]", arguments="a")
    assert set(_axes(task)) == {"0.0:0", "0.0:1+0.1.b:0"}


def test_the_number_of_runs_is_bounded() -> None:
    with Program.load(program("a @ b", "torch.randn(6, 6), torch.randn(6, 6)", arguments="a, b")) as loaded:
        rehearsal = Rehearsal(loaded, 1)
        assert rehearsal.runs({})
        assert not rehearsal.runs({Place((0,), 0): 7})


@pytest.mark.parametrize("size", [3, 9])
def test_resized_indices_stay_legal_and_strides_keep_their_order(size: int) -> None:
    index, image = (
        torch.tensor([4, 1, 0, 1, 3]),
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    )
    changed = resized([index, image], {Place((0,), 0): size, Place((1,), 2): size})
    assert changed[0].tolist() == ([4, 1, 0, 1, 3] * 2)[:size]
    assert changed[1].shape == (2, 3, size, 5)
    assert changed[1].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(changed[1][:, :, :3], image[:, :, :3])
    assert resized([index], {})[0] is index


def test_a_program_with_other_arguments_and_sizes_is_a_program() -> None:
    source = program("self.fc(x) * k", "torch.randn(4, 8), 2.0", arguments="x, k").source
    source = source.replace("__init__(self)", "__init__(self, width, bias=True)")
    source = source.replace("pass", "self.fc = nn.Linear(8, width, bias)").replace("return []", "return [6]")
    with Program.load(Task("small", source)) as loaded:
        other = Varied.of(
            loaded, sizes={Place((0,), 0): 3}, arguments={"bias": False, "width": 5}, values={1: 0.0}
        )
        module = other.build(0, CPU, Precision.MATCH)
        inputs = other.inputs(0, CPU, Precision.MATCH)
        assert [tuple(t.shape) for _, t in leaves(inputs)] == [(3, 8)]
        assert "fc.bias" not in module.state_dict()
        assert torch.equal(other.run(module, inputs), torch.zeros(3, 5))


def test_batches_of_one_grow_together_and_are_not_repeated() -> None:
    task = program("a * b + c", "torch.randn(1, 5), torch.randn(1, 5), torch.randn(5)", arguments="a, b, c")
    assert "0:0+1:0" in _axes(task)


def test_places_that_differ_go_on_with_others_that_are_legal():
    slots, routes = torch.randperm(512)[:64], torch.rand(8, 32).topk(4).indices
    tokens = torch.tensor([3, 5, 3, 9])
    sizes = {Place((0,), 0): 128, Place((1,), 1): 8, Place((2,), 0): 6, Place((3,), 0): 9}
    grown = resized([slots, routes, tokens, torch.arange(6)], sizes)
    assert len(grown[0].unique()) == 128
    assert int(grown[0].max()) < 512
    assert torch.equal(grown[0][:64], slots)
    assert all(len(row.unique()) == 8 for row in grown[1])
    assert int(grown[1].max()) < 32
    assert grown[2].tolist() == [3, 5, 3, 9, 3, 5]
    assert grown[3].tolist() == list(range(9))
