"""What is known of a program, and seen of a kernel: facts, profile and diagnosis joined in one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from egg.analysis.calibrated import calibrated
from egg.analysis.diagnose import diagnose
from egg.analysis.predict import FITTED, Constants
from egg.api import apart
from egg.core.bottleneck import Diagnosed
from egg.core.codec import from_json, to_json
from egg.core.errors import TaskError, UsageError
from egg.core.facts import GpuFacts, ProgramFacts, Workload
from egg.core.policy import Precision
from egg.core.profile import Profile
from egg.core.source import Candidate, Task
from egg.core.stage import Stage
from egg.hardware import calibration
from egg.hardware.gpus import Gpu

if TYPE_CHECKING:
    from egg.evaluator.profiling.ladder import Place

SCHEMA = "egg.profile-report/1"


@dataclass(frozen=True)
class Failure:
    """Why a kernel could not be looked at: it is the kernel's fault, and these are its words."""

    reason: str
    evidence: str
    hint: str = ""


@dataclass(frozen=True)
class ProfileReport:
    """All that ``egg profile`` says. What is ``None`` was not asked for, or could not be had."""

    task: str
    candidate: str | None
    precision: Precision
    gpu: GpuFacts
    """The target, with the task's floor on it and what fusion could save; predicted, both."""
    row: Gpu
    """All that is known of the target: its row of the table, or one derived from what its driver says."""
    facts: ProgramFacts | None
    """One forward, added up."""
    workload: Workload | None
    """The same, tensor by tensor and operation by operation."""
    unknown: str
    """Why there are no facts; empty where there are."""
    profile: Profile | None
    diagnosis: Diagnosed | None
    failure: Failure | None
    calibrated: str = ""
    """When the rates that corrected the predictions were measured; empty where none were."""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if (self.facts is None) != bool(self.unknown) or (self.facts is None) != (self.workload is None):
            raise ValueError("there are facts with the workload behind them, or a reason why there are none")
        if (self.profile is None) != (self.diagnosis is None):
            raise ValueError("a profile comes with its diagnosis")
        if (self.candidate is not None) != ((self.profile is None) != (self.failure is None)):
            raise ValueError("a kernel has a profile or a failure, and nothing else has")

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProfileReport:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA!r}, found {data.get('schema')!r}")
        return from_json(cls, data)


@dataclass(frozen=True)
class ProfileOptions:
    """What is asked of a profile."""

    device: str = "auto"
    target: str | None = None
    precision: Precision = Precision.MATCH
    counters: bool = True
    stage: Stage | None = None
    calibrations: Path | None = None
    """The folder of the user's calibrations; without one, predictions are the table's and the model's."""


def report_on(task: Task, candidate: Candidate | None, options: ProfileOptions) -> ProfileReport:
    """The facts of ``task``, and, where there is a ``candidate``, its profile and what holds it back.

    A task that cannot be traced without data is an error when only its facts were asked for. A
    kernel can be looked at all the same: only its distance to the floor is then not known.
    """
    from egg.evaluator.profiling.ladder import place_of
    from egg.evaluator.task.facts import gpu_facts

    gpu = _row(place_of(options.device, options.target))
    measured = calibration.load(gpu.name, options.calibrations) if options.calibrations else None
    constants = calibrated(gpu, measured) if measured else FITTED
    facts, work, unknown = _facts(task, needed=candidate is None)
    target = gpu_facts(gpu, options.precision, facts, work)
    profile, failure = None, None
    if candidate is not None:
        profile, failure = _profile(task, candidate, options, target.floor_milliseconds, constants)
    return ProfileReport(
        task=task.name,
        candidate=candidate.name if candidate is not None else None,
        precision=options.precision,
        gpu=target,
        row=gpu,
        facts=facts,
        workload=work,
        unknown=unknown,
        profile=profile,
        diagnosis=diagnose(profile, gpu, floor_milliseconds=target.floor_milliseconds, constants=constants)
        if profile
        else None,
        failure=failure,
        calibrated=measured.when if measured else "",
    )


def _row(place: Place) -> Gpu:
    if place.gpu is None:
        raise UsageError(
            f"the GPU {place.name!r} is not in the table, nor is its architecture",
            "name the nearest one with --target: predicted",
        )
    return place.gpu


def _facts(task: Task, *, needed: bool) -> tuple[ProgramFacts | None, Workload | None, str]:
    """What the task does; unless ``needed``, why that is not known counts as an answer.

    A task that does not even load is an error in any case.
    """
    apart.check_loads(task)
    try:
        facts, workload = apart.seen(task)
    except TaskError as error:
        if needed:
            raise
        return None, None, error.message
    return facts, workload, ""


def _profile(
    task: Task, candidate: Candidate, options: ProfileOptions, floor: float | None, constants: Constants
) -> tuple[Profile | None, Failure | None]:
    from egg.evaluator.profiling.ladder import CannotRun, profile

    try:
        seen = profile(
            task,
            candidate,
            device=options.device,
            target=options.target,
            precision=options.precision,
            counters=options.counters,
            stage=options.stage,
            floor_milliseconds=floor,
            constants=constants,
        )
    except CannotRun as error:
        return None, Failure(error.reason, error.evidence, error.hint)
    return seen, None
