"""Requests about kernels: in the interpreter, as compiled, and of patterns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from egg.core.resources import KernelResources
from egg.evaluator.transport.protocol.base import Complaint, Done, Request, Target
from egg.evaluator.transport.protocol.calls import CallSet, Forwarded, GradMode
from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.strict import Integer, Sizes


@dataclass(frozen=True)
class Excerpted:
    without: str = ""
    """Why nothing can be concluded, where nothing can."""
    launches: tuple[tuple[str, int, int], ...] = ()
    """Kernels, how many programs each has, and how many ran."""
    whole: bool = False
    answered: Forwarded | None = None
    """What a forward reports; ``None`` where nothing can be concluded."""


@dataclass(frozen=True)
class Excerpt(Request[Excerpted], command="excerpt"):
    """One forward in which long launches run some of their programs; what those wrote is marked."""

    call: CallSet
    masks: tuple[Slot | None, ...]
    seed: int
    keep: bool = False
    """Hold the outputs for a :class:`~egg.evaluator.transport.protocol.calls.Recheck`."""
    brief: bool = False
    """Of launches that do not run whole, few programs."""
    left: bool = False
    """Look for loads of what earlier calls left."""
    fresh: bool = False
    """Of what new memory holds too. Where every program runs: what others did not write is no fault."""
    grad: GradMode = GradMode.OFF


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
    choices: int = 0
    """How many choices tuners made since they were configured."""


@dataclass(frozen=True)
class Configure(Request[Configurations], command="configure"):
    """Which of its configurations every autotuner is to take; on a GPU it measures and takes its own."""

    place: int
    lot: int = 0
    """Not zero: each choice of a tuner is drawn from it instead."""


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
class Spans(Request[DeviceTimes], command="spans"):
    """Device time of every own kernel and every library operator of one warm call, without a profiler."""

    inputs: str
    slots: tuple[Slot, ...]
    seed: int


@dataclass(frozen=True)
class InputForm:
    """An input by its form alone."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    lead: int = 0
    """Elements of its storage before its first."""
    learns: bool = False
    """Whether it requires a gradient."""
    storage: int = 0
    """Which storage it is a part of."""


@dataclass(frozen=True)
class Captured:
    unsupported: str = ""
    """Why the launches could not be captured, where they could not."""
    compiled: int = 0
    launched: bool = True
    kernels: tuple[str, ...] = ()
    ops: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[Complaint, ...] = ()
    uncompiled: int = 0
    """Configurations of autotuners that there was no time to compile."""


@dataclass(frozen=True)
class Capture(Request[Captured], command="capture"):
    """Run the forward at full size on fake tensors and compile every launch for ``target``.

    Where host code needs values, first on ``example``, with the module built as ``init`` says.
    """

    inputs: str
    specs: tuple[InputForm, ...]
    target: Target
    example: str | None = None
    init: str | None = None
    backward: bool = False
    """Under grad mode, with a backward behind the forward."""
    every: bool = False
    """Whether each configuration of an autotuner is compiled, beyond the first that fits."""


@dataclass(frozen=True)
class Follow(Request[Launches], command="follow"):
    """Run the forward on fake tensors of another size and name its launches; nothing is compiled."""

    inputs: str
    specs: tuple[InputForm, ...]
    target: Target
    init: str


@dataclass(frozen=True)
class Planned:
    """One call as statements of a plan; text that a verifier reads before anything is made of it."""

    unsupported: str = ""
    """Why there are none."""
    hint: str = ""
    statements: tuple[str, ...] = ()
    result: str = ""
    kernels: tuple[str, ...] = ()
    """The functions of the file that are launched."""
    launches: int = 0
    operators: int = 0
    allocations: int = 0


@dataclass(frozen=True)
class NamedForm:
    name: str
    shape: Sizes
    dtype: str


@dataclass(frozen=True)
class Plan(Request[Planned], command="plan"):
    """Run the constructor and one forward on fake tensors, and write down what they do with them."""

    inputs: str
    specs: tuple[InputForm, ...]
    names: tuple[str, ...]
    """How the plan calls each tensor of the inputs."""
    state: tuple[NamedForm, ...]
    """Of the task's module, in order."""
    unsaved: tuple[NamedForm, ...]
    """Its buffers that no ``state_dict`` holds."""
    target: Target
    source: str
    taken: tuple[str, ...] = ()
    """Names that the plan uses otherwise."""


@dataclass(frozen=True)
class Counts:
    kernels: Mapping[str, int]


@dataclass(frozen=True)
class Pattern(Request[Counts], command="pattern"):
    """Interpret a pattern, as if ``target`` were there, and hold it to its own reference."""

    source: str
    target: Target | None


@dataclass(frozen=True)
class CompilePattern(Request[Counts], command="compile_pattern"):
    """Compile a pattern's kernels for ``target``."""

    source: str
    target: Target
