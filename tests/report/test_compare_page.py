"""Two benches compared, as a page and as Markdown: the figures of the comparison, and nothing that acts."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from egg.bench.compare import Outcome
from egg.bench.rows import Basis, Row
from egg.core.errors import UsageError
from egg.report.compare_page import compare_html, compare_markdown
from egg.report.compare_report import MEANINGS, CompareReport, read_comparison
from tests.bench.made import TF32, failed, passed, task
from tests.report.made import HOSTILE
from tests.report.markup import parsed


def two_sided(seed: int) -> list[Row]:
    """One bench of 24 tasks: with two seeds, every outcome occurs."""
    draw = random.Random(seed)
    rows = [passed(task(n), {"eager": draw.choice((1.0, 1.5, 2.0))}) for n in range(1, 21)]
    rows += [failed(task(21)) if seed == 1 else passed(task(21), {"eager": 2.0})]
    rows += [failed(task(22)) if seed == 2 else passed(task(22), {"eager": 2.0})]
    return [*rows, failed(task(23)), passed(task(24), None)]


def kept(path: Path, rows: Sequence[Row]) -> Path:
    path.write_text("".join(row.to_line() + "\n" for row in rows))
    return path


@pytest.fixture
def both(tmp_path: Path) -> CompareReport:
    sides = [kept(tmp_path / f"{name}.jsonl", two_sided(seed)) for seed, name in ((1, "a"), (2, "b"))]
    return read_comparison(*sides)


def test_the_page_and_the_markdown_tell_every_task_and_every_outcome(both):
    assert {outcome for outcome, _ in both.counts} == set(Outcome)
    for text in (parsed(compare_html(both)).text, compare_markdown(both).replace("\\", "")):
        for outcome, _ in both.counts:
            assert outcome.value in text
            assert MEANINGS[outcome] in text
        assert all(f"{n}_op" in text for n in range(1, 25))
        assert both.summary in text
        assert all(line in text for _, line in both.tests)


def test_the_page_has_a_picture_that_says_what_it_shows(both):
    page = compare_html(both)
    assert page.count('<svg class="chart ') == 2
    assert len(re.findall(r'class="sign (\w+)"', page)) == len(set(re.findall(r'class="dot (\w+)"', page)))
    assert f"B's speed over A's for {len(both.timed)} tasks" in page
    assert len(re.findall(r'class="dot (?:faster|even|slower)"', page)) == 2 * len(both.timed)


def test_benches_without_times_are_compared_by_correctness_alone(tmp_path):
    a = kept(tmp_path / "a", [passed(task(1), None), failed(task(2))])
    b = kept(tmp_path / "b", [passed(task(1), None), passed(task(2), None)])
    both = read_comparison(a, b)
    assert both.verdict == "not comparable in speed"
    assert [share.count for share in both.correct] == [1, 2]
    assert "<svg" not in compare_html(both)
    assert "No task was timed" in compare_markdown(both)


def test_words_of_strangers_stay_words(tmp_path):
    rows = [replace(passed(task(1), {"eager": 2.0}), name=HOSTILE, key=HOSTILE)]
    both = read_comparison(kept(tmp_path / "<b>a", rows), kept(tmp_path / "b|`c`", rows))
    parsed(compare_html(both))
    table = [line for line in compare_markdown(both).splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table[-2:]}) == 1
    assert "\x1b" not in compare_markdown(both)


def test_differences_that_were_waved_through_are_told(tmp_path):
    a = kept(tmp_path / "a", [passed(task(1), {"eager": 2.0})])
    b = kept(tmp_path / "b", [passed(task(1), {"eager": 2.0}, default={"eager": 4.0}, policy=TF32)])
    with pytest.raises(UsageError, match="not alike: precision") as refused:
        read_comparison(a, b)
    assert "--unlike" in refused.value.hint
    both = read_comparison(a, b, unlike=True)
    assert "precision: A match, B tf32" in parsed(compare_html(both)).text
    assert "precision: A match, B tf32" in compare_markdown(both)
    by_default = read_comparison(a, b, basis=Basis.DEFAULT, unlike=True)
    assert "default precision" in by_default.summary
    assert by_default.comparison.geomean is not None
    assert by_default.comparison.geomean.value == pytest.approx(2.0)


def test_what_is_no_bench_is_refused_by_name(tmp_path):
    good, empty = kept(tmp_path / "good", [failed(task(1))]), kept(tmp_path / "empty", [])
    other = kept(tmp_path / "other", [failed(task(2))])
    for a, b, message in (
        (good, tmp_path / "nowhere", "no bench at .*nowhere"),
        (tmp_path, good, "no bench at"),
        (empty, good, "no rows yet"),
        (good, other, "no task in common"),
    ):
        with pytest.raises(UsageError, match=message):
            read_comparison(a, b)
