"""Launch records, autotuning, and kernels switched off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from egg.evaluator.interpreter import install

Facts = dict[str, Any]


def test_install_refuses_a_process_that_would_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET"):
        install()


LAUNCHES = """
calls = []

@triton.autotune(configs=[triton.Config({"B": b}, num_warps=2) for b in (24, 32, 64)], key=["n"])
@triton.jit
def tuned(x, o, n, B: tl.constexpr):
    tl.static_assert(B % 32 == 0, "B must be a multiple of 32")
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], reset_to_zero=["o"])
@triton.jit
def total(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))

@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 32})], key=["n"], restore_value=["x"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["B"] == 0})
@triton.jit
def guessed(x, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(x + i, tl.load(x + i) * 2)
    else:
        tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def prune(configs, named_args, **kwargs):
    calls.append(named_args["n"])
    return configs[1:]

@triton.autotune(configs=[triton.Config({"B": b}) for b in (8, 16, 32)], key=["n"],
                 prune_configs_by={"early_config_prune": prune})
@triton.jit
def pruned(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, 1.0, mask=i < n)

@triton.jit
def plain(x, o, n, B: tl.constexpr = 16):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)

grid = lambda meta: (triton.cdiv(meta["n"], meta["B"]),)
x, o = torch.randn(100), torch.empty(100)
tuned[grid](x, o, 100)
out["tuned"] = error(o, x + 1)
out["tuned launches"] = [[l.kernel, list(l.grid)] for l in session.launches]
session.reset()
o = torch.full((1,), 5.0)
total[grid](x, o, 100)
out["reset"] = error(o, x.sum())
y = x.clone()
guessed[grid](y, 100)
out["heuristics"] = error(y, x * 2)
pruned[grid](y, 100)
plain[(7, 1)](x, torch.empty(100), 100, num_warps=8)
plain[[0]](x, torch.empty(100), 100)
out["launches"] = [[l.kernel, list(l.grid)] for l in session.launches]
out["prune calls"] = calls
first = session.launches[0]
out["frozen"] = first == Launch("total", (7,), first.numbers) and hash(first) is not None
session.reset()
out["after reset"] = len(session.launches)
session.skip.add("plain")
o = torch.zeros(100)
plain[grid](x, o, n=100)
out["skipped"] = [error(o, torch.zeros(100)), len(session.launches)]
session.skip.clear()
plain[grid](x, o, n=100)
out["not skipped"] = error(o, x)
out["too large"] = fault(lambda: plain[(1, 70000)](x, o, 100))
out["target"] = triton.runtime.driver.active.get_current_target().backend
"""


def test_autotune_takes_the_first_valid_configuration(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    assert facts["tuned"] == 0
    assert facts["tuned launches"] == [["tuned", [4]]], "24 fails its static assertion, 32 is next"
    assert facts["reset"] < 1e-5
    assert facts["heuristics"] == 0
    assert facts["prune calls"] == [100]


def test_launches_are_recorded_by_kernel_name(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    names, grids = zip(*facts["launches"], strict=True)
    assert names == ("total", "guessed", "pruned", "plain", "plain")
    assert grids == ([7], [7], [7], [7, 1], [0])
    assert facts["frozen"]
    assert facts["after reset"] == 0


def test_skipping_a_kernel_changes_the_output(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    assert facts["skipped"] == [0, 1]
    assert facts["not skipped"] == 0


def test_impossible_grid_and_target(interpret: Callable[[str], Facts]) -> None:
    facts = interpret(LAUNCHES)
    assert facts["too large"]["reason"] == "unsupported"
    assert facts["target"] == "cuda"
