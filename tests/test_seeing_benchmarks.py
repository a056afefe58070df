"""The programs that hold diagnosis and prediction against a GPU, as far as they need none."""

from __future__ import annotations

import ast
import importlib
import io
import json
import os
import runpy
import subprocess
import sys
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.analysis.predict import predict
from egg.core.bottleneck import Bottleneck, Limiter, Suspect
from egg.core.codec import to_json
from egg.core.profile import KernelProfile, Profile, Rung
from egg.core.resources import Access, KernelResources, KernelWork
from egg.hardware.gpus import resolve

ROOT = Path(__file__).resolve().parents[1]
SEEING = ROOT / "benchmarks" / "seeing"


def sibling(name: str) -> ModuleType:
    """A module of the benchmark, which finds its neighbours as a program started there does."""
    sys.path.insert(0, str(SEEING))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SEEING))


planting, ranking, variants = sibling("planting"), sibling("ranking"), sibling("variants")
comparing = sibling("comparing")


def run(program: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SEEING / program), *map(str, options)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


def run_here(program: str, *options: str | Path) -> str:
    """What a program prints that starts no process of its own; in this process, which has PyTorch."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), suppress(SystemExit):
        patch.setattr(sys, "argv", [program, *map(str, options)])
        patch.syspath_prepend(str(SEEING))
        runpy.run_path(str(SEEING / program), run_name="__main__")
    return printed.getvalue()


# What is planted


def test_every_limiter_is_planted_and_every_folder_declared() -> None:
    cases = planting.load_planted()
    assert len(cases) >= 20
    assert {case.limiter for case in cases} == set(Limiter)
    folders = {
        path.name for path in planting.FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert {case.name for case in cases} == folders


@pytest.mark.parametrize("case", planting.load_planted(), ids=lambda case: case.name)
def test_the_kernel_a_limiter_is_planted_in_is_in_the_file(case) -> None:
    functions = [n for n in ast.parse(case.candidate.source).body if isinstance(n, ast.FunctionDef)]
    kernels = {f.name for f in functions if any(ast.unparse(d) == "triton.jit" for d in f.decorator_list)}
    assert case.kernel in kernels or (case.kernel == "" and case.limiter is Limiter.LAUNCH)
    assert len(case.why) > 20


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match=r"no_such_kernel.*dram_add"):
        planting.load_planted(["no_such_kernel"])


# Profiles that saw less


def copying(size: float, name: str = "copy", programs: int = 4096) -> KernelResources:
    """A kernel that reads and writes ``size`` bytes, as the compiler would tell of it."""
    accesses = tuple(Access(argument, argument == "y", size, size, size) for argument in "xy")
    work = KernelWork({}, 0.0, size, 0.0, accesses, 1.0)
    return KernelResources(name, (programs, 1, 1), 32, 0, 0, 4, 3, 0, 128, work=work)


def profile_of(rung: Rung = Rung.COUNTERS) -> Profile:
    kernels = (
        KernelProfile("long", True, 1, 2.0, 0.1, copying(4e8), {"dram_share": 0.9}),
        KernelProfile("short", True, 1, 1.0, 0.9, copying(4e8), {"dram_share": 0.1}),
    )
    return Profile("candidate", rung, "H200", kernels, 3.5, 1.0, 2)


def test_without_counters_times_remain_and_without_times_predictions_decide_the_order() -> None:
    times = planting.seen_by(profile_of(), Rung.TIMES)
    assert times.rung is Rung.TIMES
    assert times.milliseconds == 3.5
    assert [(k.name, dict(k.counters), k.milliseconds) for k in times.kernels] == [
        ("long", {}, 2.0),
        ("short", {}, 1.0),
    ]
    resources = planting.seen_by(profile_of(), Rung.RESOURCES)
    assert resources.milliseconds is None
    assert [(k.name, k.milliseconds) for k in resources.kernels] == [("short", None), ("long", None)]


def test_a_profile_does_not_stand_for_one_that_saw_more() -> None:
    lower = planting.seen_by(profile_of(), Rung.TIMES)
    assert planting.seen_by(lower, Rung.COUNTERS) is None
    assert planting.seen_by(lower, Rung.TIMES) is lower


def test_a_line_keeps_the_whole_profile_and_the_last_line_of_a_name_counts(tmp_path: Path) -> None:
    first = planting.Kept("a", Limiter.DRAM, "long", "H200", profile_of(), {"gpu": "NVIDIA H200"}, 9.5)
    again = planting.Kept("a", Limiter.TAIL, "", "H200", profile_of(), {"gpu": "NVIDIA H200"}, 8.5)
    other = planting.Kept("b", Limiter.L2, "short", "H200", profile_of(), {}, 1.0)
    file = tmp_path / "kept.jsonl"
    file.write_text("".join(k.to_line() + "\n" for k in (first, other, again)))
    assert planting.read_kept(file) == [again, other]
    assert planting.read_kept(tmp_path / "none.jsonl") == []


def found(limiter: Limiter, *suspects: Limiter) -> Bottleneck:
    return Bottleneck("k", limiter, 2.0, None, 1.0, (), "", tuple(Suspect(s, 1.5) for s in suspects))


def test_a_miss_says_what_was_found_and_where_the_planted_limiter_stood() -> None:
    assert planting.verdict(found(Limiter.SPILLS), Limiter.SPILLS) == "spills 2.0x"
    assert planting.verdict(found(Limiter.L2, Limiter.DRAM, Limiter.SPILLS), Limiter.SPILLS) == "l2 (3.)"
    assert planting.verdict(found(Limiter.L2), Limiter.SPILLS) == "l2 (not seen)"
    assert planting.verdict(None, Limiter.SPILLS) == "no such kernel"


def test_a_planted_kernel_is_profiled_kept_and_not_profiled_twice(tmp_path: Path) -> None:
    file = tmp_path / "planted.jsonl"
    options = ("--device", "cpu", "--target", "H200", "--only", "dram_add", "--out", file)
    seen = run("planted.py", *options)
    assert "named by resources: 1 of 1" in seen.stdout, seen.stdout + seen.stderr
    written = file.read_text()
    assert json.loads(written)["profile"]["kernels"][0]["name"] == "add"
    again = run_here("planted.py", *options)
    assert "1 of 1 profiled in 0 s" in again
    assert file.read_text() == written
    reread = run_here("rediagnose.py", file, "--whole")
    assert "named by resources: 1 of 1" in reread
    assert "predicted" in reread


# Variants


def test_the_variants_are_many_in_many_families_with_names_of_their_own() -> None:
    every = variants.all_variants()
    assert len(every) >= 80
    assert len({v.family for v in every}) >= 10
    assert len({v.name for v in every}) == len(every)


@pytest.mark.parametrize("variant", variants.all_variants(), ids=lambda v: v.name)
def test_a_variant_fits_its_kernel_and_the_hardware(variant) -> None:
    parameters = variant.kernel.arg_names
    plain = [p for p in parameters if p not in variant.constexprs]
    assert len(plain) == len(variant.arguments)
    assert len(plain) + len(variant.constexprs) == len(parameters)
    for name, argument in zip(plain, variant.arguments, strict=True):
        assert name.endswith("_ptr") == isinstance(argument, variants.Tensor), name
    assert all(size >= 1 for size in variant.grid)
    assert all(size <= 65535 for size in variant.grid[1:])
    for tensor in variant.tensors:
        elements = 1
        for size in tensor.shape:
            elements *= size
        assert elements < 2**31, "offsets are 32 bits wide"


def test_a_variant_is_compiled_and_predicted_without_a_gpu() -> None:
    done = run("predictions.py", "--dry-run", "--jobs", "1", "--only", "softmax 128x1024")
    assert "1 of 1 compiled and predicted" in done.stdout, done.stdout + done.stderr
    assert "grid (128, 1, 1)" in done.stdout


def test_there_is_no_measuring_without_a_gpu(tmp_path: Path) -> None:
    done = run("predictions.py", "--measure", "--out", tmp_path / "x.jsonl", "--only", "softmax 128x1024")
    assert done.returncode != 0
    assert "no GPU here" in done.stderr


# Agreement


def test_rank_correlation_with_ties_is_that_of_the_textbook() -> None:
    assert ranking.ranks([10, 20, 20, 5]) == [2.0, 3.5, 3.5, 1.0]
    assert ranking.spearman([1, 2, 3, 4], [1, 2, 2, 3]) == pytest.approx(0.9486833)
    assert ranking.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert ranking.spearman([1, 1, 1], [1, 2, 3]) is None
    with pytest.raises(ValueError, match="3 values against 2"):
        ranking.spearman([1, 2, 3], [1, 2])


times = st.lists(st.floats(1e-4, 1e3), min_size=2, max_size=30, unique=True)


@given(times, st.randoms())
def test_only_the_order_of_times_decides_their_rank_correlation(values: list[float], chance) -> None:
    shuffled = chance.sample(values, len(values))
    here = ranking.spearman(values, shuffled)
    assert -1.0 - 1e-9 <= here <= 1.0 + 1e-9
    assert ranking.spearman(ranking.ranks(values), [7 * r for r in ranking.ranks(shuffled)]) == pytest.approx(
        here
    )
    assert ranking.spearman(shuffled, values) == pytest.approx(here)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_an_error_is_the_same_factor_too_long_and_too_short(one: float, other: float) -> None:
    assert ranking.factor(one, other) == ranking.factor(other, one) >= 1.0


def test_a_time_of_nothing_has_no_error_factor() -> None:
    with pytest.raises(ValueError, match="above zero"):
        ranking.factor(0.0, 1.0)


def measured_lines(path: Path, count: int, off: float) -> Path:
    """Kernels of growing size, each measured ``off`` times longer or shorter than predicted, in turn."""
    gpu = resolve("H200")
    lines = []
    for i in range(count):
        kernel = copying(1e7 * (i + 1), f"copy{i}", 4096 + i)
        predicted = predict(kernel, gpu)
        assert predicted is not None
        ms = predicted.milliseconds * (off if i % 2 else 1 / off)
        row = {"name": f"copy {i}", "family": "copy", "milliseconds": ms, "resources": to_json(kernel)}
        lines.append(json.dumps(row | {"machine": {"gpu": "NVIDIA H200"}}))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_good_predictions_pass_and_the_page_has_every_variant(tmp_path: Path, capsys) -> None:
    page = tmp_path / "page.md"
    assert comparing.compare(measured_lines(tmp_path / "good.jsonl", 60, 1.1), markdown=page) == 0
    assert "median error factor 1.10" in capsys.readouterr().out
    assert all(f"| copy {i} |" in page.read_text() for i in range(60))


@pytest.mark.parametrize(("count", "off"), [(60, 2.0), (59, 1.1)])
def test_bad_predictions_and_too_few_do_not_pass(tmp_path: Path, count: int, off: float) -> None:
    assert comparing.compare(measured_lines(tmp_path / "bad.jsonl", count, off)) == 1


def test_a_kernel_whose_work_is_not_known_is_named_and_not_counted(tmp_path: Path) -> None:
    file = measured_lines(tmp_path / "some.jsonl", 3, 1.1)
    row = json.loads(file.read_text().splitlines()[0])
    row["name"], row["resources"]["work"] = "unknown", None
    file.write_text(file.read_text() + json.dumps(row) + "\n")
    rows, unknown = comparing.read(file, None)
    assert (len(rows), unknown) == (3, ["unknown"])
    assert "not predicted: unknown" in comparing.summary(rows, unknown)
