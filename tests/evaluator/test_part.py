"""A part of an output is held to itself: by all rules, as if the rest were not there."""

from __future__ import annotations

import pytest
import torch

from egg.core.policy import Precision
from egg.evaluator.compare.compare import compare, floor_for
from egg.evaluator.compare.part import Part
from egg.evaluator.gates.moved import exact_enough

MATCH = Precision.MATCH
ROWS, WIDTH = 4096, 64


Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def product(dtype: torch.dtype) -> Three:
    """In another order of summation, by the reference, and exactly; rows fade."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, WIDTH, generator=generator).to(dtype)
    w = torch.randn(WIDTH, WIDTH, generator=generator).to(dtype)
    fade = torch.exp(-torch.arange(ROWS) / 400)[:, None]
    halves = zip(x.float().chunk(2, -1), w.float().chunk(2, 0), strict=True)
    other = sum(a @ b for a, b in halves) * fade
    exact = (x.double() @ w.double()) * fade.double()
    return other.to(dtype), ((x.float() @ w.float()) * fade).to(dtype), exact


def only(part: Part, three: Three) -> Three:
    return part.of(three[0]), part.of(three[1]), part.of(three[2])


def some_rows(seed: int = 0) -> Part:
    marks = torch.zeros(ROWS, WIDTH, dtype=torch.bool)
    marks[torch.randint(ROWS, (140,), generator=torch.Generator().manual_seed(seed))] = True
    found = Part.marked(marks, 1 << 20)
    assert found is not None
    return found


def some_tiles() -> Part:
    marks = torch.zeros(ROWS, WIDTH, dtype=torch.bool)
    for at in range(0, ROWS, 512):
        marks[at : at + 16, at // 512 * 8 : at // 512 * 8 + 8] = True
    found = Part.marked(marks, 1 << 20)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("part", [some_rows(), some_rows(1), some_tiles()])
def test_another_order_of_summation_passes_in_parts(dtype: torch.dtype, part: Part) -> None:
    three = only(part, product(dtype))
    assert compare(*three, MATCH, banded=True, part=part).passed


def test_few_bits_of_a_part_are_seen_and_beside_the_rest_they_are_not() -> None:
    _, reference, exact = product(torch.bfloat16)
    part = some_rows()
    coarse = reference.clone()
    coarse.view(-1)[part.at] = ((part.of(reference).view(torch.int16) + 4) & -8).view(torch.bfloat16)
    assert compare(coarse, reference, exact, MATCH).rms_ratio <= 1.0
    three = only(part, (coarse, reference, exact))
    assert compare(*three, MATCH, banded=True, part=part).rms_ratio > 1.0


def test_a_faint_row_of_a_part_is_seen() -> None:
    other, reference, exact = product(torch.float32)
    part = some_rows()
    wrong = other.clone()
    faint = int(part.at[-1]) // WIDTH
    wrong[faint] *= 1.01
    three = only(part, (wrong, reference, exact))
    error = compare(*three, MATCH, banded=True, part=part)
    assert max(error.of_all) <= 1.0
    assert error.band.ratio > 1.0


def test_what_was_written_whole_is_no_part_and_of_much_there_is_a_sample() -> None:
    marks = torch.ones(64, 64, dtype=torch.bool)
    assert Part.marked(marks, 4096) is None
    sample = Part.marked(marks, 100)
    assert sample is not None
    assert 1 < len(sample.at) <= 100


def test_slices_of_a_part_are_its_rows_filled_up() -> None:
    marks = torch.zeros(6, 10, dtype=torch.bool)
    marks[2, 1:9] = marks[4] = marks[5, :3] = True
    part = Part.marked(marks, 100)
    assert part is not None
    whole = torch.arange(60.0).reshape(6, 10)
    (rows,) = part.slices([part.of(whole)], (0,), 8, (256, 256))
    found = {frozenset(row[~row.isnan()].tolist()) for row in rows}
    assert rows.shape == (2, 10)
    assert found == {frozenset(whole[2, 1:9].tolist()), frozenset(whole[4].tolist())}


def test_complex_elements_are_pairs() -> None:
    part = Part(torch.Size((4,)), torch.tensor([1, 3]))
    whole = torch.randn(4, dtype=torch.complex64)
    pairs = part.in_pairs().of(torch.view_as_real(whole))
    assert torch.equal(pairs.reshape(2, 2), torch.view_as_real(part.of(whole)))
    assert compare(part.of(whole), part.of(whole), part.of(whole), MATCH, banded=True, part=part).passed


def test_small_elements_count_where_the_reference_is_its_own_measure() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 256, generator=generator)
    large = torch.rand(64, 256, generator=generator) > 0.25
    usual = torch.where(large, 1e4 * (2.0 + x.sin()), 0.05 * torch.tanh(x))
    honest = torch.where(large, 1e4 * (2.0 + x.sin()), 0.05 * (2.0 * torch.sigmoid(2.0 * x) - 1.0))
    assert compare(honest, usual, usual, MATCH, by_itself=True).passed
    without = torch.where(large, usual, 0.0)
    assert compare(without, usual, usual, MATCH).passed
    assert not compare(without, usual, usual, MATCH, by_itself=True).passed


def test_buffers_are_held_by_their_columns_too() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 128, generator=generator)
    x[:, ::16] *= 1e3
    exact = x.double().square().sum(0)
    halves = sum(part.square().sum(0) for part in x.chunk(2))
    order = floor_for(torch.float32, MATCH)
    assert isinstance(halves, torch.Tensor)
    assert exact_enough(halves, x.square().sum(0), exact, order)
    coarse = halves.clone()
    coarse[1::16] *= 1.0001
    assert not exact_enough(coarse, x.square().sum(0), exact, order)
