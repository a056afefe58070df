"""What the judge says of a candidate: a verdict, the evidence, and the terms it was judged under.

Illegal results cannot be built: an accepted candidate has a performance that is either
:class:`Measured` (and then a GPU measured it) or :class:`Compiled` (and then no time in it
is anything but predicted); a rejected one has exactly one :class:`Refusal`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from egg.core.codec import from_json, to_json
from egg.core.policy import Policy
from egg.core.resources import KernelResources

SCHEMA = "egg.evaluation/2"
READABLE = ("egg.evaluation/1", SCHEMA)
"""Version 1 called the contenders ``rivals``."""


class Gate(StrEnum):
    """The gates in the order a candidate meets them; the first refusal ends the evaluation."""

    PLAN = "plan"
    """Where a plan is recorded of the file and judged in its place."""
    STATIC = "static"
    BUILD = "build"
    PROVENANCE = "provenance"
    CORRECTNESS = "correctness"
    STATE = "state"
    DOMAIN = "domain"
    SANITIZER = "sanitizer"
    TIMING = "timing"
    CLOCK = "clock"
    PLAUSIBILITY = "plausibility"
    MEMORY = "memory"
    REGRADE = "regrade"
    INTERPRETER = "interpreter"


@dataclass(frozen=True)
class WrongPlaces:
    """Where in a wrong output the errors lie: NaN and Inf that must not be, else the large errors."""

    shape: tuple[int, ...]
    """Of the output, as it was run."""
    wrong: int
    """Elements that are wrong in this sense."""
    of: int
    first: tuple[int, ...]
    """Index of the first of them."""
    got: float
    expected: float
    """There."""
    along: tuple[str, ...] = ()
    """Dimensions of which only some indices hold errors, in words: ``dimension 1 (size 80): only the last
    index``. Empty where the errors are spread over the whole output."""


@dataclass(frozen=True)
class RefusalFacts:
    """What a refusal rests on, as values: programs decide by these and never by a sentence."""

    relative_error: float | None = None
    """Of an output that was too inaccurate: the rms of its error over the rms of the output."""
    excess: float | None = None
    """How many times the allowed error it has, in the worse of the two norms."""
    line: int | None = None
    """Of the file, where an exception was raised."""
    function: str = ""
    """The function of the file that this line is in."""
    functions: tuple[str, ...] = ()
    """Functions of the file, kernels among them, that the evidence names."""
    capturing: bool = False
    """Whether recording a CUDA graph failed."""
    own_size: bool = False
    """Whether it was seen at the task's own size, while another size was run."""
    places: WrongPlaces | None = None
    """Of a wrong output: where its errors lie."""


@dataclass(frozen=True)
class Refusal:
    """Why a candidate was refused: which gate, what was seen, what its author should look at.

    ``reason`` is a short stable code for programs (``static.import``, ``limits.timeout``,
    ``correctness.error``); ``evidence`` and ``hint`` are sentences for people.
    """

    gate: Gate
    reason: str
    evidence: str
    hint: str
    facts: RefusalFacts | None = None
    """``None`` in logs of versions that had only the sentences."""


@dataclass(frozen=True)
class GateRecord:
    """One gate that was passed (or met): how long it took and what it noted."""

    gate: Gate
    passed: bool
    seconds: float
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Interval:
    """A median with its 95% bootstrap interval."""

    median: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.median <= self.high:
            raise ValueError(f"not an interval: {self.low} <= {self.median} <= {self.high}")


@dataclass(frozen=True)
class Baseline:
    """One opponent, timed in the same session: its time and how much faster the candidate is."""

    name: str
    milliseconds: Interval
    speedup: Interval


@dataclass(frozen=True)
class Measured:
    """A performance that a GPU measured."""

    kind: ClassVar[str] = "measured"
    gpu: str
    milliseconds: Interval
    baselines: tuple[Baseline, ...]
    noise_floor: float
    """Relative spread of the candidate against itself (A/A): a gain inside it is not a gain."""
    wall_milliseconds: float
    """Per call on the oracle's own clock, launch overhead included."""
    wall_speedup: float
    """Over eager, on the oracle's own clock."""
    floor_milliseconds: float | None
    """Roofline floor at the declared precision; ``None`` where the GPU is not in the table."""
    faster: bool
    """Beyond the noise floor against eager, by the interval's lower end."""
    kernels: tuple[KernelResources, ...] = ()
    """Of the candidate's own kernels, as the GPU's compiler made them; empty where they were not read."""

    def __post_init__(self) -> None:
        if not self.gpu:
            raise ValueError("a time can only be measured by a GPU, and its name is missing")


