"""What a terminal says of a bench and of two: made rows in, the words and figures out."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from egg.bench.rows import NoKernel, Passed, Row, Spent, Unable
from egg.cli.bench_view import FAILURES_SHOWN, LOSSES_SHOWN, bench_view
from egg.cli.compare_view import compare_view
from egg.core.facts import Family
from egg.report.bench_report import bench_report
from egg.report.compare_report import read_comparison
from tests.bench.made import TF32, failed, passed, refused, task
from tests.report.made import HOSTILE, many_rows


def shown(view: RenderableType, width: int = 120) -> str:
    screen = Console(
        file=io.StringIO(), width=width, highlight=False, markup=False, emoji=False, no_color=True
    )
    screen.print(view)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def scores(rows: Sequence[Row], *, whole: bool = False) -> str:
    return shown(bench_view(bench_report("tried", rows), whole=whole))


def cells(text: str, first: str) -> list[str]:
    """The cells of the one line that begins with ``first``, behind it."""
    (line,) = [line for line in text.splitlines() if re.match(rf"{re.escape(first)}\s\s", line)]
    return re.split(r"\s{2,}", line.removeprefix(first).strip())


def four() -> list[Row]:
    """Two correct, at 2 and 8 times eager, one refused, one missing: by hand, everything below is known."""
    spent = Spent(input_tokens=900, output_tokens=100, money=0.5, gpu_seconds=30.0, wall_seconds=60.0)
    return [
        passed(task(1), {"eager": 2.0, "compile": 1.0}, spent=spent),
        passed(task(2), {"eager": 8.0, "compile": 0.5}, spent=spent, family=Family.PRODUCT),
        failed(task(3, 2), refused(task(3)), spent=spent),
        failed(task(4, 2), NoKernel("no row: the bench did not come to it")),
    ]


def test_the_scores_are_those_that_one_reckons_by_hand():
    text = scores(four())
    assert "50% CORRECT" in text
    assert "2 of 4 tasks" in text
    counts = [line.split() for line in text.splitlines() if line.startswith("eager")]
    assert counts[0][1:8] == ["2", "50%", "50%", "50%", "50%", "50%", "25%"]  # exactly 2 is not above 2
    speeds = " ".join(counts[1])
    assert "4.00×" in speeds  # the geometric mean of 2 and 8
    assert "5.00×" in speeds  # their mean, and their median
    assert speeds.split()[-2] == "2.00×"  # with the two failed ones as 1
    assert next(line for line in text.splitlines() if line.startswith("compile")).split()[1] == "2"


def test_cost_is_told_per_correct_kernel_and_failed_tasks_have_their_share_in_it():
    text = scores(four())
    assert "GPU time 1 min 30 s (45 s per correct kernel)" in text
    assert "tokens 3,000 (1,500 per correct kernel)" in " ".join(text.split())
    assert "money $1.50 ($0.75 per correct kernel)" in " ".join(text.split())


def test_a_bench_that_asked_no_model_does_not_speak_of_money():
    text = scores([passed(task(1), {"eager": 2.0}, spent=Spent(gpu_seconds=3.0, wall_seconds=4.0))])
    assert "money" not in text
    assert "tokens" not in text


def test_levels_families_and_degenerate_tasks_stand_apart():
    rows = [*four(), passed(task(5, 2), {"eager": 100.0}, degenerate=True)]
    text = scores(rows)
    assert cells(text, "1")[:2] == ["2", "100% 34–100%"]
    assert cells(text, "2")[:2] == ["3", "33% 6–79%"]
    assert cells(text, "product")[0] == "1"
    assert cells(text, "degenerate")[0] == "1"
    assert "1 task that trivial answers pass is in the totals, and apart by audit" in text
    assert cells(text, "sound")[2].startswith("4.00×"), "the degenerate task's 100x must not be in it"


def test_whole_scores_have_every_table_for_every_group():
    brief, whole = scores(four()), scores(four(), whole=True)
    assert brief.count("faster than p times") == 1
    assert whole.count("faster than p times") == 1 + 1 + 2  # level 1 and both families have times
    assert whole.count("no correct kernel") == 1  # level 2


def test_a_small_bench_is_told_task_by_task_and_a_large_one_on_demand():
    text = scores(four())
    text = text[text.index("outcome") : text.index("slower than")]
    assert cells(text, "1/2 2_op") == ["slower", "8.00×", "0.50×", "1 ms", "passes", "–", "product"]
    assert cells(text, "2/3 3_op")[:2] == ["refused", "–"]
    many = many_rows(40)
    assert "outcome" not in scores(many)
    assert "outcome" in scores(many, whole=True)


def test_default_precision_is_a_row_of_its_own_where_it_differs():
    rows = [passed(task(1), {"eager": 2.0}, default={"eager": 1.5}, policy=TF32)]
    text = scores(rows)
    assert len(re.findall(r"^eager, default precision", text, re.MULTILINE)) == 2
    assert "1.50×" in text


def test_without_a_gpu_there_are_no_speeds_and_the_view_says_why():
    text = scores([passed(task(1), None), passed(task(2, 2), None)])
    assert "100% CORRECT" in text
    assert "no GPU timed these kernels" in text
    assert "×" not in text
    assert "GPU time none" in text


def test_losses_come_with_what_holds_them_back_and_are_cut_where_there_are_many():
    rows = [passed(task(n), {"eager": 2.0, "compile": 1 / (n + 1)}) for n in range(1, 15)]
    assert isinstance(rows[13].verdict, Passed)
    rows[13] = replace(rows[13], verdict=replace(rows[13].verdict, limiter="launch"))
    text = scores(rows)
    losses = text[text.index("slower than the best baseline: 14") :]
    assert losses.index("1/14 14_op") < losses.index("1/13 13_op"), "the worst first"
    assert f"and {14 - LOSSES_SHOWN} more" in losses
    assert "launches" in losses


def test_failures_are_told_by_why_with_their_evidence():
    rows = [failed(task(n), refused(task(n))) for n in range(1, 9)]
    rows += [failed(task(20), Unable("the GPU fell off the bus")), failed(task(21), NoKernel("it gave up"))]
    text = scores(rows)
    assert "refused at correctness: 8" in text
    assert "correctness.error: it was seen" in text
    assert f"and {8 - FAILURES_SHOWN} more" in text
    assert "the GPU fell off the bus" in text
    assert "0% CORRECT" in text


def test_hostile_words_cannot_drive_the_terminal():
    row = failed(task(1), NoKernel(HOSTILE))
    text = scores([replace(row, name=HOSTILE), passed(task(2), {"eager": 2.0})])
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width):
    view = bench_view(bench_report("many", many_rows(60)))
    assert max(map(len, shown(view, width).splitlines())) <= width


# -- two benches -------------------------------------------------------------------------------------


def kept(folder: Path, rows: Sequence[Row]) -> Path:
    folder.mkdir()
    (folder / "rows.jsonl").write_text("".join(row.to_line() + "\n" for row in rows))
    return folder


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    a = [passed(task(n), {"eager": 2.0}, spread=0.001) for n in range(1, 8)]
    b = [passed(task(n), {"eager": 3.0}, spread=0.001) for n in range(1, 6)]
    b += [passed(task(6), {"eager": 1.0}, spread=0.001), failed(task(7))]
    a.append(failed(task(8)))
    b.append(passed(task(8), {"eager": 1.0}))
    a.append(passed(task(9), {"eager": 1.0}))
    b.append(passed(task(9), {"eager": 1.0}))
    a.append(passed(task(10), {"eager": 1.0}))
    return kept(tmp_path / "a", a), kept(tmp_path / "b", b)


def test_what_became_worse_comes_first_and_ties_are_left_out(pair):
    text = shown(compare_view(read_comparison(*pair)))
    tasks = text[text.index("A over eager") :]
    order = ["1/7 7_op", "1/6 6_op", "1/8 8_op", "1/1 1_op"]
    places = [tasks.index(name) for name in order]
    assert places == sorted(places), "lost, slower, gained, faster"
    assert "1/9 9_op" not in tasks
    assert "1 task without a difference left out" in text
    assert "1/9 9_op" in shown(compare_view(read_comparison(*pair), every=True))


def test_counts_ratios_and_tests_are_told(pair):
    text = shown(compare_view(read_comparison(*pair)))
    assert cells(text, "faster") == ["5", "B's kernel is faster, beyond the noise of both"]
    assert "5 faster, 1 slower: p = 0.22" in text
    assert "1 gained, 1 lost: p = 1" in text
    assert "only in A" in text
    assert "1/10" in text
    assert "1.50×" in text
    assert "0.50×" in text


def test_the_verdict_follows_the_interval(tmp_path):
    def verdict(name: str, a: float, b: float) -> str:
        sides = [
            kept(tmp_path / f"{name}{side}", [passed(task(n), {"eager": v}) for n in range(1, 6)])
            for side, v in (("a", a), ("b", b))
        ]
        return read_comparison(*sides).verdict

    assert verdict("up", 1.0, 2.0) == "B is faster"
    assert verdict("down", 2.0, 1.0) == "A is faster"
    assert verdict("same", 2.0, 2.0) == "no significant difference"
