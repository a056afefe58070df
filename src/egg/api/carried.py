"""Evaluations that were made on another machine and carried back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from egg.core.errors import UsageError
from egg.core.evaluation import Accepted, Evaluation, Gate, Interval, Measured
from egg.core.facts import Facts
from egg.core.lines import text_lines
from egg.core.policy import Precision
from egg.engine.waiting import WaitingForEvaluations
from egg.evaluator.judge.answers import mismatch, unsupported
from egg.evaluator.judge.pool import Job
from egg.evaluator.judge.signing import fault_of
from egg.evaluator.trial.levels import Probes
from egg.hardware.gpus import find


@dataclass(frozen=True)
class Results:
    """A results file: verdicts by job, and the errors of the jobs that got none."""

    verdicts: Mapping[str, Evaluation]
    failures: Mapping[str, str]
    unsigned: Mapping[str, str] = field(default_factory=dict)
    """Why verdicts cannot be believed to be from a machine of ours, by job, where a key is set."""


def read_results(path: Path, key: bytes | None = None) -> Results:
    """What ``egg eval-batch`` wrote.

    The last verdict on a job counts: a batch that was run again has later ones, and a job that
    failed in one go and was judged in another has a verdict only. A torn last line is what an
    interrupted batch leaves, and no damage; one that is whole but for its newline is read.
    With a ``key``, verdicts must be signed with it (:mod:`egg.evaluator.judge.signing`).
    """
    verdicts: dict[str, Evaluation] = {}
    unsigned: dict[str, str] = {}
    failures: dict[str, str] = {}
    lines = text_lines(path, "make it with `egg eval-batch JOBS --out FILE`")
    ended = path.read_bytes().endswith(b"\n")
    for at, (number, line) in enumerate(lines, 1):
        torn = at == len(lines) and not ended and not _is_json(line)
        if torn:
            continue
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError("it is no JSON object")
            if "evaluation" in row:
                verdicts[str(row["job"])] = Evaluation.from_json(row["evaluation"])
                unsigned[str(row["job"])] = fault_of(row, key)
            elif row.get("job") is not None:
                failures[str(row["job"])] = _message(row.get("error"))
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as reason:
            raise UsageError(
                f"{path} line {number} is not a result: {reason}", "it must come from `egg eval-batch`"
            ) from None
    without = {job: message for job, message in failures.items() if job not in verdicts}
    return Results(verdicts, without, {job: fault for job, fault in unsigned.items() if fault})


def _message(error: object) -> str:
    return str(error.get("message", "")) if isinstance(error, dict) else ""


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


class CarriedJudge:
    """Hands out carried verdicts; what is still missing the run goes on waiting for."""

    def __init__(self, results: Results, facts: Facts) -> None:
        self._results = results.verdicts
        self._unsigned = results.unsigned
        self._facts = facts
        self.used: set[str] = set()

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        for job in jobs:
            if job.id in self._results:
                fault = self._unsigned.get(job.id) or ""
                check_carried(job, self._results[job.id], self._facts, fault)
                self.used.add(job.id)
                yield job.id, self._results[job.id]
        missing = tuple(job for job in jobs if job.id not in self._results)
        if missing:
            raise WaitingForEvaluations(missing)


SHORTEST_MILLISECONDS = 5e-4
"""Half a microsecond: no kernel is launched, run and ended in less."""
BYTE_MARGIN = 0.85
"""As the judge's own gate has it: caches hold part of what was written last."""
PARTIAL = ("embedding", "index", "gather", "take", "select", "slice", "narrow", "unfold", "as_strided")
"""Operators beside which not every byte of the inputs is read."""


