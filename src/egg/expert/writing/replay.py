"""Whether a file replays its launches as a CUDA graph: where making them takes a good part of running them.

A launch costs the host some 15 to 30 microseconds, and the host runs ahead of the GPU: launches cost nothing
as long as the kernels take longer. A program of small kernels is the other case. Recorded once as a CUDA
graph, its launches cost the host some ten microseconds in all and the GPU about a microsecond each; results
that the program allocates itself are written where the caller keeps them, others are copied at the end
(:mod:`egg.expert.writing.replay_results`).

A host that others use as well takes twice as long, and one that is only just ahead hides nothing at a
program's beginning; so launches are replayed where making them takes a good part of running them, as long as
the copies are a small thing. Short programs are replayed also where copies take a noticeable part: the gaps
between kernels are shorter in a graph, and what a busy host adds to a short call has no bound. Calls of
libraries are recorded like kernels (:mod:`egg.expert.writing.replay_calls` names those that are not). A move
decides otherwise (``set file replay False``). Either way the file states the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from egg.expert.cost import Machine
from egg.expert.emit.keeping import MAKE_ONCE
from egg.expert.emit.kinds import kind_of
from egg.expert.graph import Graph, Origin, Value
from egg.expert.parts import Group, Part, Setting
from egg.expert.patterns import PATTERNS
from egg.expert.reading.held import input_values
from egg.expert.writing.domain import written_inputs
from egg.expert.writing.heading import Parts
from egg.expert.writing.replay_calls import WAITING_ANCHORS, recordable
from egg.expert.writing.replay_results import computed, copied_results
from egg.hardware.gpus import Gpu

SETTINGS = "file"
"""What is decided about the whole file stands in a recipe's settings under this name."""
REPLAY = "torch.cuda.graph("
"""What a file that replays has in its text. A task may have names of its own that forbid it."""
LAUNCH, LIBRARY, CONVOLUTION = 25e-6, 20e-6, 50e-6
"""Seconds of the host for one launch of a Triton kernel, for one call of PyTorch's, and for one that looks up
a convolution's plan."""
COPY = 10e-6
"""Of the host for one copy."""
SHORTEST = 3e-6
"""Seconds on the GPU of any kernel at all."""
REACHED = 0.8
"""Share of the memory's bandwidth that a copy reaches."""
NEAR = 0.4
"""Of the GPU's time, from which on the host's is no longer hidden for certain."""
DEAR = 0.1
"""Of the host's time, what copies may take where the host is not the slower side."""
FEWEST = 1
"""Launches that are worth a graph. One launch takes the host 34 to 55 us, and its replay 17 to 30 us (ten
files on an H200), which the caller of a short kernel waits for."""
SHORT = 1e-3
"""Seconds on the GPU up to which a call is short."""
SHORT_NEAR = 0.2
"""The same as :data:`NEAR` for a short call. A BERT layer of ten launches and 0.46 ms on the GPU takes
`torch.compile` 0.54 ms without a graph."""
SLIGHT = 0.08
"""Of a short call's time on the GPU, what copies may take where the host is near."""
BUSY = 2.0
"""Times longer that the host of a short call is taken to need, against what copies take: beside an H200,
with other programs at work on the host, two needed 2.3 and 3 times their estimate."""
UNCAPTURABLE = re.compile(
    r"\.(?:item|tolist|cpu|tensor|as_tensor|nonzero|masked_select|unique\w*|rand\w*|bernoulli\w*|multinomial"
    r"|normal\w*|\w*dropout\w*|set_allocator|synchronize)\(|\._version\b|self\.training\b"
)
"""What waits for the GPU, draws numbers, or keeps something between calls cannot be recorded once."""


class Elsewhere(StrEnum):
    """How a call is served whose inputs and results lie where no graph has been recorded for."""

    LAUNCHED = "launched"
    """The launches are made one by one."""
    COPIED = "copied"
    """One graph reads copies of the inputs, and its results are copied: many launches, little memory."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of one call."""

    launches: int
    host: float
    """To make every launch and library call."""
    device: float
    """To run them."""
    copies: float
    """Of results that the graph does not write in place."""
    moved: float = 0.0
    """To copy every input and every result, on the host or on the GPU."""

    @property
    def worth_it(self) -> bool:
        if self.launches < FEWEST or self.host < SHORT_NEAR * self.device:
            return False
        if self.device < SHORT and self.copies <= SLIGHT * self.device:
            return True
        if self.host < NEAR * self.device:
            return False
        if self.copies < DEAR * self.host or self.host > self.device + self.copies:
            return True
        return self.device < SHORT and self.device + self.copies < BUSY * self.host

    @property
    def copying_pays(self) -> bool:
        """Whether places without a graph are served sooner by copies than by launches."""
        return self.device + self.moved < self.host

    @property
    def why_not(self) -> str:
        """Why it is not worth it."""
        if self.launches < FEWEST:
            return "there is one launch"
        near = NEAR if self.device >= SHORT else SHORT_NEAR
        if self.host < near * self.device:
            return f"the launches are hidden behind the kernels: {self}"
        return f"copies of results would take {_shown(self.copies)}: {self}"

    def __str__(self) -> str:
        host, device = _shown(self.host), _shown(self.device)
        return f"some {self.launches} launches take the host about {host} to make, and the GPU about {device}"


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.95e-4 else f"{seconds * 1e6:.0f} us"


