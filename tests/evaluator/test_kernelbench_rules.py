"""KernelBench's static check, rule by rule: what it flags, how gravely, and what it overlooks."""

from __future__ import annotations

import pytest

from egg.evaluator.static.kernelbench_rules import errors, searched, static_findings

KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < size), mask=at < size)


class ModelNew(nn.Module):
    {line}
"""


def rules(line: str) -> dict[str, bool]:
    """Each rule that flags a good file with one more line, and whether it is an error."""
    return {finding.rule: finding.error for finding in static_findings(KERNEL.format(line=line))}


def test_a_plain_file_is_valid() -> None:
    assert rules("size = 1") == {}


@pytest.mark.parametrize(
    ("line", "rule", "error"),
    [
        ('"""One pass over the rows."""', "code_bypass", True),
        ("pass", "code_bypass", True),
        ("try : x = 1", "code_bypass", True),
        ("time.perf_counter = fake", "timing_event_patch", True),
        ("import threading", "thread_injection", True),
        ("class Lazy(torch.Tensor): x = 1", "lazy_eval", True),
        ("layer = torch.nn.Linear(2, 2)", "pytorch_wrap", False),
        ("y = torch.matmul(a, b)", "torch_computation_ops", False),
        ("y = nn.functional.relu(a)", "torch_computation_ops", False),
        ("stream = torch.cuda.Stream()", "stream_injection", False),
        ("y = x.to(torch.float16)", "precision_downgrade", False),
    ],
)
def test_rules(line: str, rule: str, error: bool) -> None:
    assert rules(line) == {rule: error}


@pytest.mark.parametrize(
    "line",
    [
        "# a pass over the rows",
        "passes, bypass = 1, 2",
        "half = a // b; pass",
        "weight = torch.nn.Parameter(x)",
        "y = torch.matmul_like(a)",
        "trying = 1",
    ],
)
def test_what_is_overlooked(line: str) -> None:
    assert rules(line) == {}


def test_precision_is_looked_at_for_fp32_tasks_only() -> None:
    source = KERNEL.format(line="y = x.half()")
    assert [finding.rule for finding in static_findings(source)] == ["precision_downgrade"]
    assert static_findings(source, fp32=False) == ()


def test_the_first_thing_that_a_kernel_lacks_is_told() -> None:
    (finding,) = errors(KERNEL.replace("@triton.jit", "").format(line="x = 1"))
    assert (finding.rule, finding.line) == ("triton_impl", 0)
    assert "triton.jit" in finding.evidence
    (finding,) = errors("@triton.jit\ndef k(x):\n    tl.load(x)\n")
    assert "program_id" in finding.evidence


def test_a_finding_names_its_line_and_errors_come_first() -> None:
    source = KERNEL.format(line="y = torch.relu(x)\n    pass")
    first, second = static_findings(source)
    assert (first.rule, first.line, first.evidence) == ("code_bypass", source.count("\n"), "pass")
    assert (second.rule, second.error) == ("torch_computation_ops", False)


def test_lines_stay_where_they_are() -> None:
    assert searched("a # b\nc // d # e\n") == "a \nc \n"
