"""What pages are made of: figures, differences, highlighting, scales, words in Markdown and in tables."""

from __future__ import annotations

import csv
import html
import io
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.core.evaluation import Interval
from egg.report.canvas import Picture, Scale, drawn
from egg.report.difference import LONGEST, Sign, difference
from egg.report.elements import element, text, visible
from egg.report.highlight import highlighted
from egg.report.markdown import cell, code, fenced, line
from egg.report.numbers import ends, money, seconds, sentence, share, speed, stopped, time, times
from egg.report.tables import csv_text
from tests.report.made import HOSTILE, SOFTMAX

POSITIVE = st.floats(1e-6, 1e6)
TEXTS = st.text(st.characters(codec=None), max_size=60)  # lone surrogates too: JSON brings them
LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "", "    return a", "# note"]), max_size=14)


# -- figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "written"),
    [
        (times(1.974), "1.97×"),
        (times(12.34), "12.3×"),
        (times(0.0841), "0.084×"),
        (times(1234.5), "1,234×"),
        (times(None), "–"),
        (times(float("inf")), "–"),
        (ends(Interval(2.0, 1.9, 2.1)), "1.90–2.10"),
        (ends(Interval(1.9742, 1.9731, 1.9747)), "1.973–1.975"),
        (ends(Interval(1.0, 1.0, 1.0)), "1.00–1.00"),
        (ends(None), ""),
        (share(None), "–"),
        (share(0.004), "<1%"),
        (time(0.004), "4 μs"),
        (time(None), "–"),
        (seconds(0.24), "0.24 s"),
        (seconds(59.7), "1 min 00 s"),
        (seconds(3599.6), "1 h 00 min"),
        (money(0.0), "$0.00"),
        (money(0.0123), "$0.012"),
        (money(1234.5), "$1,234.50"),
        (sentence("predicted 1.30x, measured 0x1f"), "Predicted 1.30×, measured 0x1f."),
        (sentence(""), ""),
        (stopped("conv_2: why"), "conv_2: why."),
        (stopped("Done!"), "Done!"),
    ],
)
def test_figures_are_written_as_people_write_them(made: str, written: str) -> None:
    assert made == written


@pytest.mark.parametrize(
    ("found", "written"),
    [
        (Interval(0.998, 0.997, 0.999), "0.998×"),
        (Interval(0.9999, 0.9998, 0.99995), "0.9999×"),
        (Interval(1.002, 1.001, 1.003), "1.002×"),
        (Interval(0.998, 0.99, 1.01), "1.00×"),
        (Interval(12.34, 12.0, 13.0), "12.3×"),
        (None, "–"),
    ],
)
def test_a_speedup_that_differs_from_one_is_not_written_as_one(found: Interval | None, written: str) -> None:
    assert speed(found) == written


@given(POSITIVE, POSITIVE)
def test_the_two_ends_of_an_interval_are_told_apart_as_far_as_digits_go(a: float, b: float) -> None:
    low, high = sorted((a, b))
    written = ends(Interval((low + high) / 2, low, high))
    if high - low > 1e-4 and high > low * 1.1:
        assert "–" in written


# -- what is not ours ------------------------------------------------------------------------------


@given(TEXTS)
def test_text_is_visible_and_can_be_written_wherever_it_came_from(raw: str) -> None:
    shown = visible(raw)
    shown.encode("utf-8")
    assert visible(shown) == shown
    assert len(shown) == len(raw)
    ElementTree.fromstring(element("text", text(raw), id=visible(raw)))


