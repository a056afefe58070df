"""Put the adversarial corpus before the judge: every cheat must be refused, every honest look-alike accepted.

    PYTHONPATH=src python benchmarks/judge/corpus.py --out corpus.json --markdown corpus.md

One evaluation after another, a fresh process per candidate, level quick with short limits; with the calls and
values of level full for the files that ask for them (``probes: all``). A cheat passes this test when the gate
that refused it is among those its file names, and the reason begins as the file says where the first of them
refused. Ends with 0 only where every case came out as it must.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

from table import Table

from egg.core.errors import EggError
from egg.core.evaluation import Accepted, Evaluation, Gate, Rejected
from egg.core.policy import Level
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.pool import devices
from egg.evaluator.judge.question import Question
from egg.evaluator.trial.levels import LEVELS, LevelSettings

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "corpus" / "corpus.py"
HEADINGS = ("case", "must be", "was", "reason", "ok", "s")
WIDTHS = (38, 40, 12, 26, 5, 6)
GATES_OF_FAULTS = (Gate.PROVENANCE, Gate.CORRECTNESS, Gate.DOMAIN)
"""Where a GPU shows what the interpreter calls by its name, for another reason."""
BUILD_SECONDS, CALL_SECONDS = 30.0, 8.0


def main() -> int:
    options = arguments()
    device = devices(options.device)[0]
    cases = part(
        by_task([c for c in reader().load_corpus() if wanted(c, device, options.only)]), options.part
    )
    table, rows = Table(HEADINGS, WIDTHS), []
    table.begin()
    started = time.monotonic()
    oracle = Oracle(device)
    try:
        for case in cases:
            row = judged(oracle, case, limits(case))
            rows.append(row)
            table.add(
                row["name"], row["expected"], row["got"], row["reason"], mark(row), f"{row['seconds']:.1f}"
            )
            if not row["ok"]:
                print(f"    {row['evidence'][:400]}", flush=True)
    finally:
        oracle.close()
    text = summary(rows, time.monotonic() - started, device)
    print(f"\n{text}")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(f"{table.markdown()}\n\n{text}\n", encoding="utf-8")
    return 0 if all(row["ok"] for row in rows) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument(
        "--only", action="append", help="part of a name, e.g. hostile/ or cache; may be repeated"
    )
    parser.add_argument("--part", default="1/1", help="2/3: the second third of the cases")
    parser.add_argument("--out", type=Path, help="JSON")
    parser.add_argument("--markdown", type=Path)
    return parser.parse_args()


def reader() -> ModuleType:
    """The corpus' own reader, under a name that does not clash with this program's."""
    spec = importlib.util.spec_from_file_location("judge_corpus_reader", CORPUS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def short_settings(build_seconds: float, call_seconds: float) -> LevelSettings:
    """Quick, and on a GPU the interpreter beside it, as at level full."""
    return dataclasses.replace(
        LEVELS[Level.QUICK], build_seconds=build_seconds, call_seconds=call_seconds, interpreted=True
    )


def limits(case: Any) -> LevelSettings:
    """Short; with all calls and values that level full tries, where only these show what the file is."""
    settings = short_settings(BUILD_SECONDS, CALL_SECONDS)
    if not case.whole:
        return settings
    whole = LEVELS[Level.FULL]
    return dataclasses.replace(
        settings,
        domain=whole.domain,
        unusual=whole.unusual,
        seeds=whole.seeds,
        distributions=whole.distributions,
        constants=whole.constants,
    )


def wanted(case: Any, device: str, only: list[str] | None) -> bool:
    runs_here = case.needs == "cpu" or device.startswith("cuda")
    return runs_here and (not only or any(part in case.name for part in only))


def by_task(cases: list[Any]) -> list[Any]:
    """Cases of the same task and precision together: the judge keeps what it compiled for the last one."""
    return sorted(cases, key=lambda c: (c.task_path.stem, c.policy.precision.value, c.name))


def part(cases: list[Any], which: str) -> list[Any]:
    """One of several contiguous parts of nearly equal length, for machines that are lent by the minute."""
    number, _, parts = which.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise SystemExit(f"--part {which}: expected I/N with 1 <= I <= N")
    first, last = ((int(number) - 1 + i) * len(cases) // int(parts) for i in (0, 1))
    return cases[first:last]


def question(case: Any, settings: LevelSettings | None, *, static: bool) -> Question:
    return Question(
        Task.from_file(case.task_path),
        Candidate(case.path.read_text(encoding="utf-8"), case.name),
        case.policy,
        skip=() if static else (Gate.STATIC,),
        settings=settings,
    )


def judged(oracle: Oracle, case: Any, settings: LevelSettings) -> dict[str, Any]:
    """One case as a row of facts: what was expected, what came, whether that is right."""
    started = time.monotonic()
    gates = [gate.value for gate in case.gates]
    row: dict[str, Any] = {"name": case.name, "expected": ", ".join(gates) or "accepted"}
    try:
        if Gate.SANITIZER in case.gates:
            settings = dataclasses.replace(settings, sanitize=True)
        evaluation = oracle.judge(question(case, settings, static=case.static))
    except EggError as error:
        row |= {"got": "ERROR", "reason": type(error).__name__, "evidence": str(error), "ok": False}
    else:
        row |= {**outcome(evaluation), "ok": as_it_must(case, evaluation)}
    return row | {"seconds": time.monotonic() - started}


def outcome(evaluation: Evaluation) -> dict[str, Any]:
    verdict = evaluation.verdict
    if isinstance(verdict, Accepted):
        return {"got": "accepted", "reason": "", "evidence": "; ".join(evaluation.warnings)}
    refusal = verdict.refusal
    return {"got": refusal.gate.value, "reason": refusal.reason, "evidence": refusal.evidence}


def as_it_must(case: Any, evaluation: Evaluation) -> bool:
    verdict = evaluation.verdict
    if not isinstance(verdict, Rejected):
        return case.expected == "accepted"
    refusal = verdict.refusal
    if not case.gates or refusal.gate is Gate.INTERPRETER:
        return bool(case.gates)
    if evaluation.machine.device == "cuda" and case.needs == "cpu":
        return refusal.gate in GATES_OF_FAULTS or refusal.gate in case.gates
    first = refusal.gate is case.gates[0]
    return refusal.gate in case.gates and (not first or refusal.reason.startswith(case.reason))


def mark(row: dict[str, Any]) -> str:
    return "yes" if row["ok"] else "NO"


def summary(rows: list[dict[str, Any]], seconds: float, device: str) -> str:
    honest = [r for r in rows if r["expected"] == "accepted"]
    cheats = [r for r in rows if r["expected"] != "accepted"]
    refused = Counter(r["got"] for r in cheats)
    lines = [
        f"{len(rows)} cases on {device} in {seconds:.0f} s",
        f"cheats refused at a gate named: {sum(r['ok'] for r in cheats)} of {len(cheats)}",
        f"cheats accepted: {refused.get('accepted', 0)}",
        f"honest look-alikes accepted: {sum(r['ok'] for r in honest)} of {len(honest)}",
        "refused by: " + ", ".join(f"{gate} {count}" for gate, count in refused.most_common()),
    ]
    wrong = [r["name"] for r in rows if not r["ok"]]
    return "\n".join([*lines, f"not as they must: {', '.join(wrong)}"] if wrong else lines)


if __name__ == "__main__":
    sys.exit(main())
