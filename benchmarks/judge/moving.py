"""Do times shift when all inputs change between timed calls? Three tasks, timed and printed as JSON lines.

    PYTHONPATH=src python benchmarks/judge/moving.py --label new
    PYTHONPATH=OLD/src python benchmarks/judge/moving.py --label old

One line a task: the median of the candidate's and of eager's milliseconds, on the device's clock and on the
oracle's own. Run it with two versions of the judge on the same GPU and compare the lines. Inputs are floats
(a softmax), integers (a bag of embeddings) and strided floats (squares of a transposed matrix).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from egg.core.evaluation import Accepted, Measured
from egg.core.policy import Level, Policy
from egg.core.source import Candidate, Task
from egg.evaluator.judge.oracle import Oracle
from egg.evaluator.judge.question import Question

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "corpus"
CASES = (
    ("row_softmax", "softmax", {"rows": 8192, "columns": 1024}),
    ("embedding_sum", "embedding", {"bags": 65536, "bag_size": 64, "entries": 50000}),
    ("transposed_square", "strided_input", {"rows": 4096, "columns": 4096}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--label", default="")
    parser.add_argument("--level", default="quick", choices=[level.value for level in Level])
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    oracle = Oracle("cuda:0")
    try:
        for task, kernel, sizes in CASES:
            for _ in range(options.repeat):
                row = timed(oracle, task, kernel, sizes, options.level)
                print(json.dumps({"label": options.label} | row), flush=True)
    finally:
        oracle.close()


def timed(oracle: Oracle, task: str, kernel: str, sizes: dict[str, int], level: str) -> dict[str, object]:
    source = (CORPUS / "tasks" / f"{task}.py").read_text(encoding="utf-8")
    lines = [enlarged(line, sizes) for line in source.splitlines()]
    candidate = Candidate((CORPUS / "honest" / f"{kernel}.py").read_text(encoding="utf-8"), kernel)
    question = Question(Task(task, "\n".join(lines)), candidate, Policy(level=Level(level)))
    evaluation = oracle.judge(question)
    row: dict[str, object] = {"task": task, "seconds": round(evaluation.seconds, 1)}
    verdict = evaluation.verdict
    if not isinstance(verdict, Accepted) or not isinstance(verdict.performance, Measured):
        return row | {"refused": str(verdict)[:400]}
    found = verdict.performance
    eager = next(b.milliseconds.median for b in found.baselines if b.name == "eager")
    return row | {
        "candidate_ms": found.milliseconds.median,
        "eager_ms": eager,
        "wall_ms": found.wall_milliseconds,
        "wall_speedup": found.wall_speedup,
        "noise_floor": found.noise_floor,
    }


def enlarged(line: str, sizes: dict[str, int]) -> str:
    name, equals, _ = line.partition(" = ")
    return f"{name} = {sizes[name]}" if equals and name in sizes else line


if __name__ == "__main__":
    main()
