"""Ctrl-C during ``egg.optimize``: what was reached is kept, and the original answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import egg
from egg.api import modules


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
