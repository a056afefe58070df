"""The report on a bench: scores, families, losses and every task, as the rows have them."""

from __future__ import annotations

import csv
import io
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from egg.bench.families import WholeFamily
from egg.bench.rows import NoKernel, Passed, Refused, Row, Unable
from egg.bench.scores import score
from egg.core.errors import UsageError
from egg.core.evaluation import Gate
from egg.core.facts import Family
from egg.report.bench_page import bench_csv, bench_html, bench_markdown
from egg.report.bench_report import Outcome, bench_report, read_bench
from egg.report.reports import report
from tests.bench.made import TF32, failed, passed, refused, task
from tests.report.made import HOSTILE, many_rows
from tests.report.markup import parsed

ENDS = [outcome for outcome in Outcome if outcome is not Outcome.NOT_RUN]
EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"


def few() -> list[Row]:
    """One of every kind: faster, even, slower, untimed, refused, no kernel, unable."""
    rows = [
        passed(task(1), {"eager": 4.0, "compile": 2.0}),
        passed(task(2), {"eager": 1.0, "compile": 1.0}, family=Family.PRODUCT),
        passed(task(3), {"eager": 0.5, "compile": 0.25}, family=Family.PRODUCT),
        passed(task(4), None),
        failed(task(5), refused(task(5), Gate.CORRECTNESS)),
        failed(task(6, 2), NoKernel("the run ended before a kernel was written")),
        failed(task(7, 2), Unable("out of memory")),
    ]
    assert isinstance(rows[2].verdict, Passed)
    slow = replace(rows[2].verdict, limiter="launch", floor_milliseconds=0.25)
    rows[2] = replace(rows[2], verdict=slow, degenerate=True)
    return rows


def page_of(rows: list[Row]) -> str:
    return parsed(bench_html(bench_report("tried", rows))).text


def test_every_kind_of_end_has_its_word() -> None:
    made = bench_report("tried", few())
    assert [line.outcome for line in made.lines] == ENDS
    text = page_of(few())
    assert all(outcome.value in text for outcome in ENDS)
    assert Outcome.NOT_RUN.value not in text


def test_tasks_without_a_family_are_drawn_by_level_and_a_single_level_as_one_row() -> None:
    levels = [passed(task(n, n % 2 + 1), {"eager": 2.0 + n}, family=WholeFamily.UNKNOWN) for n in range(6)]
    for rows, names in ((levels, ("level 1", "level 2")), (levels[::2], ("all",))):
        html = bench_html(bench_report("tried", rows))
        drawn = re.findall(r'<text class="name"[^>]*>([^<]*)</text>', html)
        assert tuple(drawn[: len(names)]) == names
        assert html.count('class="dot ') == 2 * len(rows), "every task at both widths"


def test_the_page_begins_with_the_scores_that_the_scorer_gives() -> None:
    text, scores = page_of(few()), score(few())
    assert "57% correct, 4 of 7" in text
    eager = scores.all.against("eager")
    assert eager is not None
    assert eager.geomean is not None
    assert f"{eager.geomean.value:.2f}× over eager PyTorch" in text
    best = scores.all.against("best")
    assert best is not None
    assert best.geomean is not None
    assert f"57% correct, 4 of 7 25–84% {best.geomean.value:.2f}× over the best baseline" in text
    assert "1 task that trivial answers pass is in these totals" in text
    assert "3 tasks were not audited" in text


def test_levels_families_and_the_audit_have_their_own_scores() -> None:
    text = page_of(few())
    assert text.index("By level") < text.index("By family") < text.index("By audit") < text.index("Losses")
    assert "product 0.50× 0.25–1.00 0.71× 0.50–1.00 0.50× 0.25–1.00 2 100%" in text
    assert "level 2 – – – 2 0%" in text
    alone = page_of(few()[:1])
    assert "By level" not in alone
    assert "By audit" not in alone


def test_losses_come_with_what_holds_them_back_and_failures_with_their_gate() -> None:
    text = page_of(few())
    losses = text[text.index("Losses") :]
    assert "slower than the best baseline: 1" in losses
    assert "launches cost more than the kernels do" in losses
    assert "4.00×" in losses  # of the floor
    assert "Refused at correctness: 1" in losses
    assert "at correctness: correctness.error" in losses
    assert "it was seen" in losses
    assert "out of memory" in losses
    assert "None: every task has a correct kernel" in page_of([few()[0]])


