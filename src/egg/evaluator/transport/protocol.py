"""What the judge may ask of a worker, and what a worker answers: one class for each request and each reply.

A request goes from the trusted side to the untrusted one and is read by :func:`request_from`. A reply is
hostile input: the candidate runs in the process that writes it. :func:`reply_to` reads it strictly, and what
is not exactly of the request's reply class is :class:`~egg.evaluator.transport.strict.Malformed`.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from egg.core.codec import from_json
from egg.core.resources import KernelResources
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.strict import AnyNumber, Finite, Integer, Sizes, plain, strictly

Reply = TypeVar("Reply")
Json = Any
"""Structures that the judge makes and a worker hands on: moves of inputs, numbers of launches."""

REQUESTS: dict[str, type[Request[Any]]] = {}


class Request(Generic[Reply]):
    """A request; its parameter is the class of the reply."""

    command: ClassVar[str]
    replies: ClassVar[Any]
    keep_cache = False
    """Whether what PyTorch cached stays: the next turn under the clock must not begin with allocations."""

    def __init_subclass__(cls, command: str) -> None:
        cls.command = command
        cls.replies = typing.get_args(cls.__orig_bases__[0])[0]  # type: ignore[attr-defined]
        REQUESTS[command] = cls

    def message(self) -> dict[str, Json]:
        """As it goes over the wire."""
        return {"command": self.command, "arguments": plain(self)}


def request_from(message: Mapping[str, Json]) -> Request[Any]:
    """What the judge asked; its messages are trusted."""
    return from_json(REQUESTS[message["command"]], message["arguments"])


def reply_to(request: Request[Reply], data: Json) -> Reply:
    """The reply to ``request``, or :class:`Malformed`."""
    return strictly(type(request).replies, data, request.command)


@dataclass(frozen=True)
class Done:
    """Nothing to report."""


@dataclass(frozen=True)
class Complaint:
    """What went wrong in the worker: a reason code, what was seen, and where in the candidate's file."""

    reason: str
    evidence: str
    line: int | None = None
    function: str = ""
    capturing: bool = False
    """Whether a CUDA graph was being recorded."""


# -- the process and its memory -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Warm(Request[Done], command="warm"):
    """Touch the device and watch launches, before there is a candidate."""

    device: str
    watch: bool
    memory_fraction: float | None = None
    fence: bool = False


@dataclass(frozen=True)
class Health:
    healthy: bool


@dataclass(frozen=True)
class Canary(Request[Health], command="canary"):
    """Prove that this machine still runs a kernel and gets it right."""


@dataclass(frozen=True)
class FenceReport:
    unavailable: str
    """Why there is no fence, where there is none."""
    failed: str
    damaged: tuple[str, ...]


@dataclass(frozen=True)
class Fence(Request[FenceReport], command="fence"):
    """Lay everything that follows out in another way, and report what was noticed."""

    arrangement: str


@dataclass(frozen=True)
class Attach(Request[Done], command="attach"):
    """Open the judge's memory; a ``second`` one beside the first."""

    handle: Json
    second: bool = False


@dataclass(frozen=True)
class Detach(Request[Done], command="detach"):
    """Leave the second memory."""


@dataclass(frozen=True)
class Patched:
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Integrity(Request[Patched], command="integrity"):
    """Name what the candidate patched in its process."""

    keep_cache: bool = True


# -- the candidate's instance -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TensorForm:
    shape: Sizes
    dtype: str


@dataclass(frozen=True)
class Built:
    """What an instance holds."""

    state: Mapping[str, TensorForm]
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Load(Request[Built], command="load"):
    """Import the candidate and build ``ModelNew``.

    Without ``build`` both are left to the capture: a file may ask for the GPU when it is imported.
    """

    source: str
    init: str
    seed: int
    precision: str
    target: Json = None
    restricted: bool = False
    build: bool = True


@dataclass(frozen=True)
class Fresh(Request[Built], command="fresh"):
    """A new instance with the weights last loaded; or with other arguments or dtype, and its own weights."""

    init: str | None = None
    precision: str | None = None


@dataclass(frozen=True)
class Weights(Request[Done], command="weights"):
    """Load weights: by the candidate's name, the reference's name; by the reference's name, the slot."""

    names: Mapping[str, str]
    slots: Mapping[str, Slot]


@dataclass(frozen=True)
class State(Request[Done], command="state"):
    """Copy parameters and buffers out."""

    names: Mapping[str, str]
    slots: Mapping[str, Slot]


@dataclass(frozen=True)
class Ranked:
    unfit: tuple[str, ...]
    """For each file why it does not run, empty where it does."""


