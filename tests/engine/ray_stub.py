"""Actors in the judges' place: each does what the kernel file of its job says, without PyTorch."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from egg.core.codec import to_json
from egg.engine.cluster.actor import Kind
from egg.evaluator.judge.pool import Answer
from tests.samples import rejected

KIND = Kind(None, "2.13.0", "3.9.0")


class StubJudge:
    """A kernel file's first line says what to do, all of it optional:
    ``# {"begun": PATH, "wait_for": PATH, "die": true, "fault": true}``."""

    def __init__(self, device: str) -> None:
        self._device = device

    def describe(self, fingerprint: str) -> dict[str, Any]:
        assert fingerprint
        assert self._device == "cpu"
        return to_json(KIND)

    def ping(self) -> None:
        pass

    def judge(self, line: str) -> str:
        row = json.loads(line)
        order = json.loads(row["question"]["candidate"]["source"].split("\n")[0].removeprefix("# "))
        if "begun" in order:
            with Path(order["begun"]).open("a") as begun:
                begun.write(f"{os.getpid()} {os.environ['RAY_RAYLET_PID']}\n")
        while "wait_for" in order and not Path(order["wait_for"]).exists():
            time.sleep(0.02)
        if "die" in order:
            os._exit(1)
        if "fault" in order:
            raise ZeroDivisionError("a fault of the judge's own")
        return Answer(row["job"], rejected()).to_line()

    def close(self) -> None:
        pass
