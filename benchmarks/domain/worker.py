"""The worker of the sweep, ``python -m benchmarks.domain.worker DEVICE``: a request a line, a row a line."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.domain.outcomes import Outcome, Tried
from benchmarks.domain.pool import Json, reported_by_fork, serve

MOST_FORKS = 12
"""Processes that may die of one task."""


@dataclass(frozen=True)
class Sweeper:
    """Answers a request: the task's file, then its calls, in forks."""

    device: Any

    def answer(self, request: Json) -> Json:
        from benchmarks.domain import work
        from egg.core.source import Task
        from egg.evaluator.static.kernelbench_rules import static_findings

        task = Task(request["name"], request["source"], request.get("level"), request.get("problem"))
        started = time.monotonic()
        row: Json = {"key": request["key"], "name": task.name, "task": task.hash}
        row |= {"device": self.device.type, "calls": []}
        for message in reported_by_fork(lambda report: report(work.file_of(task)), request["seconds"]):
            if message.get("exit") != 0:
                row |= message
        if "exit" in row:
            row["reason"] = f"the process that wrote it ended: {row.pop('exit')}"
        source = row.pop("source", None)
        if source is not None:
            flags = static_findings(source)
            row["static"] = [flag.rule for flag in flags if flag.error]
            row["warned"] = [flag.rule for flag in flags if not flag.error]
            row["lines"] = source.count("\n")
        if source is not None and not request["calls"]:
            row["source"] = source
        elif source is not None:
            how = (request["rescale"], request["sample"], request["kind"])
            terms = work.Terms(self.device, started + request["seconds"], *how)
            self._try_all(task, source, terms, request["silence"], row)
        row["seconds"] = round(time.monotonic() - started, 1)
        return row

    def _try_all(self, task: Any, source: str, terms: Any, silence: float, row: Json) -> None:
        """Calls in one fork after another, each behind the call of which the last one died."""
        from benchmarks.domain import work

        fatal: list[str] = []
        for _ in range(MOST_FORKS):
            done = [Tried.of_json(call) for call in row["calls"]]
            left = len(done), len(fatal)
            act = partial(work.tried_calls, task, source, terms, work.Before(done, fatal))
            ended = self._reported(act, silence, row, fatal)
            if "trouble" in row or ended == 0:
                return
            if (len(row["calls"]), len(fatal)) == left:
                row["trouble"] = f"between two calls the process ended: {ended}"
                return
            if time.monotonic() > terms.until:
                break
        row["cut"] = len(row["calls"])

    def _reported(self, act: Any, silence: float, row: Json, fatal: list[str]) -> int | str:
        """What a fork reports goes into the row; a call of which the reference died joins ``fatal``."""
        begun: Json | None = None
        asking: str | None = None
        ended: int | str = 0
        for message in reported_by_fork(act, silence):
            if "begin" in message:
                begun = message
            elif "side" in message:
                begun = begun and begun | message
            elif "asking" in message:
                asking = message["asking"]
            elif "end" in message:
                row["calls"].append(message["end"])
                begun = None
            elif "exit" in message:
                ended = message["exit"]
            else:
                row |= message
        if begun is not None and "trouble" not in row:
            row["calls"].append(self._unended(begun, ended, silence))
        elif asking is not None:
            fatal.append(asking)
        return ended

    def _unended(self, begun: Json, ended: int | str, silence: float) -> Json:
        """The call of which a process died. Under the interpreter a call without an end is only slow, and
        where the reference had not answered yet, the file has no part in it."""
        hangs = ended == "silent"
        slow = hangs and self.device.type == "cpu"
        early = begun.get("side") == "reference"
        shown = f"no end in {silence:.0f} s" if hangs else f"the process died: {ended}"
        return {
            "kind": begun.get("kind", "captured"),
            "name": begun["begin"],
            "outcome": (Outcome.SKIPPED if slow or early else Outcome.CRASH).value,
            "detail": f"the reference: {shown}" if early else shown,
        }


WARMING = """
import torch

class Model(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.layer = torch.nn.Linear(features, features)

    def forward(self, x):
        return torch.softmax(self.layer(x), -1)

def get_inputs():
    return [torch.randn(4, 16)]

def get_init_inputs():
    return [16]
"""
"""A task whose file is written before the first fork, for what that loads of PyTorch."""


def main(device_name: str) -> None:
    import torch

    from benchmarks.domain import work
    from egg.core.source import Task

    work.file_of(Task("warming", WARMING))
    device = torch.device(device_name)
    if device.type == "cpu":
        from egg.evaluator.interpreter import install

        install()
        torch.set_num_threads(1)
    serve(Sweeper(device).answer)


if __name__ == "__main__":
    main(sys.argv[1])
