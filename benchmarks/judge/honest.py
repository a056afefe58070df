"""Judge every honest case: all must be accepted, and the numbers must be worth having.

    PYTHONPATH=src python benchmarks/judge/honest.py --level full --out honest.jsonl

On a GPU the table shows times and speedups with their 95% intervals; without one, that the
kernels are accepted and what they take. Ends with 0 only where every case was accepted.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median

from suite import load_cases
from table import Table, number, spread

from egg.core.evaluation import Accepted, Evaluation, Interval, Measured, Rejected
from egg.core.policy import Level
from egg.evaluator.judge.pool import Answer, Job, devices, run_jobs

HEADINGS = (
    "case", "verdict", "ms", "x eager", "x compile", "x reduce-overhead", "noise %", "own %", "error", "s",
)  # fmt: skip
WIDTHS = (22, 22, 24, 18, 18, 18, 7, 5, 8, 6)
QUIET = 0.02
LONG_ENOUGH = 0.1
"""Milliseconds: below, launch jitter is a larger part of the time than the kernel's author can help."""


def main() -> int:
    options = arguments()
    jobs = [Job(case.name, case.question(options.level)) for case in load_cases(options.only)]
    table = Table(HEADINGS, WIDTHS)
    answers: list[Answer] = []
    table.begin()
    started = time.monotonic()
    with open(options.out or "/dev/null", "w", encoding="utf-8") as out:

        def keep(answer: Answer) -> None:
            answers.append(answer)
            print(answer.to_line(), file=out, flush=True)
            table.add(*row(answer))
            for line in remarks(answer):
                print(f"    {line}", flush=True)

        run_jobs(jobs, devices(options.device), keep)
    text = summary([a.evaluation for a in answers if a.evaluation], len(jobs), time.monotonic() - started)
    print(f"\n{text}")
    if options.markdown:
        options.markdown.write_text(f"{table.markdown()}\n\n{text}\n", encoding="utf-8")
    return 0 if all(a.evaluation is not None and a.evaluation.accepted for a in answers) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--level", type=Level, default=Level.FULL, choices=list(Level))
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--out", type=Path, help="JSON lines, one evaluation each")
    parser.add_argument("--markdown", type=Path, help="the table and the summary as a page")
    parser.add_argument("--only", action="append", help="a case's name; may be repeated")
    return parser.parse_args()


def row(answer: Answer) -> tuple[str, ...]:
    evaluation = answer.evaluation
    if evaluation is None:
        return (answer.job, "ERROR", *["-"] * 8)
    seconds = f"{evaluation.seconds:.1f}"
    verdict = evaluation.verdict
    if isinstance(verdict, Rejected):
        return (answer.job, f"REJECTED at {verdict.refusal.gate.value}", *["-"] * 7, seconds)
    error = f"{verdict.correctness.relative_error:.1e}"
    measured = verdict.performance
    if not isinstance(measured, Measured):
        return (answer.job, "accepted", *["-"] * 6, error, seconds)
    share = verdict.provenance.own_share
    return (
        answer.job,
        "accepted",
        spread(measured.milliseconds, 4),
        *(spread(speedup(measured, name)) for name in ("eager", "compile", "reduce-overhead")),
        number(100 * measured.noise_floor),
        number(None if share is None else 100 * share, 0),
        error,
        seconds,
    )


def speedup(measured: Measured, name: str) -> Interval | None:
    return next((b.speedup for b in measured.baselines if b.name == name), None)


def remarks(answer: Answer) -> list[str]:
    """What a row has no room for: a refusal's evidence, an error, warnings."""
    if answer.error is not None:
        return [f"error: {answer.error}"]
    assert answer.evaluation is not None
    verdict = answer.evaluation.verdict
    refused = (
        [f"{verdict.refusal.reason}: {verdict.refusal.evidence}"] if isinstance(verdict, Rejected) else []
    )
    return [*refused, *(f"warning: {w}" for w in answer.evaluation.warnings)]


def summary(evaluations: list[Evaluation], asked: int, wall: float) -> str:
    accepted = [e.verdict for e in evaluations if isinstance(e.verdict, Accepted)]
    lines = [f"{len(accepted)} of {asked} accepted in {wall:.0f} s"]
    if evaluations:
        seconds = sorted(e.seconds for e in evaluations)
        lines.append(f"seconds per evaluation: median {median(seconds):.1f}, longest {seconds[-1]:.1f}")
    measured = [v.performance for v in accepted if isinstance(v.performance, Measured)]
    if measured:
        long = [m for m in measured if m.milliseconds.median > LONG_ENOUGH]
        quiet = sum(m.noise_floor <= QUIET for m in long)
        lines.append(
            f"noise floor at most {QUIET:.0%}: {quiet} of {len(long)} kernels above {LONG_ENOUGH} ms"
        )
        lines.append(
            f"faster than eager beyond the noise: {sum(m.faster for m in measured)} of {len(measured)}"
        )
        first = evaluations[0].machine
        lines.append(f"{first.gpu}, torch {first.torch}, triton {first.triton}, Python {first.python}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
