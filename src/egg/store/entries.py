"""One entry of the store: a claim, the task that stands for it, how often it ran, and what is known of it.

The state decides which fields exist: only a tuned entry has a kernel, only a rejected one has a reason. An
entry is one JSON file, replaced as a whole; it holds the digest of its own contents, so that a file that was
cut or changed is recognised.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from egg.core.codec import from_json, to_json
from egg.core.evaluation import Accepted, Evaluation, Interval, Measured
from egg.store.claims import Claim

SCHEMA = "egg.store-entry/1"


class Damaged(ValueError):
    """The text of an entry, or of its kernel, is not what was written."""


class OtherSchema(ValueError):
    """An entry in a form that this version does not read."""


@dataclass(frozen=True)
class Seen:
    """How often programs met the graph, and what one call moves."""

    compiled: int = 0
    """Times that a program compiled it."""
    calls: int = 0
    traffic: int = 0
    """Bytes that the nodes of the graph read and write in one call, each by itself."""

    @property
    def weight(self) -> int:
        """What decides the order of tuning: bytes over all calls; a graph that only compiled counts once."""
        return max(self.calls, self.compiled) * max(self.traffic, 1)

    def __add__(self, other: Seen) -> Seen:
        return Seen(
            self.compiled + other.compiled, self.calls + other.calls, max(self.traffic, other.traffic)
        )


@dataclass(frozen=True)
class Recorded:
    """Met, and not tuned yet."""

    kind: ClassVar[str] = "recorded"


@dataclass(frozen=True)
class Tuned:
    """A kernel that the judge accepted and that is faster than all of torch, or was measured by no GPU."""

    kind: ClassVar[str] = "tuned"
    kernel: str
    """The SHA-256 of the kernel file, which is its name in the store."""
    evaluation: Mapping[str, Any]
    """The judge's answer, as :meth:`egg.core.evaluation.Evaluation.to_json` writes it."""
    speedups: Mapping[str, Interval] = field(default_factory=dict)
    """Over each of torch's own ways to run the graph; empty where no GPU measured it."""

    @property
    def measured(self) -> bool:
        return bool(self.speedups)

    @classmethod
    def of(cls, evaluation: Evaluation, kernel: str) -> Tuned:
        """``kernel`` is the SHA-256 of the file that was judged."""
        performance = evaluation.verdict.performance if isinstance(evaluation.verdict, Accepted) else None
        if performance is None:
            raise ValueError("a refused kernel cannot be tuned")
        timed = performance.baselines if isinstance(performance, Measured) else ()
        speedups = {baseline.name: baseline.speedup for baseline in timed}
        return cls(kernel, evaluation.to_json(), speedups)


@dataclass(frozen=True)
class Rejected:
    """Tuned without a kernel to use, or one that failed in use."""

    kind: ClassVar[str] = "rejected"
    reason: str


State = Recorded | Tuned | Rejected


@dataclass(frozen=True)
class Assembly:
    """How a whole graph runs fastest."""

    faster: bool
    """With the kernels for its layers."""
    ratio: float
    """How many times faster than Inductor's own form without kernels."""
    kernels: tuple[str, ...] = ()
    """The keys of the entries."""
    replayed: bool = False
    """As a CUDA graph."""
    eager: bool = False
    """What has no kernel operator by operator, and not as Inductor compiles it."""
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    """Of a call in each form that was timed, in words."""


@dataclass(frozen=True)
class Part:
    """The forward or the backward graph of a graph that trains."""

    part: str
    key: str
    """Of its entry; empty for a graph that is left."""
    reason: str = ""
    """Why it is left."""


@dataclass(frozen=True)
class Step:
    """What AOTAutograd made of a graph that trains, so that a later process need not ask it."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Kind:
    """Layers of a graph that one task stands for, or the graph itself as one task."""

    key: str
    """Of the entry; empty for what is left."""
    reason: str = ""
    """Why it is left."""
    spans: tuple[tuple[int, ...], ...] = ()
    """Where each layer begins and ends among the calls of the graph; none for the graph itself."""


@dataclass(frozen=True)
class Outline:
    """What was found in a graph, so that a later process need not search it."""

    layered: bool
    """Whether the kinds are layers that repeat; otherwise the one kind is the graph."""
    kinds: tuple[Kind, ...]
    fixed: tuple[int, ...] = ()
    """The places of the arguments that a CUDA graph of it reads where they lie."""
    written: tuple[int, ...] = ()
    """Those of them that a call changes in place."""
    obstacle: str = ""
    """Why it cannot be replayed as a CUDA graph."""


def assembly_name(graph: str, terms: Sequence[str]) -> str:
    """The name of what is known of a graph under these terms."""
    return _digest([graph, *terms])[:32]


@dataclass(frozen=True)
class Entry:
    claim: Claim
    task: str
    """A task file in KernelBench's form."""
    seen: Seen = field(default_factory=Seen)
    state: State = field(default_factory=Recorded)
    when: str = ""
    """The moment of the last change of state, in UTC."""
    failures: tuple[str, ...] = ()
    """Exceptions of the kernel in programs that used it; the last ones."""

    @property
    def key(self) -> str:
        return self.claim.key

    @property
    def name(self) -> str:
        """For people: the first half of the key."""
        return self.claim.graph_key

    def to_text(self) -> str:
        entry = to_json(self)
        return json.dumps({"schema": SCHEMA, "digest": _digest(entry), "entry": entry}, indent=1) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Entry:
        try:
            data = json.loads(text)
            if isinstance(data, dict) and str(data["schema"]) != SCHEMA:
                raise OtherSchema(f"its form is {data['schema']}, and this version reads {SCHEMA}")
            if data["digest"] != _digest(data["entry"]):
                raise Damaged("its contents do not have the digest that was written with them")
            return from_json(cls, data["entry"])
        except (OtherSchema, Damaged):
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as reason:
            raise Damaged(f"not an entry: {reason!r:.200}") from None


def _digest(entry: Any) -> str:
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode()).hexdigest()
