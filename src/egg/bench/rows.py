"""A row: how one task of a bench ended, with everything that scores, tables and comparisons need.

A row holds figures and short reasons, never source text or logs: the run's folder has those. Its verdict
decides what else there is: only an accepted kernel can have times, and it has them only where a GPU
measured them. A machine that could not do its job is not the same as a kernel that failed: both count as
wrong in a score, but the first is worth another try.

Speedups come against several opponents, at two precisions. *Matched* opponents ran under the bench's own
policy, and are the honest comparison. *Default* ones ran under PyTorch's defaults, as in papers; where the
policy is ``match`` the two are the same, and only the first are measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from egg import __version__
from egg.bench.families import WholeFamily, WorkFamily
from egg.bench.figures import LargestResources, StepOutcome, Structure
from egg.bench.listing import key_of
from egg.core.codec import from_json, to_json
from egg.core.errors import UsageError
from egg.core.evaluation import NOT_WAITED, Gate, Interval, Waited
from egg.core.policy import Policy, Precision
from egg.core.source import Task

SCHEMA = "egg.bench-row/1"
BEST = "best"
"""Stands for the fastest of all opponents, whichever that is for a task."""
TROUBLE = "trouble"
"""The note of a row whose search a fault of this program ended."""


class Basis(StrEnum):
    """The precision an opponent ran at."""

    MATCHED = "matched"
    DEFAULT = "default"


@dataclass(frozen=True)
class Opponent:
    """One baseline, timed in the same session as the candidate."""

    name: str
    """``eager``, ``compile``, ``reduce-overhead``."""
    basis: Basis
    milliseconds: Interval
    speedup: Interval
    """Of the candidate over it."""
    rounds: tuple[float, ...] = ()
    """Its milliseconds in each round, in the order of the candidate's; empty where they were not kept."""

    def __post_init__(self) -> None:
        _check_positive(self.milliseconds.low, self.milliseconds.high, *self.rounds)
        _check_positive(self.speedup.low, self.speedup.high)


@dataclass(frozen=True)
class Timing:
    """What a GPU measured."""

    gpu: str
    milliseconds: Interval
    opponents: tuple[Opponent, ...]
    noise_floor: float
    rounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.gpu:
            raise ValueError("a time can only be measured by a GPU, and its name is missing")
        _check_positive(self.milliseconds.low, self.milliseconds.high, *self.rounds)
        names = [(opponent.name, opponent.basis) for opponent in self.opponents]
        if len(set(names)) != len(names):
            raise ValueError(f"an opponent was timed twice: {names}")
        if any(len(opponent.rounds) not in (0, len(self.rounds)) for opponent in self.opponents):
            raise ValueError("candidate and opponents take turns: they have as many rounds")


def _check_positive(*measured: float) -> None:
    if not all(0 < value < math.inf for value in measured):
        raise ValueError(f"times and speedups are positive and finite: {measured}")


@dataclass(frozen=True)
class Passed:
    """A kernel that passed every gate."""

    kind: ClassVar[str] = "accepted"
    kernel: str
    """Hash of the file."""
    own_share: float | None
    """Own kernels' share of GPU time; ``None`` where it was not measured."""
    library_ops: Mapping[str, int]
    launches: int
    relative_error: float
    reference_error: float
    kernelbench: bool | None
    """Whether KernelBench's own rule for correctness holds, too; ``None`` where it was not checked."""
    timing: Timing | None
    """``None`` where no GPU measured it."""
    floor_milliseconds: float | None = None
    """Roofline floor at the declared precision; ``None`` where it is not known."""
    predicted_milliseconds: float | None = None
    """What the model makes of its kernels, measured or not; ``None`` where it knows nothing of them."""
    limiter: str = ""
    """What holds it back, as :class:`~egg.core.bottleneck.Limiter` names it."""
    diagnosis: str = ""
    """The same in a line, with what is left to libraries; empty in rows of older versions."""
    structure: Structure | None = None
    """``None`` where no run wrote the kernel, or an older version the row."""
    resources: LargestResources | None = None
    """``None`` where the compiler's figures were not read."""
    checks: int = 0
    """Answers that were compared; 0 in rows of older versions."""
    gates: tuple[Gate, ...] = ()
    """The gates it passed, in their order."""


