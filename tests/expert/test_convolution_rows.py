"""Lanes along positions and whole rows: how tiles are read and written where addresses show no runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.expert.convolutions import Case, within
from tests.expert.test_convolution import EXACT, SMALL

TURNED = Case("turned", 2, 3, 5, (4, 5), (3, 3), 2, 1, transposed=True, tail=("residual", "relu"))
SPARSE = Case("sparse", 1, 4, 6, (2, 3), (3, 3), 5, 1, 2, 2, transposed=True, output_padding=1)
EMPTY = Case("empty", 1, 3, 5, (3, 4), (3, 3), 2, 1, 2, transposed=True)
ODD = Case("odd", 2, 5, 7, (5, 7), (1, 1), tail=("relu",))
LONG = Case("long", 1, 2, 2, (12, 13), (8, 7), 2, 3, groups=2)


@pytest.mark.parametrize(
    ("case", "mode"),
    [
        (SPARSE, "packed"),
        (ODD, "direct"),
        *((case, mode) for case in (TURNED, EMPTY) for mode in ("packed", "direct", "window")),
    ],
    ids=str,
)
def test_right_at_other_sizes(case: Case, mode: str) -> None:
    settings = {key: value for key, value in SMALL.items() if mode != "window" or key != "BLOCK_K"}
    case = replace(case, settings={**settings, "mode": mode, "grade": "fp32"})
    within(EXACT, case, case.larger())


def test_both_phases_of_a_row_are_written_together() -> None:
    for mode in ("packed", "direct", "window"):
        text = replace(TURNED, settings={"mode": mode}).source()
        assert "rh = pid % 2" in text or "for rh in range(2):" in text
        assert "rw = v % 2" in text
        assert text.count("tl.join(") == 1


def test_many_phases_become_zeros() -> None:
    text = replace(SPARSE, settings={"mode": "packed"}).source()
    assert "(in_w * 5 == uw)" in text
    assert "mask=tl.trans(inside)" in text


def test_one_dimension_where_addresses_show_no_runs() -> None:
    even = replace(ODD, space=(6, 8))
    for case, flat in ((ODD, True), (even, False), (replace(TURNED, tail=()), True)):
        text = replace(case, settings={"mode": "direct"}).source()
        assert ("(BLOCK_K * BLOCK_P,)" in text) == flat
        assert ("(BLOCK_O * BLOCK_P" in text) == flat


def test_taps_are_counted_along_each_axis() -> None:
    """A quotient of a loop's counter in a mask is read wrong by some compilers."""
    within(EXACT, replace(LONG, settings={"mode": "depthwise", "BLOCK": 64}))
    text = LONG.source()
    assert "for jh in range(8):" in text
    assert "for jh in tl.static_range(5):" in replace(LONG, kernel=(5, 5), dilation=2).source()
