"""A compilation that takes too long is stopped, and alarms of the caller survive it."""

# Kernels are not typed Python: constexpr parameters take plain values, launches take options.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportIndexIssue=false

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from egg.evaluator.offline import (
    CompileFailed,
    capture,
    compile_launch,
)
from egg.evaluator.offline import compile as compiling
from tests.evaluator.test_offline import Calls, add, captured, own_triton_cache

__all__ = ["own_triton_cache"]


@triton.jit
def unrolled_kernel(x, out):
    value = tl.load(x)
    for i in tl.static_range(100_000):
        value = value * i + 1.0
    tl.store(out, value)


def test_a_slow_front_end_is_stopped() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        unrolled_kernel[(1,)](x, x)
        return x

    seen = capture(lambda: Calls(forward), lambda: [torch.rand(4)], compile_budget_s=0)
    start = time.monotonic()
    with pytest.raises(CompileFailed, match=r"not compiled within 0\.5 s") as failed:
        compile_launch(seen.launches[0], "sm_90", timeout_s=0.5)
    assert time.monotonic() - start < 40
    assert failed.value.kind == "timeout"


@pytest.mark.parametrize(("waiting", "longer"), [(0.1, 1.0), (3.0, 3.0), (100.0, 5.0)])
def test_on_a_busy_machine_a_compilation_may_take_longer(
    waiting: float, longer: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is for a machine of one's own: fifteen seconds, of which a judge among five gets three."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4 * waiting, 0.0, 0.0))
    given: list[float] = []
    monkeypatch.setattr(compiling, "_time_limit", lambda s: contextlib.nullcontext(given.append(s)))
    seen = capture(lambda: Calls(add), lambda: [torch.rand(64), torch.rand(64)], compile_budget_s=0)
    compile_launch(seen.launches[0], "sm_80", timeout_s=10.0)
    assert given == [10.0 * longer]


@pytest.mark.system
def test_a_slow_assembler_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    slow, pid = tmp_path / "ptxas", tmp_path / "pid"
    slow.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\necho $$ > {pid}\nexec sleep 60\n'
    )
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(slow))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    seen = capture(lambda: Calls(add), lambda: [torch.rand(64), torch.rand(64)], compile_budget_s=0)
    with pytest.raises(CompileFailed, match=r"not compiled within 1\.5 s"):
        compile_launch(seen.launches[0], "sm_80", timeout_s=1.5)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.system
def test_an_outer_alarm_survives() -> None:
    seen = captured(add, (1024,), (1024,))
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 60)
        compile_launch(seen.launches[0], "sm_86")
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 60
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not rung
