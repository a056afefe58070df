"""Requests that call the candidate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from egg.evaluator.task.gradient_ways import PLAIN, Way
from egg.evaluator.transport.protocol.base import Done, Json, Request
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.strict import AnyNumber, Finite, Integer, Sizes


@dataclass(frozen=True)
class Spent:
    """Work of operators, as :class:`~egg.evaluator.operators.spent.Work` counts it."""

    products: float
    others: float
    moved: float
    fused: float = 0.0


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
    whole: str | None = None
    """An integer's digits, in base 16: as a float it would be another."""


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
    parts: Mapping[str, int] = field(default_factory=dict)
    """What operators did inside, as :mod:`~egg.evaluator.operators.parts` counts it."""
    lossy: int = 0
    """Copies to integers or truth values that drop fractions or high bits."""
    narrowed: Mapping[str, int] = field(default_factory=dict)
    """Copies of floats to types of floats in which they are other numbers, by type."""
    overwritten: int = 0
    """Numbers that were written over parts of what the call had made."""


@dataclass(frozen=True)
class Found:
    """Of one answer, which of its runs operators of PyTorch made."""

    made: tuple[bool, ...]
    alone: tuple[bool, ...]
    """Of the inputs' and the weights' values alone."""


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
    drew: bool
    """Whether random generators stand elsewhere than before."""
    found: tuple[Found, ...]
    """For each answer whose runs were looked for."""
    returned: str
    """The structure of the result."""
    handed: tuple[tuple[str, str], ...] = ()
    """Numbers that the host gave to launches and operators, where that was asked for: to which, and what."""
    left: str = ""
    """What was loaded that an earlier call had left, where that was asked for."""
    stands: str = ""
    """Where the random generators stand behind the call."""


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
    runs: tuple[tuple[Finite, ...], ...] = ()
    """Of each answer, numbers of runs (:mod:`~egg.evaluator.operators.runs`) to look for in what PyTorch's
    operators make; empty where there is nothing to look for."""


class GradMode(StrEnum):
    """Whether PyTorch records gradients during a call; no input requires one."""

    OFF = "off"
    ON = "on"
    """The parameters require what they do."""
    FROZEN = "frozen"
    """No parameter requires one either."""
    INFERENCE = "inference"
    """Not even versions are counted."""


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
    grad: GradMode = GradMode.OFF
    handed: bool = False
    """Report the numbers that launches and operators are given."""
    follow: int | None = None
    """A seed: what PyTorch's operators read and made is kept for :class:`Contributes`."""
    left: bool = False
    """In the interpreter: look for loads of what earlier calls left, behind a :class:`Rewind` and a call, and
    of new memory that nothing has written."""


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
    live: int
    """Memories behind live tensors, besides inputs and weights; 0 where they were not counted."""


@dataclass(frozen=True)
class Drop(Request[Dropped], command="drop"):
    """Let go of everything held."""

    count: bool = False
    """Whether what is alive then is counted."""


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
class Manner:
    """How one call of a session is made, as one caller or another makes it."""

    grad: GradMode = GradMode.OFF
    elsewhere: bool = False
    """Whether its inputs are copied to memory that no call had them in."""
    refills: int = 0
    """How often its inputs were written in place since their last call, by their versions."""


@dataclass(frozen=True)
class Called:
    records: tuple[Record, ...]
    """Of the calls that were to be recorded, in their order."""


@dataclass(frozen=True)
class Calls(Request[Called], command="calls"):
    """Run a session; every output is delivered, those of the first ``keep`` calls are held as well."""

    session: Session
    keep: int = 0
    recorded: tuple[int, ...] = ()
    """Numbers of calls."""
    keep_cache: bool = False
    manners: tuple[Manner, ...] = ()
    """Of every call; the usual one where there are none."""


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
    """The calls of a session; those with the numbers ``recorded`` are reported."""

    session: Session
    recorded: tuple[int, ...]


@dataclass(frozen=True)
class Backward:
    requires: tuple[bool, ...]
    error: str
    given: tuple[str, ...]
    intact: bool
    outputs: tuple[OutputForm, ...]
    record: Record
    """Of the call and of backward."""


@dataclass(frozen=True)
class Gradients(Request[Backward], command="gradients"):
    """Forward and backward under grad mode; outputs and gradients are copied where they belong."""

    call: CallSet
    gradients: Mapping[str, Slot]
    seed: int
    way: Way = PLAIN
    training: bool | None = None


@dataclass(frozen=True)
class Contribution:
    draws: int
    """Calls that ran the same operators; with fewer than were asked for nothing is known."""
    own: bool
    """Whether something but PyTorch's operators computed."""


@dataclass(frozen=True)
class Contributes(Request[Contribution], command="contributes"):
    """Compare the calls that were followed, where ``draws`` of them ran the same operators."""

    draws: int
    aligned: bool = False
    """Whether to compare them by what they have in common, where fewer did."""


@dataclass(frozen=True)
class Copy(Request[Done], command="copy"):
    """Call ``number`` of those that were followed once more: own kernels copy operands in place of their
    work."""

    call: CallSet
    seed: int
    number: int


class By(StrEnum):
    """What is asked of calls in which kernels copied."""

    CARRIED = "carried"
    """Whether PyTorch's operators make the answer, up to what is carried."""
    EQUAL = "equal"
    """Whether they answer alike."""
    FINITE = "finite"
    """Whether they have a number wherever the call has one."""


@dataclass(frozen=True)
class Needed:
    own: bool
    """Whether the answer needs what own kernels compute."""


@dataclass(frozen=True)
class Needs(Request[Needed], command="needs"):
    """Compare the calls that were followed with those in which kernels copied, and forget them."""

    by: By


@dataclass(frozen=True)
class Note(Request[Done], command="note"):
    """Note what the tensors hold that the candidate keeps."""

    leaves: tuple[str, ...] = ()
    """Attributes apart that forward is to leave for its callers, by path."""


@dataclass(frozen=True)
class Followed:
    tensors: int
    """How many hold something else than was noted."""
    new: int = 0
    """How many are kept that were not there then, or are large and hold something else."""
    unwatched: int = 0
    """Bytes of the largest of those that is too large to be watched."""


@dataclass(frozen=True)
class Follows(Request[Followed], command="follows"):
    """Find the kept tensors that the calls since the note changed."""


@dataclass(frozen=True)
class PutBack(Request[Done], command="put_back"):
    """Give one of those what it held when it was noted."""

    number: int
    values: bool = False
    """Whether elements stay that are among the values of the inputs."""


@dataclass(frozen=True)
class Rewind(Request[Done], command="rewind"):
    """Give all kept tensors what they held when it was noted."""
