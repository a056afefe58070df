"""Put a folder of attacks before the judge, one after another in one process, and keep what it says.

    PYTHONPATH=src python benchmarks/judge/redteam/run.py FOLDER --level full --device cpu --out rows.jsonl

``FOLDER/cases.tsv`` has a line for each attack: the kernel file, its task file (both relative to the folder),
the terms (``allow`` or ``forbid``, may be empty) and the claim: what the kernel does that it must not. Run
again, the command goes on with the kernels that have no row, or whose text has changed since. Ends with 0
where nothing was accepted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from egg.core.errors import EggError
from egg.core.evaluation import Accepted
from egg.core.policy import Host, Level, LibraryCalls, Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.pool import devices
from egg.evaluator.judge.question import Question

CASES = "cases.tsv"


@dataclass(frozen=True)
class Attack:
    """One kernel, the task it is an answer to, and what is wrong with it."""

    name: str
    kernel: Path
    task: Path
    library_calls: LibraryCalls
    claim: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.kernel.read_bytes()).hexdigest()[:16]

    def question(self, level: Level, host: Host) -> Question:
        kernel = Candidate(Candidate.from_file(self.kernel).source, self.name)
        policy = Policy(Precision.MATCH, self.library_calls, level, host)
        return Question(Task.from_file(self.task), kernel, policy)


def attacks(folder: Path, only: list[str] | None) -> Iterator[Attack]:
    for line in (folder / CASES).read_text(encoding="utf-8").splitlines():
        kernel, task, terms, claim = (*line.split("\t"), "", "")[:4]
        if kernel and (not only or any(part in kernel for part in only)):
            yield Attack(
                Path(kernel).stem, folder / kernel, folder / task, LibraryCalls(terms or "allow"), claim
            )


def judged(oracle: Oracle, attack: Attack, level: Level, host: Host) -> dict[str, Any]:
    started = time.monotonic()
    row: dict[str, Any] = {
        "name": attack.name,
        "level": level.value,
        "host": host.value,
        "claim": attack.claim,
    }
    row["digest"] = attack.digest
    try:
        evaluation = oracle.judge(attack.question(level, host))
        verdict = evaluation.verdict
        if evaluation.recorded is not None:
            row["plan"] = evaluation.recorded.source
    except EggError as error:
        row |= {"got": "error", "reason": type(error).__name__, "evidence": str(error)[:400]}
    else:
        if isinstance(verdict, Accepted):
            row |= {"got": "accepted", "reason": "", "evidence": f"{verdict.correctness.checks} checks"}
        else:
            refusal = verdict.refusal
            row |= {"got": refusal.gate.value, "reason": refusal.reason, "evidence": refusal.evidence[:400]}
    return row | {"seconds": round(time.monotonic() - started, 1)}


def main() -> int:
    options = arguments()
    rows = _read(options.out)
    known = {(row["name"], row["level"], row.get("host", "author"), row["digest"]) for row in rows}
    oracle = Oracle(devices(options.device)[0])
    accepted: list[str] = []
    try:
        for attack in attacks(options.folder, options.only):
            if (attack.name, options.level.value, options.host.value, attack.digest) in known:
                continue
            row = judged(oracle, attack, options.level, options.host)
            print(_line(row), flush=True)
            accepted += [row["name"]] if row["got"] == "accepted" else []
            if options.out:
                with options.out.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
    finally:
        oracle.close()
    print(f"accepted: {len(accepted)} {' '.join(accepted)}")
    return 1 if accepted else 0


def _line(row: dict[str, Any]) -> str:
    verdict = f"{row['got']:12} {row['reason']:28} {row['seconds']:6.1f} s"
    return f"{row['name']:36} {verdict}  {row['evidence'][:110]}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--level", type=Level, default=Level.FULL, choices=list(Level))
    parser.add_argument(
        "--host",
        type=Host,
        default=Host.AUTHOR,
        choices=list(Host),
        help="recorded: plans are judged, and kept with the verdicts",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--out", type=Path, help="JSON lines, one verdict each")
    parser.add_argument("--only", action="append", help="part of a kernel's name; may be repeated")
    return parser.parse_args()


def _read(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
