"""Kernels of runs judged elsewhere: their jobs are carried away, and results come back."""

from __future__ import annotations

import json
from dataclasses import replace

from egg.core.errors import MachineError
from egg.engine.lock import run_lock
from egg.evaluator.judge.pool import Answer, Job, read_jobs
from tests.engine.scripts import kernel
from tests.test_cli_runs import STEP, Run, begun, egg, facts, fenced, judged, task

__all__ = ["begun", "facts", "task"]


def test_results_for_another_kernel_are_refused(begun):
    begun.reply(fenced(kernel("2.0 ms")))

    def swapped(job: Job) -> Answer:
        evaluation = judged(job).evaluation
        assert evaluation is not None
        return Answer(job.id, replace(evaluation, candidate_hash="0" * 16))

    before = (begun.folder / "events.jsonl").read_bytes()
    result = begun.judge(swapped)
    assert result.exit_code == 2
    assert "is for another kernel" in result.stdout
    assert (begun.folder / "events.jsonl").read_bytes() == before
    assert begun.judge().exit_code == 0


def test_failed_strange_and_known_results_are_told(begun):
    begun.reply(fenced(kernel("2.0 ms")))
    result = begun.judge(lambda job: Answer(job.id, error=MachineError("the GPU fell\x1b[31m off")))
    assert result.exit_code == 0
    assert "no verdict: the GPU fell" in result.stdout
    assert "\x1b" not in result.stdout
    assert "waits for 1 evaluation" in result.stdout
    assert begun.judge().exit_code == 0
    line = json.loads(begun.results.read_text())
    begun.results.write_text("".join(f"{json.dumps(row)}\n" for row in (line, {**line, "job": "else/1"})))
    printed = json.loads(egg("results", begun.folder, begun.results, "--json").stdout)
    assert (printed["taken"], printed["known"], printed["strange"]) == (0, 1, 1)
    assert "1 known already, 1 for nothing" in egg("results", begun.folder, begun.results).stdout
    begun.results.write_text('{"job": "a", "evaluation": {}}\n')
    assert egg("results", begun.folder, begun.results).exit_code == 2


def test_a_last_line_is_read_without_its_newline_and_passed_over_when_torn(begun):
    begun.reply(fenced(kernel("2.0 ms")))
    begun.judge(lambda job: Answer(job.id, error=MachineError("the GPU fell off")))
    failed = begun.results.read_text().rstrip("\n")
    begun.results.write_text(failed)
    assert "no verdict: the GPU fell off" in egg("results", begun.folder, begun.results).stdout
    begun.results.write_text(failed[:-1])
    torn = egg("results", begun.folder, begun.results)
    assert (torn.exit_code, "no verdict" in torn.stdout) == (0, False)
    begun.judge()
    verdict = begun.results.read_text().rstrip("\n")
    begun.results.write_text(f"{verdict}\n{failed}")
    printed = json.loads(egg("results", begun.folder, begun.results, "--json").stdout)
    assert (printed["known"], printed["without_verdict"]) == (1, {}), "a job with a verdict has not failed"


def test_many_runs_travel_together_and_one_that_cannot_go_on_stops_no_other(task, tmp_path):
    runs = [Run(tmp_path / "many" / name) for name in "abc"]
    for run, says in zip(runs, ("2.0 ms", "0.5 ms", None), strict=True):
        egg("optimize", task, *STEP, "--out", run.folder)
        if says:
            run.reply(fenced(kernel(says)))
    folders = [run.folder for run in runs]
    printed = json.loads(egg("pending", *folders, folders[0], "--out", runs[0].jobs, "--json").stdout)
    assert (printed["jobs"], [row["jobs"] for row in printed["runs"]]) == (2, [1, 1, 0])
    listed = json.loads(egg("runs", tmp_path / "many", "--json").stdout)["runs"]
    assert [row["waiting"] for row in listed] == ["evaluations", "evaluations", "reply"]
    with run_lock(folders[0]):
        lines = [judged(job).to_line() for job in read_jobs(runs[0].jobs)]
        runs[0].results.write_text("".join(f"{line}\n" for line in lines))
        result = egg("results", *folders, tmp_path / "absent", runs[0].results)
    assert result.exit_code == 2
    assert "a: error: run a is being written by process" in result.stdout
    assert "absent: error: no run in" in result.stdout
    assert f"{folders[1]}: 1 result taken" in result.stdout
    assert egg("results", *folders, runs[0].results).exit_code == 0
    assert [run.next()["purpose"] for run in runs] == ["designer", "designer", "coder.seed"]


def test_results_need_a_run_and_a_file(begun):
    assert "is missing" in egg("results", begun.folder).stderr
    assert egg("results", begun.folder, begun.folder.parent / "absent.jsonl").exit_code == 2