def test_a_bench_that_no_gpu_timed_says_so() -> None:
    text = page_of([few()[3], few()[4]])
    assert "No GPU timed any of these kernels." in text
    assert "correct, not timed" in text
    assert "svg" not in parsed(bench_html(bench_report("tried", [few()[3]]))).tags
    assert "timed in turns" not in text
    assert "timed in turns" in page_of(few())


def test_the_story_of_a_run_is_promised_where_there_was_one() -> None:
    judged, run = few()[:1], [replace(few()[0], run="runs/1_1")]
    assert "keeps the whole story" not in page_of(judged)
    assert "keeps the whole story" in page_of(run)


def test_a_bench_where_nothing_is_correct_has_a_page() -> None:
    text = page_of(few()[4:])
    assert "0% correct, 0 of 3" in text


def test_both_precisions_are_told_apart() -> None:
    row = passed(task(1), {"eager": 3.0}, default={"eager": 2.0}, policy=TF32)
    made = bench_report("tried", [row])
    assert "eager PyTorch, PyTorch's default precision" in page_of([row])
    table = next(iter(csv.DictReader(io.StringIO(bench_csv(made), newline=""))))
    assert (table["eager_matched_speedup"], table["eager_default_speedup"]) == ("3.0", "2.0")
    assert table["precision"] == "tf32"


def test_the_last_row_of_a_task_counts_and_none_is_refused(tmp_path: Path) -> None:
    again = [few()[4], replace(few()[0], key=few()[4].key)]
    assert [line.outcome for line in bench_report("tried", again).lines] == [Outcome.FASTER]
    (tmp_path / "rows.jsonl").write_text("")
    with pytest.raises(UsageError, match="no rows yet"):
        report(tmp_path)


def test_given_the_suite_what_is_missing_is_there_as_wrong() -> None:
    made = bench_report("tried", few()[:1], tasks=[task(1), task(2)])
    assert [line.outcome for line in made.lines] == [Outcome.FASTER, Outcome.NOT_RUN]
    text = parsed(bench_html(made)).text
    assert "tried 1 of 2 run" in text
    assert "50% correct, 1 of 2" in text
    assert "1 task has no row yet and counts as wrong." in text
    assert "None: every task that was run has a correct kernel" in text, "waiting is no failure"
    assert "1 task without a row yet, counted as wrong." in bench_markdown(made)


def test_a_folder_a_file_and_a_file_in_a_folder_are_the_same_bench(tmp_path: Path) -> None:
    folder = tmp_path / "night"
    folder.mkdir()
    text = "".join(row.to_line() + "\n" for row in few())
    (folder / "rows.jsonl").write_text(text)
    (tmp_path / "other.jsonl").write_text(text)
    by_folder, by_file, other = (
        report(path) for path in (folder, folder / "rows.jsonl", tmp_path / "other.jsonl")
    )
    assert by_folder.text == by_file.text  # and the same every time
    assert by_folder.place == by_file.place == folder / "report.html"
    assert (other.name, other.place) == ("other", tmp_path / "other.html")
    assert "SHA-256" in by_folder.text


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "tasks.jsonl"
    wrong.write_text('{"level": 1, "name": "x"}\n')
    with pytest.raises(UsageError, match="is not a row"):
        report(wrong)


def hostile() -> list[Row]:
    rows = [
        replace(
            row,
            key=f"{HOSTILE}{i}",
            name=HOSTILE,
            run=HOSTILE,
            warnings=(HOSTILE,),
            settings={HOSTILE: HOSTILE},
            versions={HOSTILE: HOSTILE},
            notes={HOSTILE: [HOSTILE]},
        )
        for i, row in enumerate(few())
    ]
    assert isinstance(rows[4].verdict, Refused)
    assert isinstance(rows[0].verdict, Passed)
    rows[4] = replace(rows[4], verdict=replace(rows[4].verdict, reason=HOSTILE, evidence=HOSTILE))
    rows[5] = replace(rows[5], verdict=NoKernel(HOSTILE))
    operations = {HOSTILE: 2}
    rows[0] = replace(rows[0], verdict=replace(rows[0].verdict, limiter=HOSTILE, library_ops=operations))
    return rows