@dataclass(frozen=True)
class Compiled:
    """What is known without a GPU: resources of every launch, and a predicted floor. No time was measured."""

    kind: ClassVar[str] = "compiled"
    target: str
    kernels: tuple[KernelResources, ...]
    predicted_floor_milliseconds: float | None
    shapes: str
    """``full`` or how the task was rescaled for the interpreter."""


@dataclass(frozen=True)
class Correctness:
    """The worst case over all checked inputs, in units of what is allowed."""

    checks: int
    worst_max_error: float
    """Largest ``max error / allowed max error``; at most 1."""
    worst_rms_error: float
    relative_error: float
    """Worst rms error relative to the output's rms, against the fp64 reference."""
    reference_error: float
    """The same for the reference itself under the declared precision."""
    kernelbench: bool
    """Whether KernelBench's own rule (allclose with eager, 1e-4 for fp32, 1e-2 for half) passes too.

    On the task's own inputs and weights, as KernelBench draws them."""
    eager_kernelbench: bool = True
    """Whether eager itself is that close to the exact result: where it is not, a miss says nothing."""
    eager_max_error: float = 0.0
    """Eager's largest distance from the exact result, on the same inputs."""
    yardstick: str = "fp64"
    """What stood for the exact result: an fp64 run, or what was taken where there is none."""


@dataclass(frozen=True)
class Provenance:
    """Which kernels really ran, and what was left to libraries."""

    kernels: Mapping[str, int]
    library_ops: Mapping[str, int]
    own_share: float | None
    """Own kernels' share of GPU time; ``None`` where it was not measured."""
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    """GPU time of each own kernel and each library operator (``aten.topk``) in one warm call, the longest
    first; empty where it was not measured. From the candidate's own process: no verdict rests on it."""


@dataclass(frozen=True)
class Tried:
    """One call beside the task's own, and what came of it."""

    what: str
    """What differed: ``x is 17 x 33``, ``negative_slope = 0.2``, ``eval mode``."""
    outcome: str
    """``right``, ``raised``, or ``skipped`` where it could not be judged."""
    inside: bool | None = None
    """Whether the file claims it; ``None`` where the file states no domain."""
    note: str = ""


@dataclass(frozen=True)
class Verified:
    """What a kernel file says that it is for, and what was tried of it."""

    domain: Mapping[str, Any] | None
    """The file's own statement, as the literal ``DOMAIN`` holds it, at level full without what was claimed
    and not tried; ``None`` where it makes none."""
    tried: tuple[Tried, ...] = ()
    gradients: str = ""
    """What becomes of gradients under grad mode, in words."""
    words: str = ""
    """All of it in one sentence for a person."""
    own_size: str = ""
    """Without a GPU, how much was run at the task's own size: ``whole``, ``as interpreted``, ``in part``, or
    ``not run:`` and why; then the verdict promises nothing there. Empty on a GPU, at level quick, and in
    older results."""


@dataclass(frozen=True)
class Accepted:
    kind: ClassVar[str] = "accepted"
    correctness: Correctness
    provenance: Provenance
    performance: Measured | Compiled
    domain: Verified | None = None
    """``None`` where calls beside the task's own were not tried."""


@dataclass(frozen=True)
class Rejected:
    kind: ClassVar[str] = "rejected"
    refusal: Refusal


@dataclass(frozen=True)
class Contender:
    """A file that was timed side by side with the candidate, unchecked: a rank, not a verdict."""

    candidate_hash: str
    milliseconds: Interval | None
    """``None`` where it did not run."""
    gain: Interval | None
    """How many times faster than the candidate, round by round."""
    reason: str = ""
    """Why it has no time."""

    def __post_init__(self) -> None:
        if (self.milliseconds is None) != (self.gain is None) or (self.gain is None) != bool(self.reason):
            raise ValueError("a contender has a time and a gain, or the reason why it has none")