@dataclass(frozen=True)
class Refused:
    """A kernel that did not pass: the gate that refused it, and why."""

    kind: ClassVar[str] = "refused"
    kernel: str
    gate: Gate
    reason: str
    """Short and stable: ``correctness.error``."""
    evidence: str = ""


@dataclass(frozen=True)
class NoKernel:
    """Nothing was there to judge."""

    kind: ClassVar[str] = "no kernel"
    reason: str


@dataclass(frozen=True)
class Unable:
    """The machine, or this program, is to blame: worth another try."""

    kind: ClassVar[str] = "unable"
    reason: str


Verdict = Passed | Refused | NoKernel | Unable


@dataclass(frozen=True)
class Spent:
    """What the task took, failed attempts included."""

    input_tokens: int = 0
    output_tokens: int = 0
    money: float = 0.0
    """US dollars, of the calls whose price is known."""
    unpriced_calls: int = 0
    evaluations: int = 0
    gpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    final_seconds: float = 0.0
    """Of the wall time: the last evaluation, where the row needed one of its own."""
    waited: Waited = NOT_WAITED
    """Seconds for other judges on the same GPU; not in ``gpu_seconds``."""

    def __post_init__(self) -> None:
        spent = {**vars(self), **vars(self.waited)}
        if not all(spent[name] >= 0 for name in spent if name != "waited"):
            raise ValueError(f"nothing can have been spent below zero: {self}")

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True)
class Row:
    """One task's end."""

    key: str
    """What it goes by in its suite: ``level/problem``, or its name."""
    name: str
    task: str
    """The name of its source: 16 digits of its hash."""
    level: int | None
    problem: int | None
    family: WorkFamily
    verdict: Verdict
    policy: Policy
    degenerate: bool | None = None
    """Whether trivial answers pass the task itself; ``None`` where it was not audited."""
    kernelbench_flags: tuple[str, ...] | None = None
    """Rules of KernelBench's static check for which it calls the kernel not valid; ``None`` where there is no
    kernel, or the row was written before they were checked."""
    spent: Spent = field(default_factory=Spent)
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of this package, Python, PyTorch, Triton and the driver, and the GPU's name; what was not met is left
    out."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """How the kernel was sought: team, budget, model, seed."""
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    """Of every file that was refused on the way, as ``gate: reason``."""
    steps: tuple[StepOutcome, ...] = ()
    """What the steps after the first kernel came to."""
    run: str = ""
    """Where the run that made it is kept, relative to the bench; empty without one."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else a table or page of this bench is to show: values that JSON holds."""
    task_sha256: str = ""
    """The whole hash of the task's source, and of the kernel that was judged: what the row is on. Empty where
    an earlier version wrote it, or there is no kernel."""
    kernel_sha256: str = ""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if not self.key or not self.name:
            raise ValueError("a row belongs to a task, and a task has a key and a name")

    @property
    def accepted(self) -> bool:
        return isinstance(self.verdict, Passed)

    @property
    def kernelbench(self) -> bool | None:
        """Whether KernelBench's own comparison passes; ``None`` where that is not known."""
        return self.verdict.kernelbench if isinstance(self.verdict, Passed) else None

    @property
    def kernelbench_static(self) -> bool | None:
        """Whether KernelBench's own static check passes; ``None`` where it is not known."""
        return None if self.kernelbench_flags is None else not self.kernelbench_flags

    @property
    def cut_short(self) -> bool:
        """Whether another try may come to something else: the machine, or a fault, ended this one."""
        return isinstance(self.verdict, Unable) or TROUBLE in self.notes

    @property
    def timing(self) -> Timing | None:
        return self.verdict.timing if isinstance(self.verdict, Passed) else None

    @property
    def kernel(self) -> str | None:
        """Hash of the kernel that was judged."""
        return self.verdict.kernel if isinstance(self.verdict, Passed | Refused) else None

    def opponent(self, name: str, basis: Basis = Basis.MATCHED) -> Opponent | None:
        """The opponent of that name, or the fastest for :data:`BEST`; ``None`` where it was not timed."""
        if self.policy.precision is Precision.MATCH:
            basis = Basis.MATCHED
        timing = self.timing
        found = [o for o in timing.opponents if o.basis is basis] if timing is not None else []
        if name == BEST:
            return min(found, key=lambda o: (o.speedup.median, o.name), default=None)
        return next((o for o in found if o.name == name), None)

    def speedup(self, opponent: str, basis: Basis = Basis.MATCHED) -> Interval | None:
        found = self.opponent(opponent, basis)
        return found.speedup if found is not None else None

    def faster_than(self, opponent: str, basis: Basis = Basis.MATCHED) -> bool:
        """Beyond the noise: the lower end of the speedup is above one plus the noise floor."""
        found, timing = self.speedup(opponent, basis), self.timing
        return found is not None and timing is not None and found.low > 1.0 + timing.noise_floor

    def faster_than_all(self, basis: Basis = Basis.MATCHED) -> bool | None:
        """Beyond the noise faster than every opponent; ``None`` where none was timed."""
        timing = self.timing
        names = [o.name for o in timing.opponents if o.basis is basis] if timing is not None else []
        return all(self.faster_than(name, basis) for name in names) if names else None

    def to_line(self) -> str:
        """JSON, the schema first, so that a torn line is known by how it begins."""
        data = to_json(self)
        return json.dumps({"schema": data.pop("schema"), **data}, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Row:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA!r}, found {data.get('schema')!r}")
        row: Row = from_json(cls, dict(data))
        if not all(isinstance(text, str) for text in (row.key, row.name, row.task)):
            raise ValueError("key, name and task are texts")
        return row


