"""What the profiled program's process says, and how strictly it is read.

The process runs candidate code, so every word may be forged. That is no danger to a profile, which
is advice and no verdict; but it must not be able to do more than be wrong: what is not of the
declared form, not finite, negative, or beyond all measure is :class:`~.times.Garbled`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from egg.core.listing import Listings
from egg.core.resources import KernelResources
from egg.evaluator.profiling.times import Garbled
from egg.evaluator.transport.strict import Bounds, Malformed, strictly

MOST_BYTES = 16 << 20
MOST_ITEMS = 20_000
MOST_SIZES = 3
"""Of a grid or a block, the only rows of whole numbers there are."""
LONGEST_TEXT = 8_000
"""Of amounts and of whole numbers: products of several such numbers stay within a float's range."""

LONGEST_CODE = 2 << 20
"""The same of a kernel's code."""

CANDIDATE, TASK, MACHINE = "candidate", "task", "machine"

JOB = "job.json"
"""In the cell's folder: what to run."""


def file_of(mode: str) -> str:
    """Where in the cell's folder the process leaves what it has to say."""
    return f"reply-{mode}.json"


@dataclass(frozen=True)
class Fault:
    """Why there is nothing to say; ``party`` is whose fault it is."""

    reason: str
    evidence: str
    party: str


@dataclass(frozen=True)
class TimedKernel:
    """All launches of one kernel, copy or fill in one call."""

    name: str
    own: bool
    launches: int
    microseconds: float
    grid: tuple[int, ...]
    """Of its longest launch, as are the others below."""
    block: tuple[int, ...]
    registers: int
    shared_bytes: int


@dataclass(frozen=True)
class Launched:
    """One launch, in the order of a call: which of the kernels, and for how long."""

    kernel: int
    microseconds: float


@dataclass(frozen=True)
class Times:
    """One warm call on a GPU."""

    kernels: tuple[TimedKernel, ...]
    sequence: tuple[Launched, ...]
    span_microseconds: float
    """By the timeline."""
    call_microseconds: float
    """By the device's clock around a call that was not profiled."""
    streams: int
    resources: tuple[KernelResources, ...]
    unseen: str
    """Why the timeline is empty, where it is."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Compiled:
    """What one warm call would launch on a GPU that is not there."""

    resources: tuple[KernelResources, ...]
    outside: Mapping[str, int]
    """Operators left to libraries, and how often each is called."""
    unsupported: str
    """Why the launches could not be followed, where they could not."""


@dataclass(frozen=True)
class Code:
    """The compiled code of one kernel."""

    listings: Listings
    unsupported: str
    """Why the launches could not be followed, where they could not."""


@dataclass(frozen=True)
class Reply:
    """Exactly one of these is set."""

    fault: Fault | None = None
    times: Times | None = None
    compiled: Compiled | None = None
    code: Code | None = None


def read(text: bytes, longest: int = LONGEST_TEXT) -> Reply:
    """The reply in ``text``, whose texts have ``longest`` characters at most; or :class:`Garbled`."""
    if len(text) > MOST_BYTES:
        raise Garbled(f"{len(text)} bytes")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise Garbled("not JSON") from None
    try:
        return strictly(Reply, data, "reply", Bounds(longest, MOST_ITEMS))
    except (Malformed, ValueError) as error:
        raise Garbled(str(error)) from None
