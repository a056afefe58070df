"""What would be offered for KernelBench tasks, stage by stage, with the number that decided.

    python benchmarks/skills/review.py SUITE_DIR [--kernels DIR] [--only 1/23,2/37] [--stage mapping]

``SUITE_DIR`` holds JSON lines ``{level, problem_id, name, code}`` (``*.jsonl``). ``--kernels`` names a folder
with kernels of some tasks as ``L<level>_<id>_*.py``: for those the later stages are asked with the kernel
(the last by name) in hand, as a tuner would be. Prints Markdown: the five best skills of each stage with
their score and reason. Nothing runs on a GPU; the target is an H200.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from egg.api.profiling import ProfileOptions
from egg.api.skills import why
from egg.core.source import Candidate, Task
from egg.knowledge.catalogue import load
from egg.knowledge.select import Selected
from egg.knowledge.skill import SkillStage
from egg.knowledge.why import STAGES

TASKS: tuple[tuple[int, int], ...] = (
    (1, 1), (1, 4), (1, 6), (1, 12), (1, 23), (1, 33), (1, 36), (1, 47), (1, 51), (1, 61), (1, 63), (1, 82),
    (1, 89), (1, 97), (2, 1), (2, 18), (2, 37), (2, 42), (2, 66), (2, 73), (2, 88), (2, 99), (3, 1), (3, 9),
    (3, 19), (3, 28), (3, 39), (3, 43), (3, 46), (3, 48),
)  # fmt: skip
"""Chosen for variety: products of several shapes, norms, reductions, scans, convolutions of every kind,
attention, losses, fused chains, whole networks, recurrent and state-space layers."""
BEST = 5


def tasks(suite: Path, wanted: tuple[tuple[int, int], ...]) -> Iterator[Task]:
    found: dict[tuple[int, int], str] = {}
    for file in sorted(suite.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            found[int(row["level"]), int(row["problem_id"])] = line
    for key in wanted:
        if key not in found:
            raise SystemExit(f"no task {key[0]}/{key[1]} in {suite}")
        yield Task.from_json_line(found[key])


def kernel_of(task: Task, kernels: Path | None) -> Candidate | None:
    files = sorted(kernels.glob(f"L{task.level}_{task.problem_id}_*.py")) if kernels is not None else []
    return Candidate.from_file(files[-1]) if files else None


def words_of(found: Selected) -> str:
    return f"{found.skill.name} {found.score:.2f} ({found.reason})"


def review(
    suite: Path, kernels: Path | None, wanted: tuple[tuple[int, int], ...], stages: tuple[SkillStage, ...]
) -> Iterator[str]:
    catalogue = load(())
    options = ProfileOptions(device="cpu", target="H200", counters=False)
    yield "| task | stage | the best, with score and deciding comparison |"
    yield "| --- | --- | --- |"
    for task in tasks(suite, wanted):
        candidate = kernel_of(task, kernels)
        reports = [why(task, None, catalogue, options, stages=stages)]
        if candidate is not None:
            later = tuple(stage for stage in stages if stage is not SkillStage.SEED)
            reports.append(why(task, candidate, catalogue, options, stages=later))
        for report in reports:
            name = f"{task.level}/{task.problem_id} {task.name}"
            name += f" with {report.candidate}" if report.candidate else ""
            for answer in report.answers:
                best = "; ".join(words_of(one) for one in answer.offered[:BEST]) or "none"
                yield f"| {name} | {answer.stage} | {best} |"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", type=Path)
    parser.add_argument("--kernels", type=Path)
    parser.add_argument("--only", help="tasks as LEVEL/ID, with commas")
    parser.add_argument("--stage", choices=[stage.value for stage in STAGES])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    wanted = TASKS
    if asked.only:
        pairs = [one.partition("/") for one in asked.only.split(",")]
        wanted = tuple((int(level), int(number)) for level, _, number in pairs)
    stages = (SkillStage(asked.stage),) if asked.stage else STAGES
    lines = []
    for line in review(asked.suite, asked.kernels, wanted, stages):
        print(line, flush=True)
        lines.append(line)
    if asked.out is not None:
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