def row_of(
    task: Task,
    verdict: Verdict,
    policy: Policy,
    *,
    family: WorkFamily = WholeFamily.UNKNOWN,
    spent: Spent | None = None,
    settings: Mapping[str, str] | None = None,
    run: str = "",
    notes: Mapping[str, Any] | None = None,
) -> Row:
    """The row of a task that ended in ``verdict``, with what is known where no judge looked at a kernel."""
    return Row(
        key=key_of(task),
        name=task.name,
        task=task.hash,
        task_sha256=task.sha256,
        level=task.level,
        problem=task.problem_id,
        family=family,
        verdict=verdict,
        policy=policy,
        spent=spent or Spent(),
        versions={"egg": __version__},
        settings=settings or {},
        run=run,
        notes=notes or {},
    )


def complete(rows: Iterable[Row], tasks: Sequence[Task]) -> list[Row]:
    """One row for each of ``tasks``, in their order: the last there is, or one that says there is none.

    So a score over the result counts what is missing as wrong. A row of another task, or of another version
    of a task, belongs to another bench, and is refused rather than dropped.
    """
    found = latest(rows)
    known = {key_of(task): task for task in tasks}
    strange = [key for key, row in found.items() if key not in known or known[key].hash != row.task]
    if strange:
        raise UsageError(
            f"rows of tasks that are not in this suite: {', '.join(strange[:5])}",
            "score them with the suite, levels and ids that they were made with",
        )
    policy = next((row.policy for row in found.values()), Policy())
    nothing = NoKernel("no row: the bench did not come to it")
    return [found.get(key) or row_of(task, nothing, policy) for key, task in known.items()]


def latest(rows: Iterable[Row]) -> dict[str, Row]:
    """The last row of each task, in the order in which tasks first appear."""
    return {row.key: row for row in rows}