@dataclass(frozen=True)
class Contenders(Request[Ranked], command="contenders"):
    """Load other files beside the candidate, with its weights, and let each run once."""

    sources: tuple[str | None, ...]
    inputs: str
    slots: tuple[Slot, ...]
    seed: int
    threads: int


# -- calls --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """Work of operators, as :class:`~egg.evaluator.operators.spent.Work` counts it."""

    products: float
    others: float
    moved: float


@dataclass(frozen=True)
class Sketched:
    """A sketch of a tensor, as :class:`~egg.evaluator.operators.sketches.Sketch` makes it."""

    numel: int
    total: Finite
    norm: Finite
    moments: tuple[Finite, ...]
    samples: tuple[AnyNumber, ...]


@dataclass(frozen=True)
class OutputForm:
    """One output: a tensor by its form, or a plain number."""

    path: str
    type: str
    shape: Sizes | None = None
    dtype: str | None = None
    device: str | None = None
    layout: str | None = None
    stride: Sizes | None = None
    storage: Integer | None = None
    number: AnyNumber | None = None


@dataclass(frozen=True)
class Record:
    """What one call ran."""

    ops: Mapping[str, int]
    moves: Mapping[str, int]
    copies: Mapping[str, int]
    reads: Mapping[str, int]
    """Values that the host read, by kind."""
    launches: Mapping[str, int]
    before: Spent
    """By operators that ran before the last launch of an own kernel."""
    work: Spent
    """By all operators."""


@dataclass(frozen=True)
class Forwarded:
    record: Record
    outputs: tuple[OutputForm, ...]
    aliases: tuple[tuple[str, str], ...]
    """Outputs, each with what it shares its memory with."""
    launched: Mapping[str, int]
    threads: int
    sketches: tuple[Sketched, ...]
    moved: tuple[Sketched, ...]


@dataclass(frozen=True)
class CallSet:
    """Where the inputs of a call lie, and where its outputs go."""

    inputs: str
    slots: tuple[Slot, ...]
    outputs: tuple[Slot | None, ...]


@dataclass(frozen=True)
class SketchTerms:
    """Where tensors are sampled: the same places on both sides."""

    seed: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Options:
    """How a forward is run.

    While it is ``traced``, memory it allocates holds NaN (``poison``) or zeros: a file that reads from fresh
    memory whether it is watched is wrong about one of the two. ``native``: what the language leaves
    undefined is answered as by the CPU that ran the reference.
    """

    traced: bool = False
    poison: bool = True
    skip: tuple[str, ...] = ()
    """Kernels that are not run."""
    keep: bool = False
    """Hold the outputs for a :class:`Recheck`."""
    training: bool | None = None
    propagate: bool = False
    native: bool = False
    lot: int | None = None
    """A seed: programs of a launch run in an order drawn with it."""
    sketch: SketchTerms | None = None


@dataclass(frozen=True)
class Forward(Request[Forwarded], command="forward"):
    """One forward; its outputs are described, and copied where they fit."""

    call: CallSet
    seed: int
    options: Options = field(default_factory=Options)


@dataclass(frozen=True)
class Delivered:
    outputs: tuple[OutputForm, ...]


@dataclass(frozen=True)
class Recheck(Request[Delivered], command="recheck"):
    """Copy out again, for the last time, what a forward kept."""

    outputs: tuple[Slot | None, ...]


@dataclass(frozen=True)
class Held(Request[Delivered], command="held"):
    """Copy out again what call ``number`` of those that were kept returned."""

    number: int
    outputs: tuple[Slot | None, ...]


@dataclass(frozen=True)
class Dropped:
    shared: tuple[tuple[int, int], ...]
    """Pairs of calls whose outputs lie in the same memory."""
    within: tuple[tuple[int, tuple[tuple[str, str], ...]], ...]
    """Calls, each with its outputs that share memory."""


@dataclass(frozen=True)
class Drop(Request[Dropped], command="drop"):
    """Let go of everything held."""


