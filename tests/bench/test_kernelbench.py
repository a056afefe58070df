"""KernelBench's layout: what its analysis would read, by position and by name, and kernels read back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from egg.bench.kernelbench import kernel_file_name, paired, read_kernels, write
from egg.bench.rows import Basis, NoKernel, Unable
from egg.core.errors import MachineError, UsageError
from egg.core.evaluation import Gate
from tests.bench.made import TF32, failed, kernel, passed, refused, task

SOURCES = {kernel(n).hash: kernel(n).source for n in range(1, 120)}
ROUNDS = (0.9, 1.0, 1.1)


def rows():
    """In no order: problem 10 before 2, a level apart, one of every end."""
    return [
        passed(task(10), {"eager": 3.0, "compile": 1.5}, rounds=ROUNDS),
        passed(task(2), {"eager": 1.0}, rounds=ROUNDS),
        failed(task(3), refused(task(3))),
        failed(task(4), refused(task(4), Gate.BUILD)),
        failed(task(5), NoKernel("nothing was written")),
        failed(task(6), Unable("the GPU is gone")),
        passed(task(7), {"eager": 2.0, "compile": 2.0}, kernelbench=False),
        passed(task(1, level=2), {"eager": 5.0, "compile": 4.0}),
    ]


@pytest.fixture
def written(tmp_path):
    found = write(tmp_path, "mine", rows(), SOURCES)
    return tmp_path, found


def read(path):
    return json.loads(path.read_text())


def test_a_folder_per_level_with_kernels_by_name(written):
    root, found = written
    assert found.runs == (root / "runs/mine_level1", root / "runs/mine_level2")
    assert sorted(p.name for p in found.runs[0].iterdir()) == [
        "eval_results.json",
        "level_1_problem_10_sample_0_kernel.py",
        "level_1_problem_2_sample_0_kernel.py",
        "level_1_problem_3_sample_0_kernel.py",
        "level_1_problem_4_sample_0_kernel.py",
        "level_1_problem_7_sample_0_kernel.py",
    ]
    assert (found.runs[1] / kernel_file_name(2, 1)).read_text() == kernel(1).source


def test_results_are_what_the_analysis_reads(written):
    root, _ = written
    results = read(root / "runs/mine_level1/eval_results.json")
    assert list(results) == ["2", "3", "4", "5", "6", "7", "10"]
    for samples in results.values():
        (sample,) = samples
        assert sample["sample_id"] == 0
        assert set(sample) == {
            "sample_id",
            "compiled",
            "correctness",
            "metadata",
            "runtime",
            "runtime_stats",
        }
    verdicts = {int(n): (s[0]["compiled"], s[0]["correctness"], s[0]["runtime"]) for n, s in results.items()}
    assert verdicts == {
        2: (True, True, 1.0),
        3: (True, False, -1.0),
        4: (False, False, -1.0),
        5: (False, False, -1.0),
        6: (False, False, -1.0),
        7: (True, False, -1.0),
        10: (True, True, 1.0),
    }
    assert results["6"][0]["metadata"]["egg_reason"] == "the GPU is gone"
    assert results["10"][0]["runtime_stats"]["num_trials"] == 3


def test_baselines_stand_beside_results_by_position_and_by_name(written):
    """Seven tasks of level 1, two correct: 1.0 and 3.0 times as fast as eager. So fast_1 is one seventh."""
    root, found = written
    place = root / "results/timing/NVIDIA_H200"
    assert found.baselines == (
        place / "baseline_time_torch.json",
        place / "baseline_time_torch_compile_inductor_default.json",
    )
    eager = read(found.baselines[0])
    assert list(eager) == ["level1", "level2"]
    results = read(root / "runs/mine_level1/eval_results.json")
    assert list(eager["level1"]) == [f"{n}_op.py" for n in results]
    pairs = zip(eager["level1"].values(), (s[0] for s in results.values()), strict=True)
    speedups = [entry["mean"] / sample["runtime"] for entry, sample in pairs if sample["correctness"]]
    assert speedups == pytest.approx([1.0, 3.0])
    assert eager["level1"]["3_op.py"]["mean"] == -1.0
    assert eager["level1"]["3_op.py"]["num_trials"] == 0
    entry = eager["level1"]["10_op.py"]
    assert set(entry) == {"mean", "std", "min", "max", "num_trials", "hardware", "device"}
    assert (entry["mean"], entry["min"], entry["max"]) == pytest.approx((3.0, 2.7, 3.3))
    assert entry["std"] == pytest.approx(3 * (0.02 / 3) ** 0.5)
    assert entry["hardware"] == "NVIDIA H200"


def test_a_correct_kernel_without_a_baseline_is_left_out_and_named(written):
    _, found = written
    compiled = read(found.baselines[1])
    assert "2_op.py" not in compiled["level1"]
    assert "3_op.py" in compiled["level1"]
    assert found.left_out == ("1/2: correct, but not timed against compile",)


def test_the_precision_of_the_baselines_can_be_chosen(tmp_path):
    row = passed(task(1), {"eager": 1.0}, default={"eager": 4.0}, policy=TF32)
    for basis, mean in ((Basis.DEFAULT, 4.0), (Basis.MATCHED, 1.0)):
        found = write(tmp_path / basis, "run", [row], SOURCES, basis=basis)
        assert read(found.baselines[0])["level1"]["1_op.py"]["mean"] == mean


def test_a_bench_without_times_has_no_baselines(tmp_path):
    found = write(tmp_path, "run", [passed(task(1), None), failed(task(2))], SOURCES)
    assert found.baselines == ()
    assert found.left_out == ("1/1: correct, but not timed against eager",)
    (sample,) = read(found.runs[0] / "eval_results.json")["1"]
    assert (sample["correctness"], sample["runtime"], sample["runtime_stats"]) == (True, -1.0, {})


def test_tasks_of_no_level_are_named(tmp_path):
    mine = passed(task(9, level=None), {"eager": 2.0})
    found = write(tmp_path, "run", [mine, failed(task(1))], SOURCES)
    assert found.left_out[0] == "9_op: no level and number"
    with pytest.raises(UsageError, match="level and a number"):
        write(tmp_path, "other", [mine], SOURCES)


def test_nothing_is_written_over(written):
    root, _ = written
    before = read(root / "runs/mine_level1/eval_results.json")
    for name, way_out in (("mine", "--name"), ("other", "--hardware")):
        with pytest.raises(UsageError, match="there already") as refused:
            write(root, name, rows(), SOURCES)
        assert way_out in refused.value.hint
    assert not (root / "runs/other_level1").exists()
    write(root, "other", rows(), SOURCES, hardware="H200 again")
    assert (root / "results/timing/H200_again/baseline_time_torch.json").exists()
    assert read(root / "runs/mine_level1/eval_results.json") == before


def test_what_cannot_be_written_is_said_before_anything_is(tmp_path):
    two = [passed(task(1), {"eager": 1.0}), passed(task(2), {"eager": 1.0}, gpu="NVIDIA H100")]
    for given, name, sources, message in (
        (two, "run", SOURCES, "NVIDIA H100 and NVIDIA H200"),
        (rows(), "run", {}, "not at hand"),
        (rows(), "run", dict.fromkeys(SOURCES, "another"), "not at hand"),
        (rows(), "../run", SOURCES, "run's name"),
        (rows(), "", SOURCES, "run's name"),
        ([], "run", SOURCES, "level and a number"),
        ([failed(task(1)), replace(failed(task(2)), name="1_op")], "run", SOURCES, "2 tasks called 1_op.py"),
    ):
        with pytest.raises(UsageError, match=message):
            write(tmp_path, name, given, sources)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_takes_nothing_is_no_mistake_of_the_user(tmp_path):
    (tmp_path / "runs").write_text("a file, where a folder should be")
    with pytest.raises(MachineError, match="cannot write"):
        write(tmp_path, "run", rows(), SOURCES)


# -- reading back ------------------------------------------------------------------------------------


def test_kernels_come_back_for_judging(written):
    _, found = written
    samples = read_kernels(found.runs[0])
    assert [(s.level, s.problem, s.sample) for s in samples] == [(1, n, 0) for n in (2, 3, 4, 7, 10)]
    assert samples[0].candidate.hash == kernel(2).hash
    assert samples[0].file_name == "level_1_problem_2_sample_0_kernel.py"
    both = paired(samples, [task(2), task(3), task(9), task(2, level=2)])
    assert [(t.problem_id, s.problem) for t, s in both.pairs] == [(2, 2), (3, 3)]
    assert both.without_kernel == (task(9), task(2, level=2))
    assert [s.problem for s in both.without_task] == [4, 7, 10]


def test_files_of_any_kind_may_lie_in_a_run(tmp_path):
    for name in ("level_1_problem_2_sample_1_kernel.py", "level_1_problem_2_sample_0_kernel.py"):
        (tmp_path / name).write_text(name)
    (tmp_path / "level_1_problem_3_sample_0_kernel.py").write_bytes(b"\xff not a program (")
    for name in (
        "level_1_problem_2_sample_0_kernel.py.bak",
        "level_x_problem_2_sample_0_kernel.py",
        "notes.md",
    ):
        (tmp_path / name).write_text("")
    samples = read_kernels(tmp_path)
    assert [(s.problem, s.sample) for s in samples] == [(2, 0), (2, 1), (3, 0)]
    assert samples[2].candidate.source.endswith(" not a program (")
    assert len(paired(samples, [task(2)]).pairs) == 2
    (tmp_path / "level_01_problem_2_sample_0_kernel.py").write_text("")
    with pytest.raises(UsageError, match="sample 0 of level 1, problem 2 twice"):
        read_kernels(tmp_path)


def test_the_kernels_of_a_bench_are_read_as_sample_0(tmp_path):
    for name in ("1_2.py", "2_30.py", "attention.py"):
        (tmp_path / name).write_text(name)
    samples = read_kernels(tmp_path)
    assert [(s.level, s.problem, s.sample) for s in samples] == [(1, 2, 0), (2, 30, 0)]
    assert samples[1].candidate.source == "2_30.py"


def test_a_folder_without_kernels_is_a_mistake(tmp_path):
    with pytest.raises(UsageError, match="no kernels"):
        read_kernels(tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        read_kernels(tmp_path / "nothing")
    (tmp_path / kernel_file_name(1, 1)).mkdir()
    with pytest.raises(UsageError, match="cannot read"):
        read_kernels(tmp_path)
