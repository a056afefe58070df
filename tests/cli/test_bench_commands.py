"""``egg bench`` and its verbs from the command line, over made rows: what is printed, written and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from egg.bench.rows import Row, Spent
from egg.cli.app import app
from egg.core.source import Task
from tests.bench.made import failed, kernel, passed, task
from tests.report.markup import parsed


def egg(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *map(str, words)], env={"COLUMNS": "120"})


def kept(folder: Path, rows: Sequence[Row], tasks: int = 0) -> Path:
    """A bench's folder with rows, their kernels, and so many tasks that it was to do."""
    (folder / "kernels").mkdir(parents=True)
    (folder / "rows.jsonl").write_text("".join(row.to_line() + "\n" for row in rows))
    for row in rows:
        (folder / "kernels" / f"{row.problem}.py").write_text(kernel(row.problem or 0).source)
    if tasks:
        lines = [
            {"level": t.level, "problem_id": t.problem_id, "name": t.name, "code": t.source}
            for t in map(task, range(1, tasks + 1))
        ]
        (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return kept(tmp_path / "a", [passed(task(n), {"eager": 2.0, "compile": 1.5}) for n in (1, 2, 3)])


@pytest.fixture
def b(tmp_path: Path) -> Path:
    rows = [passed(task(n), {"eager": 3.0, "compile": 1.5}) for n in (1, 2)]
    return kept(tmp_path / "b", [*rows, failed(task(3))])


# -- a suite or a verb -------------------------------------------------------------------------------


def test_help_is_of_running_a_suite_and_names_the_verbs():
    for words in (["--help"], ["-h"], [], ["llm-ops", "--help"], ["--limit", "3", "-h"]):
        shown = egg(*words).output
        assert "egg bench" in shown or "bench [OPTIONS]" in shown, words
        for word in ("SUITE", "--levels", "--ray", "compare", "export", "judge", "score"):
            assert word in shown, (words, word)
    assert "--unlike" in egg("compare", "--help").output


@pytest.mark.parametrize("words", [("nowhere",), ("--limit", "3", "nowhere"), ("run", "compare")])
def test_what_is_no_verb_is_a_suite(words):
    done = egg(*words)
    assert done.exit_code == 2
    assert f"no such suite: {words[-1]}" in done.stderr
    assert "llm-ops" in done.stderr


def test_a_suite_called_like_a_verb_is_a_path(tmp_path):
    (tmp_path / "compare").mkdir()
    assert "compare holds no tasks" in egg("./compare").stderr
    assert "Missing argument" in egg("compare").stderr


def test_a_misspelt_verb_is_not_taken_for_a_suite(tmp_path):
    done = egg("comapre", "a", "b")
    assert done.exit_code == 2
    assert "did you mean egg bench compare?" in done.stderr
    (tmp_path / "scores").mkdir()
    assert "scores holds no tasks" in egg("scores").stderr, "a folder of that name is meant"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("llm-ops", "--ids", "softmax_of_everything"), "has no task"),
        (("llm-ops", "--levels", "1"), "has no levels"),
        (("llm-ops", "--limit", "0"), "0 tasks are no bench"),
        (("llm-ops", "--team", "step"), "step"),
        (("llm-ops", "--device", "tpu"), "unknown device"),
        (("llm-ops", "--device", "offline"), "unknown device"),
        (("llm-ops", "--budget", "endless"), "unknown budget"),
        (("llm-ops", "--max-cost", "-1"), "--max-cost is -1"),
        (("llm-ops", "--max-total-cost", "nan"), "--max-total-cost is nan"),
        (("llm-ops", "--task-minutes", "0"), "--task-minutes is 0"),
        (("llm-ops", "--team", "llm"), "needs a model"),
        (("llm-ops", "--ray", "not an address"), "Ray"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(tmp_path, words, message):
    done = egg(*words, "--out", "bench")
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert "hint:" in done.stderr
    assert not (tmp_path / "bench" / "bench.json").exists()


def test_mistakes_are_told_to_programs_too():
    printed = json.loads(egg("nowhere", "--json").stdout)
    assert (printed["schema"], printed["error"]) == ("egg.error/1", "usage")


def test_a_limit_on_the_whole_cost_leaves_tasks_out_and_says_so(tmp_path, monkeypatch):
    def paid(tasks: Sequence[Task], *_: object, may_begin: Callable[[], bool], **__: object) -> Iterator[Row]:
        for found in tasks:
            if may_begin():
                yield failed(found, spent=Spent(money=2.0))

    monkeypatch.setattr("egg.api.benching.bench.rows_of", paid)
    suite = kept(tmp_path / "suite", [], tasks=3) / "tasks.jsonl"
    words = (suite, "--device", "cpu", "--out", "bench", "--max-total-cost")
    done = egg(*words, "3")
    assert done.exit_code == 1, done.output
    assert "not every task was begun: $4.0000 of $3 are spent" in done.stdout
    assert json.loads(egg(*words, "3", "--json").stdout)["over_cost"] == "$4.0000 of $3 are spent"
    assert egg(*words, "5").exit_code == 0


# -- score -------------------------------------------------------------------------------------------


def test_scores_of_a_folder_and_of_its_rows_are_the_same(a):
    by_folder, by_file = (json.loads(egg("score", at, "--json").stdout) for at in (a, a / "rows.jsonl"))
    assert by_folder["schema"] == "egg.bench-scores/1"
    assert by_folder["scores"] == by_file["scores"]
    assert by_folder["scores"]["all"]["correct"]["value"] == 1.0


def test_tasks_without_a_row_count_as_wrong(tmp_path):
    bench = kept(tmp_path / "begun", [passed(task(1), {"eager": 2.0})], tasks=4)
    printed = json.loads(egg("score", bench, "--json").stdout)
    assert printed["tasks"] == 4
    assert printed["scores"]["all"]["correct"]["value"] == 0.25
    assert "25% CORRECT" in egg("score", bench).stdout
    assert "did not come to it" in egg("score", bench).stdout


def test_there_is_nothing_to_score_where_there_is_no_bench(tmp_path):
    (tmp_path / "empty").mkdir()
    for place in ("nowhere", "empty"):
        assert egg("score", place).exit_code == 2


# -- compare -----------------------------------------------------------------------------------------


def test_two_benches_are_compared_as_text_json_markdown_and_page(a, b, tmp_path):
    text = egg("compare", a, b, "--html", tmp_path / "page.html")
    assert text.exit_code == 0, text.output
    assert "1/3 3_op" in text.stdout
    assert "lost" in text.stdout
    assert "page ->" in text.stdout
    assert "1/3" in parsed((tmp_path / "page.html").read_text()).text
    printed = json.loads(egg("compare", a, b, "--json").stdout)
    assert printed["schema"] == "egg.bench-comparison/1"
    assert printed["outcomes"] | {"faster": 2, "lost": 1} == printed["outcomes"]
    assert printed["geomean"]["value"] == pytest.approx(1.5)
    assert [task["outcome"] for task in printed["tasks"]] == ["faster", "faster", "lost"]
    assert egg("compare", a, b, "--md").stdout.startswith("# ")


def test_the_baseline_is_a_choice(a, b):
    printed = json.loads(egg("compare", a, b, "--over", "compile", "--json").stdout)
    assert printed["outcomes"]["tied"] == 2
    assert egg("compare", a, b, "--over", "best").exit_code == 2


def test_unlike_benches_are_compared_on_demand_only(a, tmp_path):
    other = kept(tmp_path / "other", [passed(task(1), {"eager": 2.0}, gpu="NVIDIA L4")])
    refused = egg("compare", a, other)
    assert refused.exit_code == 2
    assert "GPU: A NVIDIA H200, B NVIDIA L4" in refused.stderr
    assert "--unlike" in refused.stderr
    allowed = egg("compare", a, other, "--unlike")
    assert allowed.exit_code == 0
    assert "not alike in GPU" in allowed.stdout


def test_a_page_that_cannot_be_written_is_no_traceback(a, b, tmp_path):
    done = egg("compare", a, b, "--html", tmp_path / "no" / "such" / "page.html")
    assert done.exit_code == 3
    assert "cannot write" in done.stderr


# -- export ------------------------------------------------------------------------------------------


def test_a_bench_is_exported_once_and_nothing_is_written_over(a, tmp_path):
    done = egg("export", a, "--kernelbench", "kb", "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["schema"] == "egg.bench-export/1"
    run = tmp_path / "kb" / "runs" / "a_level1"
    assert printed["runs"] == ["kb/runs/a_level1"]
    assert (run / "level_1_problem_2_sample_0_kernel.py").read_text() == kernel(2).source
    assert set(json.loads((run / "eval_results.json").read_text())) == {"1", "2", "3"}
    assert all((tmp_path / path).is_file() for path in printed["baselines"])
    again = egg("export", a, "--kernelbench", "kb")
    assert again.exit_code == 2
    assert "there already" in again.stderr
    assert egg("export", a, "--kernelbench", "kb", "--name", "x", "--hardware", "other").exit_code == 0


def test_a_bench_whose_name_fits_no_run_is_exported_all_the_same(tmp_path):
    bench = kept(tmp_path / "..my bench, 2nd", [passed(task(1), {"eager": 2.0})])
    done = egg("export", bench, "--kernelbench", "kb")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "kb" / "runs" / "my_bench_2nd_level1").is_dir()


def test_an_accepted_kernel_that_is_gone_is_missed(a):
    (a / "kernels" / "2.py").unlink()
    done = egg("export", a, "--kernelbench", "kb")
    assert done.exit_code == 2
    assert "the kernel of 1/2 is not at hand" in done.stderr


# -- judge -------------------------------------------------------------------------------------------


def test_kernels_are_judged_for_the_tasks_they_were_written_for(tmp_path):
    suite = kept(tmp_path / "suite", [], tasks=2) / "tasks.jsonl"
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    nothing = egg("judge", suite, "--kernels", theirs, "--device", "cpu")
    assert nothing.exit_code == 2
    assert "no kernels in" in nothing.stderr
    (theirs / "level_2_problem_1_sample_0_kernel.py").write_text("class ModelNew: ...\n")
    (theirs / "level_1_problem_1_sample_1_kernel.py").write_text("class ModelNew: ...\n")
    other = egg("judge", suite, "--kernels", theirs, "--device", "cpu")
    assert other.exit_code == 2
    assert "sample 0" in other.stderr
    assert not (tmp_path / "egg-bench").exists()