def check_carried(job: Job, evaluation: Evaluation, facts: Facts, fault: str = "") -> None:
    """A verdict from elsewhere must be on what was asked, from a machine of the run's kind, and possible.

    ``fault`` is what its signature lacks. Numbers in a file prove nothing: where a key is set, the signature
    says which machine they are from, and everything else here only keeps mistakes out.
    """
    other = mismatch(job.question, evaluation)
    if other is not None:
        raise UsageError(
            f"the result of job {job.id} is for another {other.what}: {other.found}, not {other.asked}",
            "judge the jobs that `egg pending` wrote, unchanged",
        )
    why = fault or _elsewhere(evaluation, facts) or _unsupported(job, evaluation)
    if why := why or _impossible(evaluation, facts):
        raise UsageError(
            f"the result of job {job.id} is refused: {why}",
            "judge the jobs with `egg eval-batch` on the machine that the run is for; nothing was recorded",
        )


def _elsewhere(evaluation: Evaluation, facts: Facts) -> str:
    """Whether another kind of machine judged than the run is for."""
    target, machine = facts.gpu.name, evaluation.machine
    if machine.device != "cuda" or not machine.gpu:
        return f"it was judged without a GPU, and the run is for {target}"
    known, wanted = find(machine.gpu), find(target)
    if machine.gpu != target and (known is None or wanted is None or known.name != wanted.name):
        return f"it was judged on {machine.gpu!r}, and the run is for {target}"
    verdict = evaluation.verdict
    if isinstance(verdict, Accepted) and isinstance(verdict.performance, Measured):
        named = verdict.performance.gpu
        return f"its time is of {named!r}, its machine has {machine.gpu!r}" if named != machine.gpu else ""
    return ""


def _unsupported(job: Job, evaluation: Evaluation) -> str:
    """Whether the gates on record do not carry the verdict at the level that was asked for."""
    asked, verdict = job.question, evaluation.verdict
    if not evaluation.gates:
        return "it names no gate that was passed or met"
    if asked.contenders or not isinstance(verdict, Accepted):
        return ""
    lacks = unsupported(evaluation, asked.skip)
    if lacks or asked.skip:
        return lacks
    settings = asked.level_settings
    needed = [Gate.TIMING, Gate.CLOCK, Gate.PLAUSIBILITY]
    needed += [Gate.DOMAIN] if settings.domain is not Probes.NONE else []
    needed += [Gate.MEMORY] if settings.fence else []
    needed += [Gate.REGRADE] if settings.regrades else []
    needed += [Gate.INTERPRETER] if settings.interpreted else []
    passed = {record.gate for record in evaluation.gates if record.passed}
    missing = [gate.value for gate in needed if gate not in passed]
    if missing:
        return f"it accepts at level {asked.policy.level.value} without having passed {', '.join(missing)}"
    return "" if isinstance(verdict.performance, Measured) else "it accepts without a measured time"


def _impossible(evaluation: Evaluation, facts: Facts) -> str:
    """Whether a time in it is shorter than anything takes, or than the run's own floor of memory traffic."""
    verdict = evaluation.verdict
    times: list[Interval] = [found.milliseconds for found in evaluation.contenders if found.milliseconds]
    if isinstance(verdict, Accepted) and isinstance(verdict.performance, Measured):
        times.append(verdict.performance.milliseconds)
    if not times:
        return ""
    fastest = min(time.median for time in times)
    if not fastest >= SHORTEST_MILLISECONDS:
        return f"{fastest:g} ms is shorter than any launch of a kernel"
    floor = _byte_floor(facts, evaluation.policy.precision)
    if fastest < BYTE_MARGIN * floor:
        return f"{fastest:g} ms is below the floor of {floor:.4g} ms that reading and writing once takes"
    return ""


def _byte_floor(facts: Facts, precision: Precision) -> float:
    """Milliseconds; 0 where it is not known what must be read. A 16-bit policy halves what fp32 takes."""
    program = facts.program
    names = () if program is None else (line.partition(" ")[0] for line in program.operations)
    if program is None or any(part in name for name in names for part in PARTIAL):
        return 0.0
    narrowed = 2 if precision in (Precision.BF16, Precision.FP16) else 1
    return program.least_bytes / narrowed / facts.gpu.bandwidth * 1e3
