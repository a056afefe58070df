"""The KernelBench page is a view of bench rows: of those that a bench writes, and of the kept evidence."""

from __future__ import annotations

import importlib.util
import json
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from egg.bench.figures import LargestResources, StepOutcome, Structure
from egg.bench.row_files import read_rows
from egg.bench.rows import TROUBLE, Passed, Refused, Row, Timing, Unable
from egg.bench.structure import groups_in, left_in
from egg.core.errors import UsageError
from egg.core.evaluation import Gate
from egg.core.policy import Level
from egg.report.bench_report import read_bench
from tests.bench.made import around, failed, passed, task

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / "docs" / "evidence"


def _page() -> Any:
    path = ROOT / "benchmarks" / "kernelbench" / "page.py"
    spec = importlib.util.spec_from_file_location("kernelbench_page", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


page = _page()


def timed(problem: int, ms: float, best: float) -> Row:
    """An accepted kernel whose best baseline is ``compile``."""
    row = passed(task(problem), {"eager": 2.0, "compile": best, "reduce-overhead": best + 0.1})
    assert isinstance(row.verdict, Passed)
    assert isinstance(row.timing, Timing)
    verdict = replace(
        row.verdict,
        timing=replace(row.timing, milliseconds=around(ms)),
        floor_milliseconds=0.1,
        diagnosis="dram: memory bandwidth is used up",
        structure=Structure(2, ("one pass (x2)",), moves=("without product",)),
    )
    spent = replace(row.spent, wall_seconds=10.0 * problem, final_seconds=2.0)
    return replace(row, verdict=verdict, spent=spent)


def test_the_page_in_the_repository_is_made_of_the_rows_beside_it() -> None:
    text = (EVIDENCE / "expert.md").read_text(encoding="utf-8")
    rows = read_rows(EVIDENCE / "expert_kernelbench.jsonl")
    assert len(rows) == 199
    assert page.filled(text, "allow", page.page(rows)) == text


def test_kept_rows_are_read_with_everything_that_they_say() -> None:
    path = EVIDENCE / "expert_kernelbench.jsonl"
    found = {row.key: row for row in read_rows(path)}
    for data in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        row = found[f"{data['level']}/{data['problem']}"]
        assert row.faster_than_all() == data.get("faster")
        assert len(row.steps) == len(data["gains"])
        assert list(row.refusals) == data["refused"]
        assert row.notes.get("earlier", False) == data.get("earlier", False)
        if isinstance(row.verdict, Passed):
            assert row.verdict.diagnosis == data["diagnosis"]
            assert row.verdict.limiter.isidentifier(), "a diagnosis may name a limiter without a gain"


@pytest.mark.parametrize(("file", "tasks"), [("expert_kernelbench.jsonl", 199), ("llm_ops.jsonl", 45)])
def test_a_report_reads_the_evidence(file: str, tasks: int) -> None:
    assert len(read_bench(EVIDENCE / file).rows) == tasks


def test_the_page_has_totals_losses_with_a_diagnosis_and_every_task() -> None:
    refused = replace(
        failed(task(3), Refused("k", Gate.STATE, "state.stale")), refusals=("state: state.stale",)
    )
    text = page.page([refused, timed(2, 0.4, 0.8), timed(1, 0.5, 1.5)])
    assert "| level 1 | 3 | 2 | 1 | 2.00x | 1.10x | 1.20x | 1.10x | 2 | 10.0 | 8.0 | 20 |" in text
    assert "| 1/3 op | refused at state | state: state.stale |" in text
    assert "| 1/2 op | 0.4 | compile | 0.80x | 4.00 | dram: memory bandwidth is used up |" in text
    assert "one pass (x2) [without product]" in text
    kept = page.filled("a\n<!-- begin allow -->\nold\n<!-- end allow -->\nb\n", "allow", text)
    assert kept.startswith("a\n<!-- begin allow -->\n\nPolicy: ")
    assert kept.endswith("<!-- end allow -->\nb\n")
    assert "old" not in kept
    with pytest.raises(UsageError, match="no section 'forbid'"):
        page.filled(kept, "forbid", text)


def test_the_page_lists_gains_over_the_first_kernel_and_searches_that_broke_off() -> None:
    def stepped(problem: int, *steps: StepOutcome) -> Row:
        return replace(timed(problem, 0.5, 1.5), steps=steps)

    tried = [
        stepped(1, StepOutcome("tiling", "promoted", 1.1)),
        stepped(2, StepOutcome("tiling", "not better", 0.9)),
        stepped(3, StepOutcome("tiling", "passed")),
        stepped(4, StepOutcome("structure", "promoted", 1.4)),
    ]
    text = page.page(tried)
    gained = text[text.index("### Made faster") : text.index("### Not faster")]
    assert "Of 3 tasks" in gained
    assert [line.split(" | ")[1:] for line in gained.splitlines() if line.endswith("x |")] == [
        ["structure", "1.40x |"],
        ["tiling", "1.10x |"],
    ]
    assert "Made faster" not in page.page(tried[1:3])
    assert "broke off" not in text
    broken = replace(tried[0], notes={TROUBLE: "ZeroDivisionError"})
    assert "| 1/1 op | ZeroDivisionError |" in page.page([broken])


def test_rows_without_a_gpu_become_a_table_of_the_compilers_figures() -> None:
    row = passed(task(1), None)
    assert isinstance(row.verdict, Passed)
    verdict = replace(row.verdict, resources=LargestResources(128, 16, 4096), library_ops={"addmm": 1})
    text = page.page([replace(row, verdict=verdict), failed(task(2), Unable("no memory"))])
    assert "| level 1 | 2 | 1 | 1 |" in text
    assert "| 1/1 op | accepted | 1 | 128 | 16 | 4096 | - | - | addmm |" in text
    assert "| 1/2 op | machine: no memory | - | - |" in text


def test_audited_rows_say_what_was_checked() -> None:
    row = timed(1, 0.5, 1.5)
    policy = replace(row.policy, level=Level.AUDIT)
    assert isinstance(row.verdict, Passed)
    stood = replace(
        row, policy=policy, verdict=replace(row.verdict, checks=86, gates=(Gate.STATIC, Gate.BUILD))
    )
    fell = failed(task(2), Refused("k", Gate.SANITIZER, "sanitizer.memcheck", "out of bounds"), policy=policy)
    text = page.page([stood, fell])
    assert "1 of 2 kernels stood an audit." in text
    assert "| 1/1 op | accepted | 86 | static, build | 10.0 |" in text
    assert "| 1/2 op | refused at sanitizer sanitizer.memcheck: out of bounds |" in text


def test_the_docstring_of_a_file_names_its_structure() -> None:
    docstring = textwrap.dedent("""\
        A task, rewritten.

        Kernels:
            pack_left, matmul_kernel: product 64x64x64 at fp32 grade
                (packed) with bias
            softmax_kernel: Softmax in one pass

        Left to PyTorch: matrix
        product (2 times).
        """)
    assert groups_in(docstring) == [
        "matmul_kernel: product 64x64x64 at fp32 grade (packed) with bias",
        "softmax_kernel: Softmax in one pass",
    ]
    assert left_in(docstring) == "matrix product (2 times)"


def test_the_command_prints_the_page_and_names_a_file_without_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(timed(1, 0.5, 1.5).to_line() + "\n")
    assert page.main([str(path)]) == 0
    assert "| 1/1 op | accepted |" in capsys.readouterr().out
    assert page.main([str(tmp_path / "none.jsonl")]) == 2
    assert "no rows" in capsys.readouterr().err
