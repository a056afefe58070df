"""Which programs of a long launch run, and what may be concluded from them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from egg.evaluator.gates.compile import _tuned
from egg.evaluator.interpreter.excerpt import Excerpt, Incomplete, numbers_of, places_near
from egg.evaluator.interpreter.places import number_of, place_of
from egg.evaluator.interpreter.trails import Stores, Trail, Written
from egg.evaluator.worker import excerpt as worker
from egg.evaluator.worker.pretend import ClaimCuda

LIMIT = 6_000


def odd_kernel(row, part):
    if row == 2718 and part == 5:
        return 1 << 20
    return row >= 3 * 1000, row < LIMIT


def ran(seconds_each: float, grid: tuple[int, ...]) -> list[int]:
    clock = itertools.count()
    excerpt = Excerpt(whole_seconds=1.0, clock=lambda: next(clock) * seconds_each)
    found: list[int] = []
    for _ in excerpt.programs(SimpleNamespace(fn=odd_kernel), grid, {}, found):
        pass
    return found


def test_the_integers_of_a_kernel_are_found_as_written_and_folded():
    assert {2718, 5, 1 << 20, 3000, LIMIT} <= numbers_of(odd_kernel)


def test_an_affordable_launch_runs_whole_and_in_order():
    assert ran(0.001, (40, 3, 1)) == list(range(1, 121))


def test_programs_are_numbered_along_the_first_axis():
    grid = (3, 2, 4)
    places = [place_of(number, grid) for number in range(1, 25)]
    assert places[:4] == [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 1, 0)]
    assert [number_of(place, grid) for place in places] == list(range(1, 25))


def test_of_a_long_launch_the_program_that_a_branch_names_runs():
    found = ran(0.004, (8192, 8, 1))
    assert len(found) == len(set(found)) < 1000
    assert number_of((2718, 5, 0), (8192, 8, 1)) in found
    assert {1, 8192 * 8} <= set(found)


def test_an_element_is_found_in_the_program_that_computes_it():
    _, near = places_near((1000, 2), {700 * 1024 + 3}, {"BLOCK": 1024})
    assert 700 in near[0]


def test_nothing_is_concluded_from_a_result_that_is_read_in_part():
    y = torch.zeros(4)
    excerpt = Excerpt()
    excerpt.partial[y.untyped_storage().data_ptr()] = Written(4, torch.ones(4).bool().numpy(), y)
    with worker.NoReads(excerpt):
        view = y.view(2, 2)[0]
        with pytest.raises(Incomplete):
            torch.sum(view)
    assert "only some programs" in excerpt.without


def test_elements_that_follow_from_written_ones_are_there():
    y, other = torch.zeros(2, 2), torch.zeros(2, 1)
    excerpt = Excerpt()
    excerpt.partial[y.untyped_storage().data_ptr()] = Written(4, np.array([1, 1, 0, 1], dtype=bool), y)
    excerpt.partial[other.untyped_storage().data_ptr()] = Written(4, np.array([0, 1], dtype=bool), other)
    with worker.NoReads(excerpt):
        made = torch.add(y.t(), other).bfloat16()
    assert worker.marks([("0", made)], excerpt.partial)[0][1].tolist() == [[0, 0], [1, 1]]


def test_what_is_stored_in_pairs_is_marked_by_its_bytes():
    y = torch.zeros(4, dtype=torch.int32)
    written = Written(4, np.zeros(4, dtype=bool), y)
    written.mark(np.array([4, 12]), 4)
    written.mark(np.array([2]), 2)
    half = y.view(torch.bfloat16)
    marks = worker.marks([("0", half)], {y.untyped_storage().data_ptr(): written})
    assert marks[0][1].tolist() == [0, 1, 1, 1, 0, 0, 1, 1]
    assert written.has(np.array([0, 4, 2]), 4).tolist() == [False, True, True]
    written.mark(np.array([4]), 4, value=False)
    assert not written.has(np.array([4]), 2).any()


def trail(grid: tuple[int, ...], ran: list[int], first: dict[int, int], pitch: int = 0) -> Trail:
    return Trail(grid, ran, {1: Stores(first, pitch)}, lambda number: None, None, lambda: True)


def test_programs_are_tried_where_earlier_ones_ran():
    excerpt, races = Excerpt(), SimpleNamespace(written={}, has_atomics=False, stores={}, loaded=set())
    excerpt.trails.append(trail((400, 1, 1), [7, 300], {}))
    found: list[int] = []
    for number in excerpt.programs(SimpleNamespace(fn=odd_kernel), (2, 400, 1), {}, found):
        if place_of(number, (2, 400, 1))[1] not in (6, 299):
            excerpt.miss(found)
    assert {place_of(number, (2, 400, 1))[1] for number in found} == {6, 299}
    with pytest.raises(Incomplete):
        excerpt.finish("k", (2, 400, 1), [], races, lambda number: None)  # type: ignore[arg-type]


def test_a_byte_leads_back_to_the_program_that_stores_it():
    """Tiles of 16 rows and 32 columns of a matrix of 128 columns of four bytes."""
    grid, pitch = (4, 8, 1), 512
    first = {
        number: place_of(number, grid)[0] * 128 + place_of(number, grid)[1] * 16 * pitch
        for number in (1, 2, 5, 32, 12)
    }
    made = trail(grid, list(first), first, pitch)
    row, column = 37, 70
    assert made.makers(1, np.array([row * pitch + column * 4])) == [number_of((2, 2, 0), grid)]
    first[12] += 4
    assert made.makers(1, np.array([row * pitch + column * 4])) == []


def test_only_written_elements_are_marked():
    y = torch.zeros(2, 3)
    written = Written(4, torch.tensor([1, 0, 0, 0, 1, 0]).bool().numpy(), y)
    marks = worker.marks([("0", y.t()), ("1", torch.zeros(2))], {y.untyped_storage().data_ptr(): written})
    assert marks[0][1].tolist() == [[1, 0], [0, 1], [0, 0]]
    assert marks[1][1].tolist() == [1, 1]


def test_what_configurations_set_is_not_compared():
    source = "c = [triton.Config({'BLOCK': b}, num_warps=4) for b in (1, 2)]\nd = {'ROUGH': 1}"
    assert _tuned(source) == {"BLOCK"}


def test_a_candidate_sees_its_tensors_on_the_gpu():
    code = "def f(x):\n    return str(x.device), torch.empty(2, device=x.device).to(x.device), x.get_device()"
    candidate: dict[str, object] = {"__file__": "candidate.py", "torch": torch}
    exec(code, candidate)
    x = torch.zeros(2)
    with ClaimCuda():
        device, made, number = candidate["f"](x)  # type: ignore[operator]
        truth = x.device.type
    assert (device, made.device.type, number, truth) == ("cuda:0", "cpu", 0, "cpu")
