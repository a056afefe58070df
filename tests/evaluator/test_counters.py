"""What Nsight Compute writes, read from a real table; which kernels it is asked about; its refusals."""

from __future__ import annotations

import csv
import io
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.profile import Counter
from egg.core.stage import Stage
from egg.evaluator.process.confined import NOT_STARTED, Ended
from egg.evaluator.profiling import merge, reply
from egg.evaluator.profiling.counters import (
    Wanted,
    command,
    explain,
    function_of,
    read_csv,
    unknown_metrics,
)
from egg.evaluator.profiling.metrics import SOURCES, counters_from, counters_of, metrics_for
from egg.evaluator.profiling.times import Garbled

REAL = (Path(__file__).parent / "data" / "ncu.csv").read_text()
"""Three kernels on an H200: a tf32 product, a strided copy, an addition of PyTorch's."""


def without(column: str) -> str:
    """The real table less one column."""
    talk = [line for line in REAL.splitlines() if not line.startswith('"')]
    rows = list(csv.reader(line for line in REAL.splitlines() if line.startswith('"')))
    at = rows[0].index(column)
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows([row[:at] + row[at + 1 :] for row in rows])
    return "\n".join(talk) + "\n" + out.getvalue()


def test_a_real_table_becomes_counters() -> None:
    product, strided, addition = read_csv(REAL)
    assert (product.kernel, product.grid, product.block) == ("mm", (16, 16, 1), (256, 1, 1))
    assert function_of(addition.kernel) == "vectorized_elementwise_kernel"
    seen = counters_from(product.metrics)
    assert seen[Counter.NANOSECONDS] == 33760
    assert seen[Counter.TENSOR_SHARE] == pytest.approx(0.6281)
    assert seen[Counter.TENSOR_INSTRUCTIONS] == 262144
    assert seen[Counter.SHARED_BYTES] == 98304
    assert seen[Counter.DRAM_READ_BYTES] == 8398336
    assert seen[Counter.WAVES] == 0.97
    assert seen[Counter.STALL_QUEUE] == pytest.approx(0.27 + 0.79)
    slow = counters_from(strided.metrics)
    assert slow[Counter.LOAD_SECTORS] / slow[Counter.LOAD_REQUESTS] == 32
    assert slow[Counter.STALL_QUEUE] == pytest.approx(1089.93 + 588.83), "thousands are separated by commas"
    assert set(seen) == {c.value for c in Counter}, "every counter has a source in the real table"


def test_a_missing_metric_costs_only_its_own_counter() -> None:
    rows = read_csv(without("lts__t_sectors_op_red.sum"))
    assert set(Counter) - set(counters_from(rows[0].metrics)) == {Counter.ATOMIC_SECTORS}


@pytest.mark.parametrize("cell", ["n/a", "", "nan", "-1", "1e400", "0x10", "1,2", "9" * 400, "all", "١"])
def test_a_cell_that_is_no_number_is_left_out(cell: str) -> None:
    (row, *_) = read_csv(REAL.replace('"33,760"', f'"{cell}"', 1))
    assert "gpu__time_duration.sum" not in row.metrics
    assert "dram__bytes_read.sum" in row.metrics


@pytest.mark.parametrize(
    "text",
    [
        "",
        "==ERROR== something else",
        "Segmentation fault",
        REAL.splitlines()[3],
        "\n".join(REAL.splitlines()[:5]),
        REAL[:-200],
        REAL.replace("(16, 16, 1)", "(16, 16)"),
        REAL.replace('"mm"', '""'),
        without("Kernel Name"),
        without("Grid Size"),
        "\0" + REAL.replace('"0"', '"0'),
    ],
)
def test_what_is_no_table_is_garbled(text: str) -> None:
    with pytest.raises(Garbled):
        read_csv(text)


@given(st.text())
def test_no_text_does_more_than_be_garbled(text: str) -> None:
    with pytest.raises(Garbled):
        read_csv(text)


@given(st.integers(0, len(REAL)), st.integers(0, 200), st.text(max_size=30))
def test_a_damaged_table_is_read_or_garbled(start: int, length: int, instead: str) -> None:
    """Never anything but numbers that count something, and never another exception."""
    damaged = REAL[:start] + instead + REAL[start + length :]
    try:
        rows = read_csv(damaged)
    except Garbled:
        return
    for row in rows:
        assert row.kernel
        assert all(math.isfinite(value) and value >= 0 for value in row.metrics.values())
        assert all(math.isfinite(value) for value in counters_from(row.metrics).values())


def test_each_stage_looks_at_its_own_and_all_share_a_core() -> None:
    everything = set(metrics_for(None, "sm_90"))
    core = {"gpu__time_duration.sum", "dram__bytes_read.sum", "launch__waves_per_multiprocessor"}
    for stage in Stage:
        assert core <= set(metrics_for(stage, "sm_90")) <= everything
    assert Counter.SHARED_CONFLICTS in counters_of(Stage.TILING)
    assert Counter.LOAD_SECTORS in counters_of(Stage.MEMORY)
    assert Counter.SM_CYCLES_MOST in counters_of(Stage.MAPPING)
    assert Counter.LOAD_SECTORS not in counters_of(Stage.STRUCTURE)
    assert len(metrics_for(Stage.STRUCTURE, "sm_90")) < len(everything) / 2
    assert set(SOURCES) == set(Counter)


def test_an_older_gpu_is_not_asked_for_what_it_lacks() -> None:
    newer, older = metrics_for(None, "sm_90"), metrics_for(None, "sm_80")
    assert [m for m in newer if m not in older] == [
        "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio"
    ]