@dataclass(frozen=True)
class Session:
    """Calls in a row that rotate over input sets, one for each entry of ``moves``.

    Before each call its inputs get new values out of the ``reserve`` and the generator its seed, if any.
    """

    sets: tuple[CallSet, ...]
    moves: Json
    reserve: tuple[tuple[Slot, ...], ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Calls(Request[Done], command="calls"):
    """Run a session; every output is delivered, those of the first ``keep`` calls are held as well."""

    session: Session
    keep: int = 0
    keep_cache: bool = False


@dataclass(frozen=True)
class Timed:
    milliseconds: tuple[Finite, ...]


@dataclass(frozen=True)
class Time(Request[Timed], command="time"):
    """Time the calls of a session, of the candidate or of a contender; deliver the output of one of them."""

    session: Session
    recheck: int
    outputs: tuple[Slot | None, ...]
    contender: int | None = None
    keep_cache: bool = False


@dataclass(frozen=True)
class Observed:
    record: Record
    kinds: tuple[str, ...]
    """Of the outputs: ``Tensor``, or what is wrong with one."""


@dataclass(frozen=True)
class Observation:
    calls: tuple[Observed, ...]


@dataclass(frozen=True)
class Observe(Request[Observation], command="observe"):
    """The calls of a session, each recorded."""

    session: Session


@dataclass(frozen=True)
class Backward:
    requires: tuple[bool, ...]
    error: str
    given: tuple[str, ...]


@dataclass(frozen=True)
class Gradients(Request[Backward], command="gradients"):
    """Forward and backward under grad mode; gradients are copied where they belong."""

    inputs: str
    slots: tuple[Slot, ...]
    gradients: Mapping[str, Slot]
    seed: int


# -- in the interpreter -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Excerpted:
    without: str = ""
    """Why nothing can be concluded, where nothing can."""
    launches: tuple[tuple[str, int, int], ...] = ()
    """Kernels, how many programs each has, and how many ran."""
    whole: bool = False
    outputs: tuple[OutputForm, ...] = ()


@dataclass(frozen=True)
class Excerpt(Request[Excerpted], command="excerpt"):
    """One forward in which long launches run some of their programs; what those wrote is marked."""

    call: CallSet
    masks: tuple[Slot | None, ...]
    seed: int


Numbers = tuple[tuple[str, str], ...]
"""Names of a launch's arguments, each with its value."""


@dataclass(frozen=True)
class Launches:
    """Kernels with the numbers they are launched with; or why those are not known."""

    launches: tuple[tuple[str, Numbers], ...] = ()
    unsupported: str = ""


@dataclass(frozen=True)
class Asked(Request[Launches], command="asked"):
    """With which numbers kernels were launched so far, in the interpreter."""


@dataclass(frozen=True)
class Configurations:
    most: int
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Configure(Request[Configurations], command="configure"):
    """Which of its configurations every autotuner is to take; on a GPU it measures and takes its own."""

    place: int


# -- kernels ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Watch(Request[Done], command="watch"):
    """Note every kernel that one warm call launches."""

    inputs: str
    slots: tuple[Slot, ...]
    seed: int


@dataclass(frozen=True)
class KernelRows:
    kernels: tuple[KernelResources, ...]
    unread: int


@dataclass(frozen=True)
class Kernels(Request[KernelRows], command="kernels"):
    """Resources and work of the kernels that were noted or captured."""

    every: bool = False
    keep_cache: bool = True


@dataclass(frozen=True)
class DeviceTimes:
    microseconds: Mapping[str, float]
    streams: tuple[Integer, ...]


@dataclass(frozen=True)
class Profile(Request[DeviceTimes], command="profile"):
    """Device time by kernel name and the streams used, over one warm call."""

    inputs: str
    slots: tuple[Slot, ...]
    seed: int


@dataclass(frozen=True)
class InputForm:
    """An input by its form alone."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Captured:
    unsupported: str = ""
    """Why the launches could not be captured, where they could not."""
    compiled: int = 0
    launched: bool = True
    kernels: tuple[str, ...] = ()
    ops: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[Complaint, ...] = ()


@dataclass(frozen=True)
class Capture(Request[Captured], command="capture"):
    """Run the forward at full size on fake tensors and compile every launch for ``target``.

    Where host code needs values, first on ``example``, with the module built as ``init`` says.
    """

    inputs: str
    specs: tuple[InputForm, ...]
    target: Json
    example: str | None = None
    init: str | None = None


@dataclass(frozen=True)
class Follow(Request[Launches], command="follow"):
    """Run the forward on fake tensors of another size and name its launches; nothing is compiled."""

    inputs: str
    specs: tuple[InputForm, ...]
    target: Json
    init: str


@dataclass(frozen=True)
class Counts:
    kernels: Mapping[str, int]


@dataclass(frozen=True)
class Pattern(Request[Counts], command="pattern"):
    """Interpret a pattern, as if ``target`` were there, and hold it to its own reference."""

    source: str
    target: Json


@dataclass(frozen=True)
class CompilePattern(Request[Counts], command="compile_pattern"):
    """Compile a pattern's kernels for ``target``."""

    source: str
    target: Json
