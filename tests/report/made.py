"""Runs and benches for reports: real logs, logs with hostile words in them, many rows."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from egg.bench.families import WholeFamily
from egg.bench.rows import NoKernel, Passed, Row, Spent, Unable
from egg.core.facts import Family
from egg.core.source import content_hash
from tests.bench.made import failed, passed, task

TRAJECTORIES = Path(__file__).parents[2] / "examples" / "trajectories"
SOFTMAX = TRAJECTORIES / "wide_softmax"
LINEAR = TRAJECTORIES / "linear_gelu_residual"

HOSTILE = (
    "<script>window.pwned=1</script><img src=x onerror='window.pwned=1'>"
    "\"'><svg/onload=window.pwned=1></pre></details></textarea></title><!-- {{ 7*7 }} {% raw %} "
    "\x00\x1b[31m\u202e\ud800 &lt;b&gt; javascript:alert(1) | ``` [x](javascript:1)\n=1+1"
)
"""Markup, templates, control characters, a lone surrogate, a turned writing, Markdown, a formula."""
WORDS = {
    "change",
    "bottleneck",
    "expectation",
    "reason",
    "stopped",
    "text",
    "evidence",
    "hint",
    "objection",
    "critical_issue",
    "modification_plan",
    "model",
    "purpose",
    "torch",
    "told",
    "description",
    "open_bottleneck",
}
"""Keys of a log under which somebody's words stand."""


def edited(source: Path, folder: Path, edit: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Path:
    """A copy of a run with each event as ``edit`` leaves it; the log ends where that is ``None``."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for line in (source / "events.jsonl").read_text().splitlines():
        row = json.loads(line)
        event = edit(row["event"])
        if event is None:
            break
        lines.append(json.dumps({**row, "event": event}) + "\n")
    (folder / "events.jsonl").write_text("".join(lines))
    return folder


def first(source: Path, folder: Path, events: int) -> Path:
    """The run as it was after so many events."""
    left = iter(range(events))
    return edited(source, folder, lambda event: event if next(left, None) is not None else None)


def hostile_run(folder: Path) -> Path:
    """A real run in which every text that a model or a kernel could have written is an attack. Files have
    the names that belong to their texts, as those that a model wrote would have."""
    names: dict[str, str] = {}

    def poison(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: poison(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [poison(item, key) for item in value]
        if isinstance(value, str) and key in WORDS:
            return value + HOSTILE
        return value

    def edit(event: dict[str, Any]) -> dict[str, Any]:
        event = poison(event)
        if event["kind"] == "run.started":
            event["task"]["name"] = HOSTILE
            event["run"] = HOSTILE
            before = content_hash(event["task"]["source"])
            event["task"]["source"] += f"\nX = {HOSTILE!r}\n"
            names[before] = content_hash(event["task"]["source"])
        if event["kind"] == "kernel.proposed":
            event["source"] += f"\n# {HOSTILE}\nX = '''{HOSTILE}\n"
            names[event["candidate"]] = content_hash(event["source"])
        return event

    log = edited(SOFTMAX, folder, edit) / "events.jsonl"
    log.write_text(re.sub("|".join(names), lambda found: names[found[0]], log.read_text()))
    return folder


NAMES = (
    ("Matmul_with_large_K", Family.PRODUCT),
    ("RMSNorm_residual", Family.NORMALIZATION),
    ("SwiGLU", Family.POINTWISE),
    ("Conv2D_ReLU_BiasAdd", Family.CONVOLUTION),
    ("Softmax", Family.SOFTMAX),
    ("Attention_prefill", Family.ATTENTION),
    ("EfficientNetB0", WholeFamily.NETWORK),
)
LIMITERS = ("dram", "launch", "tensor", "fma", "latency", "of its own kind")


def many_rows(count: int = 250, seed: int = 3) -> list[Row]:
    """Three levels of tasks with every kind of end, the same every time."""
    rng = random.Random(seed)
    return [_row(rng, 1 + 3 * i // count, i + 1) for i in range(count)]


def _row(rng: random.Random, level: int, number: int) -> Row:
    name, family = NAMES[rng.randrange(len(NAMES))]
    of = replace(task(number, level), name=f"{number}_{name}")
    spent = Spent(rng.randrange(90_000), rng.randrange(9_000), rng.random(), 0, 3, 300 * rng.random(), 400.0)
    end = rng.random()
    if end < 0.86:
        over_eager = math.exp(rng.gauss(0.55, 0.6))
        speedups = {"eager": over_eager, "compile": over_eager * math.exp(rng.gauss(-0.25, 0.25))}
        row = passed(of, speedups, spread=0.02 * rng.random(), family=family, spent=spent)
        assert isinstance(row.verdict, Passed)
        verdict = replace(row.verdict, floor_milliseconds=0.5, limiter=rng.choice(LIMITERS))
        return replace(row, verdict=verdict, degenerate=rng.random() < 0.05, run=f"runs/{level}_{number}")
    if end < 0.94:
        return failed(of, family=family, spent=spent)
    reason = NoKernel("every file was refused") if end < 0.98 else Unable("the GPU fell off the bus")
    return failed(of, reason, family=family, spent=spent)