@pytest.mark.parametrize(
    ("kernel", "function"),
    [
        ("softmax_rows", "softmax_rows"),
        ("void at::native::fill<4, at::native::F<int>, std::array<char*, 2ul> >(int, F<int>)", "fill"),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, 11, false>(float*, int)",
            "softmax_warp_forward",
        ),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(Params)", "Kernel2"),
        (
            "sm90_xmma_gemm_f32f32_tf32f32_kernel__5x_cublas",
            "sm90_xmma_gemm_f32f32_tf32f32_kernel__5x_cublas",
        ),
        ("void f<(int)4, decltype(nullptr)>(a)", "f"),
    ],
)
def test_the_bare_name_of_a_function(kernel: str, function: str) -> None:
    assert function_of(kernel) == function


@given(st.text(min_size=1))
def test_any_name_has_some_function(kernel: str) -> None:
    assert function_of(kernel)


def test_the_command_names_functions_exactly() -> None:
    words = command("ncu", ["python", "x"], Wanted(("mm", "a+b"), 7), ["m.sum", "n.avg"], "/log")
    given = words[words.index("--kernel-name") + 1].removeprefix("regex:")
    assert re.search(given, "mm")
    assert re.search(given, "a+b")
    assert not re.search(given, "mm2")
    assert not re.search(given, "aab")
    for option, value in (
        ("--clock-control", "none"), ("--metrics", "m.sum,n.avg"), ("--launch-count", "7"),
        ("--log-file", "/log"), ("--profile-from-start", "off"),
    ):  # fmt: skip
        assert words[words.index(option) + 1] == value
    assert words[-2:] == ["python", "x"]


@pytest.mark.parametrize(
    ("ended", "log", "reason", "hint"),
    [
        (Ended(1, ""), "==ERROR== ERR_NVGPUCTRPERM - The user does not ...", "refuses", "NVreg_Restrict"),
        (Ended(0, "==ERROR== ERR_NVGPUCTRPERM"), "", "refuses", "SYS_ADMIN"),
        (Ended(-9, "", "time"), "", "within 3 s", "time limit"),
        (Ended(-9, "", "memory"), "", "memory", ""),
        (Ended(NOT_STARTED, "/x/ncu: Exec format error\n"), "", "Exec format error", "doctor"),
        (
            Ended(1, ""),
            "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool",
            "another profiler",
            "DCGM",
        ),
        (Ended(1, "==ERROR== The application returned an error code (11)."), "", "error code (11)", ""),
        (Ended(-11, ""), "", "ended with -11: it printed nothing", ""),
        (Ended(0, ""), "==WARNING== No kernels were profiled.", "none of the kernels", ""),
    ],
)  # fmt: skip
def test_a_refusal_has_a_reason(ended: Ended, log: str, reason: str, hint: str) -> None:
    trouble = explain(ended, log, 3)
    assert trouble is not None
    assert reason in trouble.reason
    assert hint in trouble.hint


def test_unknown_metrics_are_told_by_name() -> None:
    errors = "==ERROR== Failed to find metric sm__a.sum\n==ERROR== Failed to find metrics: b__c.avg, d__e"
    assert unknown_metrics(errors) == ["sm__a.sum", "b__c.avg", "d__e"]
    assert unknown_metrics(REAL) == []


def timed(sequence: list[tuple[str, float]], copies: frozenset[str] = frozenset()) -> reply.Times:
    """A call that launched these, one after the other; ``copies`` are no kernels."""
    totals: dict[str, float] = {}
    for name, microseconds in sequence:
        totals[name] = totals.get(name, 0.0) + microseconds
    names = sorted(totals, key=lambda name: -totals[name])
    kernels = tuple(
        reply.TimedKernel(
            name, name.islower(), sum(n == name for n, _ in sequence), totals[name],
            () if name in copies else (8,), () if name in copies else (128, 1, 1), 32, 0,
        )
        for name in names
    )  # fmt: skip
    launched = tuple(reply.Launched(names.index(name), us) for name, us in sequence)
    span = sum(us for _, us in sequence)
    return reply.Times(kernels, launched, span, span, 1, (), "", ())


def test_the_hottest_are_asked_for_not_the_first() -> None:
    seen = timed([(f"small{i}", 1.0) for i in range(20)] + [("big", 500.0), ("bigger", 900.0)])
    assert merge.hottest(seen) == Wanted(("bigger", "big"), 2)


def test_copies_cannot_be_counted() -> None:
    seen = timed([("Memcpy DtoD", 900.0), ("own", 10.0)], frozenset({"Memcpy DtoD"}))
    assert merge.hottest(seen).functions == ("own",)
    assert merge.hottest(timed([("Memset", 5.0)], frozenset({"Memset"}))).functions == ()


def test_at_most_so_many_kernels_and_launches() -> None:
    many = timed([(f"k{i}", 10.0) for i in range(30)])
    assert len(merge.hottest(many).functions) == merge.MOST_KERNELS
    recurrent = timed([("step", 1.0)] * 500 + [("last", 400.0)])
    assert merge.hottest(recurrent) == Wanted(("step", "last"), merge.MOST_LAUNCHES)


def test_the_longest_launch_is_waited_for() -> None:
    seen = timed([("k", 1.0), ("k", 1.0), ("k", 50.0), ("k", 50.0), ("k", 1.0)])
    assert merge.hottest(seen) == Wanted(("k",), 3)


@given(st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.floats(0, 1e6)), max_size=60))
def test_any_call_can_be_asked_about(sequence: list[tuple[str, float]]) -> None:
    wanted = merge.hottest(timed(sequence))
    assert bool(wanted.functions) == bool(sequence)
    assert 1 <= wanted.launches <= merge.MOST_LAUNCHES