@dataclass(frozen=True)
class Decision:
    """Whether a file replays its launches."""

    replays: bool
    why: str
    """As half a sentence, either way; empty where there is nothing to replay."""
    elsewhere: Elsewhere = Elsewhere.LAUNCHED

    def without(self, why: str) -> Decision:
        return Decision(False, why)

    @property
    def sentence(self) -> str:
        if not self.why:
            return ""
        return f"The launches are {'' if self.replays else 'not '}replayed as one CUDA graph: {self.why}."


def decided(graph: Graph, parts: Parts, gpu: Gpu, wanted: Setting | None = None) -> Decision:
    """Whether launches are replayed, and why; ``wanted``: what a move decides."""
    return decided_by(estimated(graph, parts, gpu), graph, parts, wanted)


def decided_by(estimate: Estimate, graph: Graph, parts: Parts, wanted: Setting | None = None) -> Decision:
    """The same by an estimate that is known."""
    if wanted is False:
        return Decision(False, "a move decides so")
    if (found := obstacle(graph, parts)) is not None:
        return Decision(False, found if estimate.launches >= FEWEST else "")
    if not (wanted or estimate.worth_it):
        return Decision(False, estimate.why_not if estimate.launches >= FEWEST else "")
    copied = estimate.copying_pays and _copyable(graph)
    return Decision(True, str(estimate), Elsewhere.COPIED if copied else Elsewhere.LAUNCHED)


# -- whether it can be ---------------------------------------------------------------------------------


def obstacle(graph: Graph, parts: Parts) -> str | None:
    """What keeps a program from being recorded, as half a sentence."""
    if not input_values(graph):
        return "no argument is a tensor"
    origins = [graph.value(str(result)).origin for result in graph.results]
    if not set(origins) <= {Origin.NODE, Origin.INPUT} or Origin.NODE not in origins:
        return "a result is no tensor that the program computes"
    for group, part in parts:
        for node in group.nodes:
            if node.op == "random" or (not part.kernels and node.op == "recurrent"):
                return f"{node.op} operators cannot be recorded"
            if not part.kernels and node.op in WAITING_ANCHORS:
                return f"the library's {kind_of(node)} cannot be recorded"
            if node.op == "library" and not recordable(graph, node):
                return f"{node.label or node['target']} cannot be recorded"
        calls = "\n".join(part.call)
        repeated = (text for name, text in part.helpers.items() if f"{MAKE_ONCE}({name}," not in calls)
        if found := UNCAPTURABLE.search("\n".join((calls, *repeated))):
            return f"{found[0].strip('.(')} cannot be recorded"
    return None


def _copyable(graph: Graph) -> bool:
    """Whether a graph may read copies of the arguments: each is a tensor, which the program only reads and
    which has its elements once."""
    if None in graph.arguments or written_inputs(graph):
        return False
    arguments = input_values(graph)
    return all(value.path == value.name and not _repeats(value) for value in arguments)


def _repeats(value: Value) -> bool:
    pairs = zip(value.stride, value.shape, strict=True)
    return any(step.value == 0 and size.value > 1 for step, size in pairs)


# -- what it costs -------------------------------------------------------------------------------------


def estimated(graph: Graph, parts: Parts, gpu: Gpu) -> Estimate:
    launches, host, device, machine = 0, 0.0, 0.0, Machine.of(gpu)
    for group, part in parts:
        own = [LAUNCH] * sum(launch.times for launch in part.launches if not launch.kept)
        if not part.kernels:
            called = [node.op for node in group.nodes if node.op not in ("view", "constant", "joined")]
            own = [CONVOLUTION if op == "conv" else LIBRARY for op in called]
        launches, host = launches + len(own), host + sum(own)
        device += max(len(own) * SHORTEST, _seconds(graph, group, part, machine))
    results, copied = [str(graph.results[order]) for order in computed(graph)], copied_results(graph, parts)
    taken = [graph.value(name) for name in results]
    device_copies = sum(_copy_seconds(value, gpu) for value in (*input_values(graph), *taken))
    host_copies = COPY * (len(taken) + len(graph.arguments))
    return Estimate(
        launches,
        host,
        device,
        sum(_copy_seconds(graph.value(name), gpu) for name in copied),
        max(device_copies, host_copies),
    )


def _copy_seconds(value: Value, gpu: Gpu) -> float:
    return 2 * value.bytes / (REACHED * gpu.bandwidth) + SHORTEST


def _seconds(graph: Graph, group: Group, part: Part, machine: Machine) -> float:
    return PATTERNS[group.pattern].cost(graph, group, part, {}, machine).device