def test_hostile_words_stay_words_in_every_form() -> None:
    made = bench_report(HOSTILE, hostile())
    html = bench_html(made)
    page = parsed(html)
    assert page.text.count("<script>window.pwned=1</script>") > 30
    for bad in ("\x00", "\x1b", "\u202e", "\ud800"):
        assert bad not in html
    lines = bench_markdown(made).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| task | name"))
    table = lines[start : start + 2 + len(few())]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {12}
    rows = list(csv.reader(io.StringIO(bench_csv(made), newline="")))
    assert len(rows) == 1 + len(few())
    assert len({len(row) for row in rows}) == 1


def test_markdown_has_the_same_figures() -> None:
    text = bench_markdown(bench_report("tried", few()))
    assert text.startswith("# tried\n\n7 tasks, 4 correct (57%")
    assert re.search(r"\| eager PyTorch \| 3 \| 57% \|", text)
    assert "| 1/1 | 1\\_op | pointwise | faster | 2.00× | 4.00× | 2.00× |" in text
    assert "\n\n\n\n" not in text
    for i, line in enumerate(text.splitlines()):
        if line.startswith("|---"):
            above, below = text.splitlines()[i - 1], text.splitlines()[i + 1]
            assert above.count("|") == line.count("|") == below.count("|")


def test_kernelbenchs_own_rules_are_columns_of_every_form() -> None:
    rows = [
        replace(passed(task(1), {"eager": 2.0}), kernelbench_flags=()),
        replace(passed(task(2), {"eager": 2.0}, kernelbench=False), kernelbench_flags=("code_bypass",)),
        passed(task(3), {"eager": 2.0}),
    ]
    made = bench_report("bench", rows)
    table = list(csv.DictReader(io.StringIO(bench_csv(made), newline="")))
    assert [row["kernelbench"] for row in table] == ["true", "false", "true"]
    assert [row["kernelbench_static"] for row in table] == ["true", "false", ""]
    sentence = "By KernelBench's own rules, of the correct kernels: comparison 2 of 3, static check 1 of 2."
    assert sentence in bench_markdown(made)
    assert "| passes | fails |" not in bench_markdown(made)
    assert "| fails | fails |" in bench_markdown(made)
    page = parsed(bench_html(made)).text
    assert sentence in page
    assert "flags code_bypass" in page


def test_the_table_of_tasks_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(bench_csv(bench_report("tried", few())), newline="")))
    assert [row["outcome"] for row in rows] == [outcome.value for outcome in ENDS]
    assert float(rows[0]["eager_matched_speedup"]) == 4.0
    assert rows[2]["degenerate"] == "true"
    assert rows[4]["gate"] == "correctness"
    assert rows[6]["why"] == "out of memory"


def test_250_tasks_make_a_small_page_soon(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(row.to_line() + "\n" for row in many_rows(250)))
    started = time.process_time()
    written = report(tmp_path)
    assert time.process_time() - started < 10
    assert len(written.data) < 1_500_000
    assert parsed(written.text).text.count("faster") > 100


def test_a_kernel_below_its_floor_is_marked_and_explained() -> None:
    rows = [passed(task(n), {"eager": 2.0}) for n in (1, 2)]
    assert rows[0].timing is not None
    taken = rows[0].timing.milliseconds.median
    below = replace(rows[0], verdict=replace(rows[0].verdict, floor_milliseconds=2 * taken))
    above = replace(rows[1], verdict=replace(rows[1].verdict, floor_milliseconds=taken / 2))
    text = page_of([below, above])
    assert "0.50× below" in text
    assert "2.00× below" not in text
    assert "1 kernel is below it" in text
    assert "below it" not in page_of([above])


def test_the_rows_that_were_kept_as_evidence_are_a_bench() -> None:
    """The scores are those that the evidence's own page states."""
    made = read_bench(EVIDENCE / "expert_kernelbench.jsonl")
    stated = (EVIDENCE / "expert.md").read_text(encoding="utf-8")
    row = r"^\| all \| (\d+) \| (\d+) \|[^|]*\| ([\d.]+)x \| ([\d.]+)x"
    line = re.findall(row, stated, re.MULTILINE)[0]
    found = [made.overall.against(name) for name in ("eager", "compile")]
    speedups = [f"{speedups.geomean.value:.2f}" for speedups in found if speedups and speedups.geomean]
    assert [str(made.overall.tasks), str(made.overall.correct.count), *speedups] == list(line)
    assert {row.kernelbench for row in made.rows} == {None}, "it was not checked then, so it is not known"
    assert read_bench(EVIDENCE / "llm_ops.jsonl").overall.tasks == 45