@dataclass(frozen=True)
class Machine:
    """Where the evaluation ran."""

    device: str
    """``cuda`` or ``cpu``."""
    gpu: str
    """The GPU's name; empty on a machine without one."""
    python: str
    torch: str
    triton: str
    driver: str = ""
    """The CUDA version the driver speaks; empty without a GPU."""
    sandbox: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waited:
    """Seconds that an evaluation waited for other judges on its GPU, by what it waited for."""

    memory: float = 0.0
    """To be set aside for it."""
    quiet: float = 0.0
    """The GPU alone, to measure."""
    turn: float = 0.0
    """The GPU, while others measured or were about to."""

    @property
    def total(self) -> float:
        return self.memory + self.quiet + self.turn

    def __str__(self) -> str:
        parts = f"memory {self.memory:.1f} s, quiet {self.quiet:.1f} s, turn {self.turn:.1f} s"
        return f"{self.total:.1f} s of waiting for other judges ({parts})"

    def __add__(self, other: Waited) -> Waited:
        return Waited(self.memory + other.memory, self.quiet + other.quiet, self.turn + other.turn)


NOT_WAITED = Waited()


@dataclass(frozen=True)
class RecordedPlan:
    """The file that was judged in place of the author's: one call of it as straight-line data."""

    hash: str
    sha256: str
    source: str
    signatures: tuple[str, ...]
    """The calls that it holds, the task's own first."""
    kernels: tuple[str, ...]
    launches: int
    """Of the task's own call; so are the next two."""
    operators: int
    """Operators and functions of the library, views among them."""
    buffers: int
    """Tensors that it allocates."""
    alike: bool = True
    """Whether sizes explain all that differs between its calls."""
    branches: tuple[str, ...] = ()
    """Numbers that launches are handed at the task's own size and that sizes do not explain."""
    file: str = ""
    """Where it was written; empty where it was not."""


@dataclass(frozen=True)
class PlanAnswer:
    """A plan, or why there is none."""

    plan: RecordedPlan | None
    refusal: Refusal | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.plan is None) == (self.refusal is None):
            raise ValueError("there is a plan, or the reason why there is none")


@dataclass(frozen=True)
class Evaluation:
    """The judge's answer: everything needed to believe it, or to repeat it."""

    formerly: ClassVar[Mapping[str, str]] = {"rivals": "contenders"}
    task: str
    task_hash: str
    candidate: str
    candidate_hash: str
    policy: Policy
    machine: Machine
    verdict: Accepted | Rejected
    gates: tuple[GateRecord, ...]
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    """Without what it waited."""
    waited: Waited = NOT_WAITED
    contenders: tuple[Contender, ...] = ()
    """The files that were to be timed side by side with the candidate, in their order, where any were."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Where the question replaced what its level spends: the settings that differ, as they were."""
    task_sha256: str = ""
    """The task's whole hash, and the kernel's below: what the verdict is on. Empty in a record of an earlier
    version, which is a verdict on no file but the one it lies beside."""
    candidate_sha256: str = ""
    recorded: RecordedPlan | None = None
    """Under the policy ``host = recorded``: the plan, which is what every gate but ``plan`` judged."""
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        accepted = self.verdict if isinstance(self.verdict, Accepted) else None
        if accepted and isinstance(accepted.performance, Measured) and self.machine.device != "cuda":
            raise ValueError("a measured time cannot come from a machine without a GPU")

    @property
    def accepted(self) -> bool:
        return isinstance(self.verdict, Accepted)

    @property
    def checked(self) -> bool:
        """Accepted, and its outputs were compared: an evaluation may have been asked to stop at compiling."""
        return isinstance(self.verdict, Accepted) and self.verdict.correctness.checks > 0

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Evaluation:
        if data.get("schema") not in READABLE:
            raise ValueError(f"expected schema {SCHEMA!r}, found {data.get('schema')!r}")
        return from_json(cls, {**data, "schema": SCHEMA})
