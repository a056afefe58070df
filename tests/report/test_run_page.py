"""The report on a run: what the log says is on the page, and nothing that anybody wrote acts there."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from egg.core.errors import UsageError
from egg.core.evaluation import Accepted, Interval, Measured
from egg.report.canvas import CHARACTER
from egg.report.reports import Form, Written, report, write
from egg.report.run_charts import Fate, Mark, steps_chart
from egg.report.run_page import run_html
from egg.report.run_report import RunReport, read_run
from tests.bench.made import passed, task
from tests.report.made import HOSTILE, LINEAR, SOFTMAX, edited, first, hostile_run
from tests.report.markup import parsed

FATES = ("kept", "tried", "predicted", "failed", "untried")


@pytest.fixture(scope="module")
def softmax() -> str:
    return report(SOFTMAX).text


def test_the_page_begins_with_what_came_of_the_run(softmax: str) -> None:
    text = parsed(softmax).text
    head = text[: text.index("How fast")]
    for words in (
        "wide_softmax faster",
        "1.97× over eager PyTorch 1.973–1.975",
        "1.46× over torch.compile",
        "NVIDIA H200",
        "precision match",
        "library calls allow",
        "team step",
    ):
        assert words in head


def test_the_story_has_every_stage_and_step_with_prediction_beside_measurement(softmax: str) -> None:
    text = parsed(softmax).text
    for stage in ("Seed", "Structure 1.33×", "Mapping 1.00×", "Tiling 1.43×", "Memory", "Regrade"):
        assert stage in text
    assert [f"Step {n}" in text for n in range(1, 12)] == [True] * 11
    assert "Predicted 1.30×, measured 1.29×: as predicted." in text
    assert "Predicted 1.35×, measured 1.03×: missed, it fell short." in text
    assert "One kernel, one launch, each element read once" in text
    assert "The kernel of step 10 was judged again at level full: 1.97×" in text


def test_repairs_sweeps_differences_prompts_and_skills_are_folded_in(softmax: str) -> None:
    text = parsed(softmax).text
    assert "2 files written, 1 refused on the way" in text
    assert "correctness: correctness.error" in text
    assert "It followed the diagnosis: Padding lanes of the last block load 0.0" in text
    assert "Difference from its base, step 1 (7 added, 9 removed)" in text
    assert "Swept 3 of 3 points" in text
    assert "NUM_WARPS = 32" in text
    assert "4 prompts with their replies" in text
    assert "system: the same as in call 1" in text
    assert '"worth_optimizing": true' in text
    opened = re.findall(r"<details[^>]*\bopen\b", softmax)
    assert len(opened) == 1  # the kernel, which is short


def test_evidence_and_the_way_to_repeat_it_are_there(softmax: str) -> None:
    text = parsed(softmax).text
    for words in (
        "75 checks against an fp64 run",
        "noise floor 0.13%",
        "PyTorch 2.11.0+cu130",
        "Triton 3.6.0",
        "kernel b75d9de417ba58bf",
        "105 events, SHA-256",
        "egg replay wide_softmax",
        "egg eval task.py kernel.py --level full --precision match --library-calls allow",
        "--budget standard",
    ):
        assert words in text
    for gate in ("static", "build", "provenance", "correctness", "state", "timing", "clock", "plausibility"):
        assert f"{gate} passed" in text


def test_pictures_are_drawn_twice_and_told_in_words(softmax: str) -> None:
    page = parsed(softmax)
    assert softmax.count('class="chart wide"') == softmax.count('class="chart narrow"') == 2
    assert page.tags["title"] > 40
    assert softmax.count('class="roofline wide"') == softmax.count('class="roofline narrow"') == 1
    assert page.tags["desc"] == 6
    assert "this kernel 0.414 ms (0.4137–0.4143 ms). eager PyTorch 0.817 ms" in page.text
    assert "7, tiling: kept 1.95×, predicted 1.51×." in page.text


def test_the_page_is_the_same_every_time() -> None:
    assert report(LINEAR).text == report(LINEAR).text


def test_a_run_is_told_wherever_it_stands(tmp_path: Path) -> None:
    """Every prefix of a log is a run: each has its page."""
    total = len((SOFTMAX / "events.jsonl").read_text().splitlines())
    seen = []
    for events in (1, 3, 5, 6, 12, 16, 20, 33, 46, 90, total - 1):
        made = read_run(first(SOFTMAX, tmp_path / str(events), events))
        text = parsed(run_html(made)).text
        assert "The run has not ended" in text
        assert made.verdict == "open"
        seen.append("No kernel has been accepted" in text)
    assert seen == [True] * 3 + [False] * 8
    refused = parsed(run_html(read_run(tmp_path / "16"))).text
    assert "Step 2: algorithm replacement open" in refused
    assert "refused correctness: correctness.error" in refused


def test_a_run_that_its_bench_judged_has_ended_though_its_log_is_open(tmp_path: Path) -> None:
    total = len((SOFTMAX / "events.jsonl").read_text().splitlines())
    folder = first(SOFTMAX, tmp_path / "runs" / "softmax", total - 2)
    row = replace(passed(task(1), {"eager": 2.0}), run="runs/softmax")
    (tmp_path / "rows.jsonl").write_text(row.to_line() + "\n")
    made = read_run(folder)
    assert made.verdict == "accepted"
    text = parsed(run_html(made)).text
    assert f"judged its kernel at level {row.policy.level.value}" in text
    assert "has not ended" not in text
    assert "The best kernel is judged again" not in text
    (tmp_path / "rows.jsonl").write_text("no row\n")
    assert read_run(folder).verdict == "open"


def test_nothing_accepted_shows_the_last_file_and_its_refusal(tmp_path: Path) -> None:
    text = parsed(run_html(read_run(first(SOFTMAX, tmp_path, 5)))).text
    assert "None was accepted." in text
    assert "The last file that was written" in text
    assert "Save the task above as task.py" in text


def test_a_run_without_a_gpu_says_predicted_and_never_measured(tmp_path: Path) -> None:
    def unmeasured(event: dict) -> dict:
        if event["kind"] == "kernel.evaluated" and event["evaluation"]["verdict"]["kind"] == "accepted":
            event["evaluation"]["machine"] |= {"device": "cpu", "gpu": ""}
            event["evaluation"]["verdict"]["performance"] = {
                "kind": "compiled",
                "target": "H200",
                "kernels": [],
                "predicted_floor_milliseconds": 0.34,
                "shapes": "rows 4096 -> 64",
            }
        if event["kind"] == "stage.closed":
            score = event["handoff"]["best_score"]
            score |= {"measured": False, "speedup": None, "faster": None}
        if event["kind"] == "run.closed":
            event["verdict"] = "unmeasured"
        return event

    text = parsed(run_html(read_run(edited(SOFTMAX, tmp_path, unmeasured)))).text
    assert "wide_softmax unmeasured" in text
    assert "predicted for H200; no GPU measured it" in text
    assert "H200 (not measured)" in text
    assert "Predicted, relative to the first kernel" in text
    assert "rows 4096 -> 64" in text
    assert "over torch.compile" not in text


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run")
    made = report(folder).text
    page = parsed(made)  # refuses elements, attributes and links that are not ours
    assert page.text.count("<script>window.pwned=1</script>") > 50
    assert "{{ 7*7 }}" in page.text
    assert not {"img", "textarea"} & set(page.tags)
    for bad in ("\x00", "\x1b", "\u202e", "\ud800"):
        assert bad not in made
    made.encode("utf-8")
    for form in (Form.MARKDOWN, Form.CSV):
        report(folder, form).data.decode("utf-8")


def test_hostile_words_break_no_table_of_markdown_and_no_row_of_csv(tmp_path: Path) -> None:
    folder = hostile_run(tmp_path / "run")
    lines = report(folder, Form.MARKDOWN).text.splitlines()
    steps = [line for line in lines if re.match(r"\| \d+ \|", line)]
    assert len(steps) == 11
    assert all(len(re.findall(r"(?<!\\)\|", line)) == 8 for line in steps)
    rows = list(csv.reader(io.StringIO(report(folder, Form.CSV).text, newline="")))
    assert len(rows) == 12
    assert {len(row) for row in rows} == {18}


def test_the_table_of_steps_has_the_figures_in_full() -> None:
    rows = list(csv.DictReader(io.StringIO(report(SOFTMAX, Form.CSV).text, newline="")))
    assert [row["step"] for row in rows] == [str(n) for n in range(1, 12)]
    second = rows[1]
    assert (second["stage"], second["category"]) == ("structure", "algorithm_replacement")
    assert float(second["predicted"]) == pytest.approx(1.3)
    assert float(second["gain"]) == pytest.approx(1.29, abs=0.01)
    assert (second["files"], second["refused"], second["gain_measured"]) == ("2", "1", "true")
    assert float(rows[9]["speedup_low"]) <= float(rows[9]["speedup_over_eager"])


def test_markdown_tells_the_same_story() -> None:
    text = report(SOFTMAX, Form.MARKDOWN).text
    assert text.startswith("# wide\\_softmax: faster\n")
    assert "- **1.97×** eager PyTorch (1.973–1.975, 95% interval; 0.414 ms against 0.817 ms)" in text
    assert "```python\n" in text
    assert "| static | passed |" in text
    assert "\n\n\n\n" not in text


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    written = Written("run", Form.CSV, "x", "a\r\nb\r\n", tmp_path / "report.csv")
    assert write(written).read_bytes() == b"a\r\nb\r\n"
    assert write(written, tmp_path / "other").read_bytes() == b"a\r\nb\r\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "report.csv"]
    with pytest.raises(Exception, match="cannot write") as failure:
        write(written, tmp_path / "no" / "such" / "file")
    assert "--out" in getattr(failure.value, "hint", "")


def test_a_report_needs_neither_pytorch_nor_a_model() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'triton', 'openai', 'anthropic')));"
        "from pathlib import Path; from egg.report.reports import report;"
        f"print(len(report(Path({str(SOFTMAX)!r})).text))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100_000


@pytest.mark.parametrize("made", ["missing", "empty folder", "damaged log"])
def test_what_is_no_run_is_refused_with_a_hint(made: str, tmp_path: Path) -> None:
    if made == "missing":
        tmp_path = tmp_path / "nothing"
    if made == "damaged log":
        (tmp_path / "events.jsonl").write_text("{}\n{}\n")
    with pytest.raises(UsageError) as failure:
        report(tmp_path)
    assert failure.value.hint


def test_hostile_holds_what_it_should() -> None:
    assert all(bad in HOSTILE for bad in ("<script>", "\x00", "\u202e", "\ud800", "{{", "|", "```", "\n="))


def test_a_caption_explains_the_signs_that_are_drawn_and_no_other(softmax: str) -> None:
    drawn = {sign: f'class="{kind}"' in softmax for sign, kind in zip("●○◇×–", FATES, strict=True)}
    explained = {sign: f">{sign}</b>" in softmax for sign in drawn}
    assert explained == drawn
    assert set(drawn.values()) == {True, False}, (
        "one of them is missing in this run, or the test shows nothing"
    )


def test_the_roofline_agrees_with_the_floor_also_in_logs_that_count_products_alone() -> None:
    made = read_run(LINEAR)
    assert not made.state.started.facts.program.flops_by_family, "an older log, or the test shows nothing"
    (point,) = made.roofline.points
    assert made.evaluation is not None
    assert isinstance(made.evaluation.verdict, Accepted)
    performance = made.evaluation.verdict.performance
    assert isinstance(performance, Measured)
    floor = performance.floor_milliseconds / performance.milliseconds.median
    assert point.of_roof == pytest.approx(floor, rel=0.01)


@pytest.mark.parametrize("steps", [3, 14, 40])
def test_names_of_steps_do_not_touch_each_other(steps: int) -> None:
    marks = [Mark(str(n + 1), "tiling", Fate.KEPT, Interval(2.0, 1.9, 2.1)) for n in range(steps)]
    text = str(steps_chart([*marks, Mark("end", "tiling", Fate.KEPT, Interval(2.0, 1.9, 2.1))], [], "speed"))
    for picture in text.split("</svg>")[:-1]:
        found = re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>(\d+|end)</text>', picture)
        places = [(float(x), len(name) * CHARACTER / 2 + 2) for x, _, name in found]
        assert found[-1][2] == "end"
        assert all(b - a >= one + other for (a, one), (b, other) in pairwise(places))


@pytest.mark.parametrize("ideal", [True, False])
def test_the_roofline_s_caption_names_the_diamond_where_there_is_one(
    ideal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = read_run(LINEAR)
    chart = made.roofline
    assert chart is not None
    placed = replace(chart, ideal=40.0, ideal_rate=1e13) if ideal else replace(chart, ideal=None)
    monkeypatch.setattr(RunReport, "roofline", placed)
    text = run_html(read_run(LINEAR))
    assert ("task, everything fused" in text) is ideal
    assert ("diamond" in text) is ideal
    assert (text.count('class="ideal"') == 2) is ideal, "at both widths"
