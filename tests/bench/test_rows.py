"""Rows: from the judge and from runs, to the disk and back, whatever is cut off in between."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egg.bench import outcomes
from egg.bench.families import WholeFamily
from egg.bench.outcomes import row_of_evaluation, row_of_run
from egg.bench.row_files import RowsFile, read_rows
from egg.bench.rows import (
    BEST,
    Basis,
    NoKernel,
    Opponent,
    Passed,
    Refused,
    Row,
    Spent,
    Timing,
    Unable,
    complete,
    row_of,
)
from egg.core.errors import MachineError, UsageError
from egg.core.evaluation import Accepted, Baseline, Evaluation, Gate, GateRecord, Interval
from egg.core.facts import Family
from egg.core.policy import Level, LibraryCalls, Policy, Precision
from egg.engine.state import fold
from tests import samples
from tests.bench.made import TF32, around, failed, passed, task
from tests.engine.logs import sample_events

TASK = task(1)


def evaluation(base: Evaluation, **changes: object) -> Evaluation:
    return replace(base, task_hash=TASK.hash, **changes)


# -- from the judge ----------------------------------------------------------------------------------


def test_a_measured_kernel_keeps_its_times_and_rounds():
    times = {"A": [1.0, 1.1234567], "A'": [1.0, 1.1], "eager": [2.0, 2.2], "compile": [1.5, 1.6]}
    base = samples.measured(1.8)
    gates = (*base.gates, GateRecord(Gate.TIMING, True, 3.0, {"rounds": 2, "times": times}))
    row = row_of_evaluation(TASK, evaluation(base, gates=gates), family=Family.SOFTMAX)
    assert (row.key, row.name, row.level, row.problem) == ("1/1", "1_op", 1, 1)
    assert row.accepted
    assert row.family is Family.SOFTMAX
    assert isinstance(row.verdict, Passed)
    assert row.verdict.floor_milliseconds == 0.028
    assert row.timing is not None
    assert row.timing.rounds == (1.0, 1.12346)
    eager = row.opponent("eager")
    assert eager is not None
    assert eager.rounds == (2.0, 2.2)
    assert row.speedup("eager") == Interval(1.8, 1.8 * 0.99, 1.8 * 1.01)
    assert row.opponent(BEST) == row.opponent("compile")
    assert row.opponent("reduce-overhead") is None
    assert row.spent == Spent(evaluations=1, gpu_seconds=6.5, wall_seconds=6.5)
    assert row.versions["gpu"] == "NVIDIA H200"


def test_kernelbenchs_static_check_is_a_column_of_every_kernel():
    good = "@triton.jit\ndef k(x):\n    tl.store(x + tl.arange(0, 8), 0)\n\n\nclass ModelNew: ...\n"
    bad = good + 'NOTE = "one pass over the rows"\n'
    for source, flags, passes in ((good, (), True), (bad, ("code_bypass",), False), (None, None, None)):
        for base in (samples.measured(1.8), samples.rejected()):
            row = row_of_evaluation(TASK, evaluation(base), source=source)
            assert (row.kernelbench_flags, row.kernelbench_static) == (flags, passes)
            assert Row.from_json(json.loads(row.to_line())) == row
    assert row_of_evaluation(TASK, evaluation(samples.measured(1.8))).kernelbench is True
    assert row_of_evaluation(TASK, evaluation(samples.rejected())).kernelbench is None


def test_a_row_from_before_the_static_check_still_loads():
    data = json.loads(row_of_evaluation(TASK, evaluation(samples.measured(1.8)), source="x = 1").to_line())
    del data["kernelbench_flags"]
    assert Row.from_json(data).kernelbench_static is None


def test_a_run_has_the_static_check_of_its_kernel():
    row = row_of_run(fold(sample_events()))
    assert row.kernelbench_flags is not None


def test_opponents_at_default_precision_are_told_apart():
    from egg.evaluator.timing.opponents import DEFAULT

    assert outcomes.DEFAULT_PRECISION == DEFAULT
    base = samples.measured(2.0)
    assert isinstance(base.verdict, Accepted)
    performance = base.verdict.performance
    more = Baseline(f"eager {DEFAULT}", around(0.1), around(3.0))
    verdict = replace(
        base.verdict, performance=replace(performance, baselines=(*performance.baselines, more))
    )
    row = row_of_evaluation(TASK, evaluation(base, verdict=verdict, policy=TF32))
    assert row.speedup("eager", Basis.DEFAULT) == around(3.0)
    assert row.speedup("eager", Basis.MATCHED) == around(2.0, 0.01)
    assert row.speedup("compile", Basis.DEFAULT) is None
    matching = row_of_evaluation(TASK, evaluation(base))
    assert matching.speedup("eager", Basis.DEFAULT) == matching.speedup("eager", Basis.MATCHED)


def test_a_refused_and_an_unmeasured_kernel_have_no_times():
    bad = row_of_evaluation(TASK, evaluation(samples.rejected()))
    assert isinstance(bad.verdict, Refused)
    assert bad.timing is None
    assert bad.speedup("eager") is None
    assert not bad.faster_than("eager")
    unmeasured = row_of_evaluation(TASK, evaluation(samples.compiled()))
    assert unmeasured.accepted
    assert unmeasured.timing is None
    assert isinstance(unmeasured.verdict, Passed)
    assert unmeasured.verdict.predicted_milliseconds
    assert unmeasured.verdict.limiter
    assert unmeasured.spent.gpu_seconds == 0.0


def test_an_answer_to_another_question_is_no_row():
    with pytest.raises(ValueError, match="no answer to"):
        row_of_evaluation(TASK, samples.measured())
    base = samples.compiled()
    assert isinstance(base.verdict, Accepted)
    unchecked = replace(base.verdict, correctness=replace(base.verdict.correctness, checks=0))
    with pytest.raises(ValueError, match="stopped at compiling"):
        row_of_evaluation(TASK, evaluation(base, verdict=unchecked))


def test_degenerate_is_what_the_audit_said():
    from egg.evaluator.task.audit import Audit, NullResult

    nulls = (NullResult("zeros", True, 0.0),)
    audited = Audit("t", "h", Precision.MATCH, "cpu", 1e-4, nulls, False, False).warnings
    base = samples.measured()
    quick = Policy(level=Level.QUICK)
    for warnings, policy, degenerate in (
        (audited, Policy(), True),
        (audited, quick, True),
        ((), Policy(), False),
        (("no baseline 'compile': it failed",), Policy(), False),
        ((), quick, None),
        (("the task could not be audited: no memory",), Policy(), None),
    ):
        row = row_of_evaluation(TASK, evaluation(base, warnings=warnings, policy=policy))
        assert row.degenerate is degenerate
    early = evaluation(samples.rejected(), gates=(GateRecord(Gate.STATIC, False, 0.1),), warnings=())
    assert row_of_evaluation(TASK, early).degenerate is None


# -- from runs ---------------------------------------------------------------------------------------


def test_a_run_says_what_it_took():
    state = fold(sample_events())
    row = row_of_run(state, wall_seconds=12.0, run="runs/1")
    best = state.best_kernel
    assert best is not None
    assert row.accepted
    assert row.kernel == best.candidate.hash
    assert row.spent.tokens == state.ledger.usage.total > 0
    assert row.spent.money == state.ledger.cost > 0
    assert row.spent.evaluations == len(state.evaluations)
    assert row.spent.wall_seconds == 12.0
    assert row_of_run(state).spent.wall_seconds == state.ledger.seconds
    assert row.spent.gpu_seconds == sum(e.seconds for e in state.evaluations.values())
    assert row.settings == {"team": "llm", "budget": "quick", "seed": "0", "model": "some-model"}
    assert row.run == "runs/1"
    assert isinstance(row.verdict, Passed)
    assert row.verdict.structure is not None
    assert row.verdict.checks > 0
    tried = [step for step in state.steps if step.plan is not None]
    assert [(step.stage, step.decision) for step in row.steps] == [
        (step.stage.value, step.decision.value) for step in tried
    ]
    refused = [a.signature for step in state.steps for a in step.attempts if a.failed]
    assert list(row.refusals) == refused


def test_a_final_judging_outside_the_run_counts_and_costs():
    state = fold(sample_events())
    verdict = samples.rejected().verdict
    final = replace(samples.measured(), verdict=verdict, task_hash=state.started.task.hash, seconds=5.0)
    row = row_of_run(state, final=final)
    assert isinstance(row.verdict, Refused)
    assert row.spent.gpu_seconds == pytest.approx(row_of_run(state).spent.gpu_seconds + 5.0)
    assert row.spent.final_seconds == 5.0
    assert row_of_run(state).spent.final_seconds == 0.0
    assert row.refusals[-1] == f"{final.verdict.refusal.gate.value}: {final.verdict.refusal.reason}"


def test_a_run_without_a_kernel_says_why():
    events = sample_events()
    nothing = row_of_run(fold(events[:1]))
    assert nothing.verdict == NoKernel("the run ended before a kernel was written")
    first_refusal = next(
        n
        for n, event in enumerate(events)
        if event.kind == "kernel.evaluated" and not event.evaluation.accepted
    )
    row = row_of_run(fold(events[: first_refusal + 1]))
    assert isinstance(row.verdict, Refused)
    assert row.verdict.reason == "static.no_model"


# -- illegal rows ------------------------------------------------------------------------------------


def test_illegal_rows_cannot_be_built():
    one = around(1.0)
    with pytest.raises(ValueError, match="GPU"):
        Timing("", one, (), 0.0)
    with pytest.raises(ValueError, match="positive"):
        Opponent("eager", Basis.MATCHED, one, Interval(0.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="positive"):
        Opponent("eager", Basis.MATCHED, Interval(1.0, 1.0, float("inf")), one)
    with pytest.raises(ValueError, match="twice"):
        Timing("G", one, (Opponent("eager", Basis.MATCHED, one, one),) * 2, 0.0)
    with pytest.raises(ValueError, match="rounds"):
        Timing("G", one, (Opponent("eager", Basis.MATCHED, one, one, (1.0,)),), 0.0, (1.0, 1.0))
    with pytest.raises(ValueError, match="below zero"):
        Spent(gpu_seconds=-1.0)
    with pytest.raises(ValueError, match="below zero"):
        Spent(money=float("nan"))


# -- on disk -----------------------------------------------------------------------------------------

texts = st.text(max_size=20)
positive = st.floats(1e-6, 1e6)
intervals = st.lists(positive, min_size=3, max_size=3).map(sorted).map(lambda v: Interval(v[1], v[0], v[2]))


@st.composite
def timings(draw: st.DrawFn) -> Timing:
    rounds = draw(st.integers(0, 3))
    times = st.lists(positive, min_size=rounds, max_size=rounds).map(tuple)
    who = draw(st.lists(st.tuples(texts, st.sampled_from(Basis)), unique=True, max_size=3))
    opponents = tuple(Opponent(n, b, draw(intervals), draw(intervals), draw(times)) for n, b in who)
    return Timing("NVIDIA", draw(intervals), opponents, draw(st.floats(0, 1)), draw(times))


verdicts = st.one_of(
    st.builds(NoKernel, texts),
    st.builds(Unable, texts),
    st.builds(Refused, texts, st.sampled_from(Gate), texts, texts),
    st.builds(
        Passed,
        texts,
        st.none() | st.floats(0, 1),
        st.dictionaries(texts, st.integers(0, 9), max_size=2),
        st.integers(0, 9),
        st.floats(0, 1) | st.just(float("inf")),
        st.floats(0, 1),
        st.booleans(),
        st.none() | timings(),
        st.none() | positive,
        st.none() | positive,
        texts,
    ),
)
rows = st.builds(
    Row,
    key=st.text(min_size=1, max_size=9),
    name=st.text(min_size=1, max_size=9),
    task=texts,
    level=st.none() | st.integers(0, 9),
    problem=st.none() | st.integers(0, 99),
    family=st.sampled_from([*Family, *WholeFamily]),
    verdict=verdicts,
    policy=st.builds(
        Policy, st.sampled_from(Precision), st.sampled_from(LibraryCalls), st.sampled_from(Level)
    ),
    degenerate=st.none() | st.booleans(),
    spent=st.builds(Spent, st.integers(0, 10**9), st.integers(0, 9), st.floats(0, 1e3)),
    versions=st.dictionaries(texts, texts, max_size=2),
    warnings=st.lists(texts, max_size=2).map(tuple),
    notes=st.dictionaries(texts, texts | st.integers() | st.none() | st.lists(texts, max_size=2), max_size=2),
)


@settings(max_examples=150, deadline=None)
@given(rows)
def test_a_row_is_one_line_and_comes_back(row):
    line = row.to_line()
    assert "\n" not in line
    assert Row.from_json(json.loads(line)) == row


def test_rows_are_added_and_the_last_of_a_task_counts(tmp_path):
    path = tmp_path / "bench" / "rows.jsonl"
    with RowsFile(path) as file:
        file.add(failed(task(1), Unable("no memory")))
        file.add(passed(task(2), {"eager": 2.0}))
        file.add(passed(task(1), {"eager": 3.0}))
    assert [row.key for row in read_rows(path)] == ["1/1", "1/2"]
    assert read_rows(path)[0].speedup("eager") is not None
    assert len(path.read_text().splitlines()) == 3


def test_a_file_cut_at_any_byte_is_continued(tmp_path):
    path = tmp_path / "rows.jsonl"
    wanted = [passed(task(1), {"eager": 2.0}), failed(task(2)), failed(task(3), NoKernel("größer\u2028als"))]
    with RowsFile(path) as file:
        for row in wanted:
            file.add(row)
    data = path.read_bytes()
    ends = [n + 1 for n, byte in enumerate(data) if byte == ord("\n")]
    for cut in (0, 1, 5, *ends, *(end - 1 for end in ends), *range(7, len(data), 211)):
        path.write_bytes(data[:cut])
        whole = sum(end <= cut for end in ends)
        assert read_rows(path) == wanted[:whole]
        with RowsFile(path) as file:
            assert file.rows == wanted[:whole]
            for row in wanted[whole:]:
                file.add(row)
        assert path.read_bytes() == data


def test_resuming_leaves_out_what_is_settled(tmp_path):
    tasks = [task(n) for n in range(1, 7)]
    with RowsFile(tmp_path / "rows.jsonl") as file:
        assert file.pending(tasks, Policy()) == tasks
        file.add(passed(tasks[0], {"eager": 2.0}))
        file.add(failed(tasks[1]))
        file.add(failed(tasks[2], NoKernel("none")))
        file.add(failed(tasks[3], Unable("the worker died")))
        file.add(passed(task(5, body="x + x"), {"eager": 2.0}))
    with RowsFile(tmp_path / "rows.jsonl") as file:
        assert file.pending(tasks, Policy()) == tasks[4:]
        assert file.pending(tasks, Policy(), retry=True) == tasks[3:]
        assert file.pending(tasks, Policy(level=Level.AUDIT)) == tasks[4:]
        assert file.pending(tasks, TF32) == tasks


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    for name, text in (
        ("notes.txt", "my notes, without a newline"),
        ("torn.txt", '{"schema":"egg.run/1"'),
        ("other.jsonl", '{"job": "1"}\n'),
        ("array.jsonl", "[1, 2]\n"),
        ("number.jsonl", "7\n"),
        ("tail.jsonl", '{"job": "1"}\n{'),
        ("future.jsonl", '{"schema": "egg.bench-row/2", "key": "a"}\n'),
        ("bare.jsonl", '{"schema": "egg.bench-row/1"}\n'),
        ("null.jsonl", passed(task(1), {"eager": 1.0}).to_line().replace('"key":"1/1"', '"key":7') + "\n"),
        ("deep.jsonl", "[" * 100_000 + "\n"),
    ):
        path = tmp_path / name
        path.write_text(text)
        with pytest.raises(UsageError) as error:
            RowsFile(path)
        assert str(path) in error.value.message
        assert error.value.hint
        assert path.read_text() == text
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match="line 1 is not UTF-8"):
        RowsFile(tmp_path / "bytes")
    with pytest.raises(UsageError, match="cannot read"):
        RowsFile(tmp_path)
    with pytest.raises(UsageError, match="cannot"):
        RowsFile(tmp_path / "notes.txt" / "rows.jsonl")


def test_damage_is_named_by_its_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    good = passed(task(1), {"eager": 1.0}).to_line()
    path.write_text(f"{good}\n\n{good[:50]}\n{good}\n")
    with pytest.raises(UsageError, match="line 3 is not a row"):
        read_rows(path)
    assert read_rows(tmp_path / "nothing.jsonl") == []


def test_one_writer_at_a_time(tmp_path):
    with RowsFile(tmp_path / "rows.jsonl"), pytest.raises(UsageError, match="another process"):
        RowsFile(tmp_path / "rows.jsonl")
    RowsFile(tmp_path / "rows.jsonl").close()


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    with RowsFile(path) as file:
        file.add(passed(task(1), {"eager": 1.0}))
        before = path.read_bytes()
        write = os.write
        monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:20]))
        with pytest.raises(MachineError, match="of"):
            file.add(failed(task(2)))
        assert path.read_bytes() == before
        assert [row.key for row in file.rows] == ["1/1"]
        monkeypatch.undo()
        file.add(failed(task(2)))
    assert [row.key for row in read_rows(path)] == ["1/1", "1/2"]


def test_a_row_whose_writing_is_interrupted_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    first, second = passed(task(1), {"eager": 1.0}), failed(task(2))
    write = os.write

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    def torn(handle: int, data: bytes) -> None:
        write(handle, data[:20])
        raise KeyboardInterrupt

    with RowsFile(path) as file:
        for row, call, act in ((first, "fsync", interrupted), (second, "write", torn)):
            with monkeypatch.context() as patch:
                patch.setattr(os, call, act)
                with pytest.raises(KeyboardInterrupt):
                    file.add(row)
        assert read_rows(path) == [first]
        file.add(second)
    assert read_rows(path) == [first, second]


def test_missing_tasks_get_a_row_that_says_so():
    tasks = [task(1), task(2), task(3)]
    found = complete([passed(task(3), {"eager": 2.0}, policy=TF32)], tasks)
    assert [row.key for row in found] == ["1/1", "1/2", "1/3"]
    assert isinstance(found[0].verdict, NoKernel)
    assert found[0].policy == TF32
    assert complete([], []) == []
    for stranger in (task(9), task(1, body="x + x")):
        with pytest.raises(UsageError, match="not in this suite"):
            complete([failed(stranger)], tasks)


def test_a_task_of_its_own_goes_by_its_name():
    row = row_of(task(4, level=None), NoKernel("none"), Policy())
    assert (row.key, row.level, row.problem) == ("4_op", None, None)


def test_scores_of_a_bench_can_be_read_where_there_is_no_pytorch():
    names = ("rows", "outcomes", "scores", "compare", "kernelbench", "families")
    program = (
        f"import sys, {', '.join(f'egg.bench.{name}' for name in names)}; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
