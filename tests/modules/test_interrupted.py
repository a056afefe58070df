"""How a run of ``egg.optimize`` begins, and Ctrl-C in it: what was reached is kept, the original answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import egg
from egg.api import modules, optimizing
from egg.api.runs import state_of
from egg.core.errors import EggError
from tests.engine.scripts import FACTS, kernel


def test_an_interrupted_run_leaves_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(modules, "begin", interrupted)
    module, x = nn.Linear(4, 4), torch.randn(2, 4)
    fast = egg.optimize(module, (x,), folder=tmp_path / "run", progress=False)
    assert fast.result.verdict == "original"
    assert "interrupted" in fast.result.reason
    torch.testing.assert_close(fast(x), module(x))
    assert list(fast.stats().reasons) == [f"there is no verified kernel: {fast.result.reason}"]


@pytest.mark.parametrize("as_path", [True, False])
def test_a_run_starts_with_the_kernel_that_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_path: bool
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(modules, "carry_on", interrupted)
    monkeypatch.setattr(optimizing, "prepare", lambda: None)
    monkeypatch.setattr(optimizing, "check_loads", lambda task, device: None)
    monkeypatch.setattr(optimizing, "facts_of", lambda task, gpu, precision: FACTS)
    own = tmp_path / "own.py"
    own.write_text(kernel("2.0 ms"))
    start = own if as_path else own.read_text()
    fast = egg.optimize(
        nn.Linear(4, 4), (torch.randn(2, 4),), start=start, folder=tmp_path / "run", progress=False
    )
    assert state_of(tmp_path / "run").started.start == own.read_text()
    assert "interrupted" in fast.result.reason


def test_a_kernel_to_start_with_that_is_not_there_is_named_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(EggError, match="nowhere"):
        egg.optimize(nn.Linear(4, 4), (torch.randn(2, 4),), start=tmp_path / "nowhere.py")