@given(TEXTS)
def test_words_in_markdown_stay_words(raw: str) -> None:
    shown = line(raw)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[<>\[\]|`*_]", shown)
    assert "\n" not in cell(raw)


@given(st.text("`a \n", max_size=30))
def test_a_fence_is_longer_than_what_it_holds(raw: str) -> None:
    block = fenced(raw, "python").splitlines()
    assert block[0].startswith("```")
    assert all(block[-1] not in inner for inner in block[1:-1])
    marks = re.match("`+", code(raw))
    assert marks is not None
    assert marks[0] not in " ".join(raw.split())


def test_a_cell_that_a_spreadsheet_would_run_is_quoted() -> None:
    made = csv_text(["a", "b", "c", "d"], [["=1+1", "-2,5", -2.5, None], [HOSTILE, "plain", True, "@x"]])
    rows = list(csv.reader(io.StringIO(made, newline="")))
    assert rows[1] == ["'=1+1", "'-2,5", "-2.5", ""]
    assert rows[2][1:] == ["plain", "true", "'@x"]
    made.encode("utf-8")


# -- files -----------------------------------------------------------------------------------------


@given(LINES, LINES)
def test_a_difference_leads_from_one_file_to_the_other(before: list[str], after: list[str]) -> None:
    found = difference("\n".join(before), "\n".join(after))
    kept = [entry for entry in found.lines if entry.kind is not Sign.PLACE]
    for side, gone in ((before, Sign.ADDED), (after, Sign.REMOVED)):
        shown = [entry.text for entry in kept if entry.kind is not gone]
        rest = iter(side)
        assert all(any(shown_line == own for own in rest) for shown_line in shown)
    assert (found.added, found.removed) == tuple(
        sum(entry.kind is sign for entry in kept) for sign in (Sign.ADDED, Sign.REMOVED)
    )
    assert bool(found.lines) == ("\n".join(before).splitlines() != "\n".join(after).splitlines())


def test_what_is_too_long_is_not_compared() -> None:
    found = difference("a\n" * LONGEST, "b\n")
    assert found.too_long
    assert found.counts == "too long to compare"


@settings(deadline=None)  # the first example loads the highlighter
@given(st.text("'\"\\#@ \n\tdefclass_r0x1.e+-é<&", max_size=80))
def test_highlighting_changes_no_character(source: str) -> None:
    shown = re.sub(r"</?span[^>]*>", "", str(highlighted(source)))
    assert html.unescape(shown) == visible(source)


def test_highlighting_knows_python() -> None:
    shown = str(highlighted('@triton.jit\ndef add(x):  # sum\n    return "a<b", 0x1F, 2.5e-3, None\n'))
    for part in (
        '<span class="d">@triton</span>.jit',
        '<span class="n">add</span>',
        '<span class="c"># sum</span>',
        '<span class="k">return</span>',
        '<span class="s">&quot;a&lt;b&quot;</span>',
        '<span class="m">0x1F</span>',
        '<span class="m">2.5e-3</span>',
        '<span class="k">None</span>',
    ):
        assert part in shown


@pytest.mark.parametrize("broken", ["", "'", '"""', "def ", "# ", "f'{", "\\"])
def test_highlighted_source_cannot_become_markup(broken: str) -> None:
    source = f'x = {broken}</code></pre><script>alert(1)</script><img src=x onerror="alert(2)">&amp;\n'
    shown = str(highlighted(source))
    assert set(re.findall(r"<[^>]*>", shown)) <= {f'<span class="{name}">' for name in "cskmdn"} | {"</span>"}
    assert html.unescape(re.sub(r"<[^>]*>", "", shown)) == source


def test_highlighting_takes_no_longer_than_reading() -> None:
    source = (SOFTMAX / "kernel.py").read_text()
    for text_ in (source * 40, "'''" + "'' \\" * 40_000, '"' * 100_000, "f'" * 50_000):
        highlighted(text_)  # a pattern that goes back and forth would not come to an end


# -- scales ----------------------------------------------------------------------------------------


@given(st.lists(POSITIVE, min_size=1, max_size=8), st.integers(2, 9))
def test_a_scale_holds_its_values_in_order_and_has_round_ticks(values: list[float], most: int) -> None:
    scale = Scale.around(values, 40, 600)
    places = [scale.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(40 <= place <= 600 for place in places)
    ticks = scale.ticks(most)
    assert 1 <= len(ticks) <= max(most, 2)
    assert all(scale.low <= tick <= scale.high for tick in ticks)
    assert ticks == sorted(set(ticks))


def test_a_scale_of_nothing_still_has_a_middle() -> None:
    scale = Scale.around([], 0, 100)
    assert scale.at(1.0) == pytest.approx(50)
    assert (scale.at(0.0), scale.at(1e9)) == (0, 100)


@given(TEXTS)
def test_a_picture_is_whole_whatever_it_is_called(raw: str) -> None:
    made = drawn("x", raw, raw, lambda width: Picture(10, ()))
    whole = ElementTree.fromstring(f"<both>{made}</both>")
    ids = [part.get("id") for part in whole.iter() if part.get("id")]
    assert len(ids) == len(set(ids)) == 4
