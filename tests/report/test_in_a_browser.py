"""The pages in real Chromium: they open soon, ask for nothing, and sort, filter and fold as they should."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from egg.report.bench_page import bench_html
from egg.report.bench_report import bench_report
from egg.report.compare_page import compare_html
from egg.report.compare_report import read_comparison
from egg.report.reports import report, write
from tests.report.browser import CONTRASTS, DESK, PHONE, chromium, opened
from tests.report.made import SOFTMAX, hostile_run, many_rows
from tests.report.test_bench_page import hostile
from tests.report.test_compare_page import two_sided

__all__ = ["chromium"]

COLUMN = """(n) => [...document.querySelectorAll("#tasks-table tbody tr")]
  .filter((row) => !row.hidden).map((row) => row.cells[n].dataset.v ?? row.cells[n].textContent.trim())"""


TEXTS = """() => [...document.querySelectorAll("svg[role=img]")].filter((svg) => svg.getClientRects().length)
  .flatMap((svg) => [...svg.querySelectorAll("text")].map((text) => {
    const room = svg.getBoundingClientRect(), box = text.getBoundingClientRect();
    return {
      text: text.textContent,
      pixels: parseFloat(getComputedStyle(text).fontSize) * room.width / svg.viewBox.baseVal.width,
      inside: box.left >= room.left - 1 && box.right <= room.right + 1
        && box.top >= room.top - 1 && box.bottom <= room.bottom + 1,
    };
  }))"""
"""Every text of a picture that is seen: how large it is, and whether the picture holds all of it."""

SHOWN = "(marks) => [...document.querySelectorAll(marks)].filter((mark) => mark.checkVisibility()).length"
FILLS = "(marks) => [...document.querySelectorAll(marks)].map((mark) => getComputedStyle(mark).fill)"
PRESS_ALL = "document.querySelectorAll('th button, button[data-fold], summary').forEach(b => b.click())"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(report(SOFTMAX), tmp_path_factory.mktemp("run") / "report.html")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """250 tasks."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "rows.jsonl").write_text("".join(row.to_line() + "\n" for row in many_rows(250)))
    return write(report(folder))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some tasks of every kind."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "rows.jsonl").write_text("".join(row.to_line() + "\n" for row in many_rows(40)))
    return write(report(folder))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two benches of the same tasks."""
    folder = tmp_path_factory.mktemp("compared")
    for seed, name in ((1, "a.jsonl"), (2, "b.jsonl")):
        (folder / name).write_text("".join(row.to_line() + "\n" for row in two_sided(seed)))
    page = folder / "compare.html"
    page.write_text(compare_html(read_comparison(folder / "a.jsonl", folder / "b.jsonl")))
    return page


def test_a_bench_of_250_tasks_opens_within_two_seconds_and_is_below_5_mb(chromium: Any, bench: Path) -> None:
    assert bench.stat().st_size < 5_000_000
    with opened(chromium, bench) as seen:
        timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
        assert 0 < seen.page.evaluate(timing) < 2000
        assert seen.page.locator("#tasks-table tbody tr").count() == 250


@pytest.mark.parametrize("name", ["run", "small", "compared"])
def test_nothing_is_asked_of_anybody_and_nothing_is_complained_of(
    chromium: Any, name: str, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(name)
    with opened(chromium, file) as seen:
        seen.page.evaluate(PRESS_ALL)
        assert seen.requests == [file.as_uri()]
        assert seen.complaints == []


@pytest.mark.parametrize("name", ["run", "small", "compared"])
def test_both_schemes_have_enough_contrast_and_no_screen_is_too_narrow(
    chromium: Any, name: str, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(name)
    backs = set()
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        with opened(chromium, file, size, scheme) as seen:
            shown = seen.page.locator("svg.chart.wide").first.is_visible()
            assert shown == (size is DESK)
            assert seen.page.locator("svg.chart.narrow").first.is_visible() != shown
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            assert seen.page.evaluate(CONTRASTS) == {}  # unfolds everything, too
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
            backs.add(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backs) == 2


def test_sorting_by_mouse_and_by_keyboard(chromium: Any, bench: Path) -> None:
    with opened(chromium, bench) as seen:
        page = seen.page
        heads = page.locator("#tasks-table thead th")
        names = [text.strip() for text in heads.all_text_contents()]
        column = names.index("over eager")
        before = page.evaluate(COLUMN, 0)
        heads.nth(column).locator("button").click()
        assert heads.nth(column).get_attribute("aria-sort") == "descending"
        values = page.evaluate(COLUMN, column)
        numbers = [float(value) for value in values if value]
        assert numbers == sorted(numbers, reverse=True)
        assert values[len(numbers) :] == [""] * (250 - len(numbers))
        page.keyboard.press("Enter")  # the button has the focus still
        assert heads.nth(column).get_attribute("aria-sort") == "ascending"
        values = page.evaluate(COLUMN, column)
        assert [float(value) for value in values if value] == numbers[::-1]
        assert values[-1] == ""
        heads.nth(0).locator("button").focus()
        page.keyboard.press("Space")
        assert page.evaluate(COLUMN, 0) == before
        assert page.locator("th[aria-sort]").count() == 1


@pytest.mark.parametrize("table", ["#tasks-table", "#by-family table"])
def test_a_phone_shows_a_name_and_a_result_side_by_side(chromium: Any, bench: Path, table: str) -> None:
    """No scrolling: the speedup that the outcome is about is on the screen, and one column names the row."""
    with opened(chromium, bench, PHONE) as seen:
        heads = seen.page.locator(f"{table} thead th")
        names = [text.strip() for text in heads.all_text_contents()]
        assert "name" not in names
        box = heads.nth(names.index("over best")).bounding_box()
        assert box["x"] + box["width"] <= PHONE["width"]


def test_a_phone_keeps_the_name_in_sight_and_gives_it_room_when_it_unfolds(
    chromium: Any, small: Path
) -> None:
    with opened(chromium, small, PHONE) as seen:
        page = seen.page
        page.evaluate("document.querySelector('#tasks .scroll').scrollLeft = 300")
        cell = page.locator("#tasks-table tbody td.name").first
        assert 0 <= cell.bounding_box()["x"] < 30, "the first column stays"
        cell.locator("summary").click()
        box = cell.locator("dl").bounding_box()
        assert box["width"] > 0.7 * PHONE["width"]
        assert 0 <= box["x"] <= PHONE["width"] - box["width"]


def test_a_table_that_goes_on_shows_a_shade_at_its_edge(chromium: Any, small: Path) -> None:
    with opened(chromium, small, PHONE) as seen:
        backs = seen.page.locator("#tasks .scroll").evaluate("e => getComputedStyle(e).backgroundAttachment")
        assert "local" in backs
        assert "scroll" in backs


@pytest.mark.parametrize(("size", "font"), [(DESK, 11), (PHONE, 11)])
@pytest.mark.parametrize("name", ["run", "small", "compared"])
def test_pictures_are_readable_and_their_text_stays_inside(
    chromium: Any, name: str, size: dict[str, int], font: int, request: pytest.FixtureRequest
) -> None:
    with opened(chromium, request.getfixturevalue(name), size) as seen:
        for found in seen.page.evaluate(TEXTS):
            assert found["pixels"] >= font, found
            assert found["inside"], found


def test_every_mark_that_a_caption_names_is_seen(chromium: Any, run: Path, small: Path) -> None:
    for size in (DESK, PHONE):
        with opened(chromium, run, size) as seen:
            page = seen.page
            assert page.evaluate(SHOWN, "#roofline path.unit") >= 1, "a roof"
            assert page.evaluate(SHOWN, "#roofline path.memory") == 1
            assert page.evaluate(SHOWN, "#times path.whisker") > 1
            caption = page.locator("#roofline figcaption").text_content()
            assert page.evaluate(SHOWN, "#roofline path.ideal") == ("diamond" in caption)
        with opened(chromium, small, size) as seen:
            signs = seen.page.evaluate(FILLS, "#scores figcaption .sign")
            dots = seen.page.evaluate(FILLS, "#scores .dot")
            assert len(signs) == len(set(signs)) >= 2
            assert set(signs) == set(dots)


def test_at_a_common_width_no_column_of_the_tasks_is_cut_off(chromium: Any, bench: Path) -> None:
    with opened(chromium, bench, {"width": 1400, "height": 1000}) as seen:
        room = seen.page.locator("#tasks .scroll")
        assert room.evaluate("e => e.scrollWidth <= e.clientWidth")


def test_filtering_by_words_and_choices(chromium: Any, bench: Path) -> None:
    with opened(chromium, bench) as seen:
        page = seen.page
        page.get_by_label("Find").fill("softmax")
        names = page.evaluate(COLUMN, 0)
        assert names
        assert all("Softmax" in name for name in names)
        page.locator("select[name=outcome]").select_option("faster")
        assert set(page.evaluate(COLUMN, 1)) == {"faster"}
        left = len(page.evaluate(COLUMN, 1))
        assert page.locator("form [role=status]").text_content() == f"{left} of 250 shown"
        page.get_by_label("Find").fill("")
        page.locator("select[name=outcome]").select_option("all")
        page.locator("select[name=level]").select_option("2")
        assert all(key.startswith("2/") for key in page.evaluate(COLUMN, 0))
        page.get_by_label("Find").fill("no such words anywhere")
        assert page.evaluate(COLUMN, 0) == []
        page.keyboard.press("Enter")  # a form that is sent would leave the page
        assert page.locator("form [role=status]").text_content() == "0 of 250 shown"


def test_folding_by_mouse_by_keyboard_and_all_at_once(chromium: Any, run: Path) -> None:
    with opened(chromium, run) as seen:
        page = seen.page
        change = page.locator("#step-2 details.change").last
        assert not change.locator("pre").is_visible()
        change.locator("summary").click()
        assert change.locator("pre").is_visible()
        assert "+" in (change.locator(".added").first.text_content() or "")
        change.locator("summary").focus()
        page.keyboard.press("Enter")
        assert not change.locator("pre").is_visible()
        fold = page.locator("button[data-fold]")
        fold.focus()
        page.keyboard.press("Enter")
        assert fold.get_attribute("aria-expanded") == "true"
        assert page.locator("#story details:not([open])").count() == 0
        page.keyboard.press("Enter")
        assert page.locator("#story details[open]").count() == 0


def test_everything_is_reached_by_keyboard_and_seen_when_it_is(chromium: Any, run: Path) -> None:
    with opened(chromium, run) as seen:
        page = seen.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        met = []
        while len(met) < 100:
            page.keyboard.press("Tab")
            name, outline = page.evaluate(
                "[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]"
            )
            if name == "BODY":  # once around
                break
            met.append(name)
            assert outline != "none", page.evaluate("document.activeElement.outerHTML.slice(0, 300)")
        assert len(met) > 30
        assert {"A", "SUMMARY", "BUTTON", "PRE", "DIV"} <= set(met)


@pytest.mark.parametrize("name", ["run", "small", "compared"])
def test_a_reader_who_does_not_see_is_told(chromium: Any, name: str, request: pytest.FixtureRequest) -> None:
    with opened(chromium, request.getfixturevalue(name)) as seen:
        page = seen.page
        unnamed = """() => [...document.querySelectorAll("svg[role=img]")].filter((svg) =>
          svg.getAttribute("aria-labelledby").split(" ")
             .some((id) => !document.getElementById(id)?.textContent.trim())).length"""
        assert page.evaluate(unnamed) == 0
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
        assert levels[0] == 1
        assert all(b - a <= 1 for a, b in pairwise(levels))
        scrolled = "[...document.querySelectorAll('.scroll')].every(s => s.tabIndex === 0 && s.ariaLabel)"
        assert page.evaluate(scrolled)
        assert page.evaluate("document.documentElement.lang") == "en"


def test_without_scripts_everything_is_there(chromium: Any, run: Path, bench: Path) -> None:
    with opened(chromium, bench, java_script_enabled=False) as seen:
        assert seen.page.locator("#tasks-table tbody tr").count() == 250
        assert not seen.page.locator("form.filters").is_visible()
        assert seen.page.locator("#tasks-table th button").first.is_disabled()
        details = seen.page.locator("#tasks-table details").first
        details.locator("summary").click()
        assert details.locator("dl").is_visible()
    with opened(chromium, run, java_script_enabled=False) as seen:
        assert not seen.page.locator("button[data-fold]").is_visible()
        seen.page.locator("#step-2 summary").first.click()
        assert seen.page.locator("#step-2 ol").is_visible()


def test_hostile_words_do_nothing(chromium: Any, tmp_path: Path) -> None:
    run = write(report(hostile_run(tmp_path / "run")))
    bench = tmp_path / "bench.html"
    bench.write_text(bench_html(bench_report("<b>x</b>", hostile())))
    for file in (run, bench):
        with opened(chromium, file) as seen:
            seen.page.evaluate(PRESS_ALL)
            assert seen.page.evaluate("window.pwned") is None
            assert seen.page.locator("img").count() == 0
            assert seen.requests == [file.as_uri()]
            assert seen.complaints == []


def test_the_policy_stops_what_slipped_through(chromium: Any, run: Path, tmp_path: Path) -> None:
    """Were a script to get into the page, it would not run, nor would anything be fetched."""
    attack = "<script>window.pwned=1</script><img src='https://example.org/x.png' onerror='window.pwned=1'>"
    attacked = tmp_path / "attacked.html"
    attacked.write_text(run.read_text().replace("<main ", f"{attack}<main ", 1))
    with opened(chromium, attacked) as seen:
        assert seen.page.evaluate("window.pwned") is None
        assert set(seen.answers) <= {attacked.as_uri()}
        assert len(seen.complaints) >= 2
