"""Whether a file replays its launches as a CUDA graph: where making them takes longer than running them.

A launch costs the host some 25 microseconds, and the host runs ahead of the GPU: launches cost nothing as
long as the kernels take longer. A network of many small kernels is the other case. Recorded once as a CUDA
graph, its launches cost about a microsecond each; the price is a copy of every result out of the place that
the graph writes (inputs are read where they lie, :mod:`egg.expert.writing.replay_text`).

A host that others use as well takes twice as long, and one that is only just ahead hides nothing at a
program's beginning; so launches are replayed where making them takes a good part of running them, as long as
the copies are a small thing. Short programs are replayed also where copies take a noticeable part: the gaps
between kernels are shorter in a graph, and what a busy host adds to a short call has no bound. Calls of
libraries are recorded like kernels (:mod:`egg.expert.writing.replay_calls` names those that are not). A move
decides otherwise (``set file replay False``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from egg.expert.cost import Machine
from egg.expert.graph import Graph, Origin
from egg.expert.parts import Group, Part, Setting, spelled
from egg.expert.patterns import PATTERNS
from egg.expert.writing.heading import Parts
from egg.expert.writing.replay_calls import recordable
from egg.hardware.gpus import Gpu

SETTINGS = "file"
"""What is decided about the whole file stands in a recipe's settings under this name."""
REPLAY = "torch.cuda.graph("
"""What a file that replays has in its text. A task may have names of its own that forbid it."""
LAUNCH, LIBRARY = 25e-6, 10e-6
"""Seconds of the host for one launch of a Triton kernel, and for one call of PyTorch's."""
SHORTEST = 3e-6
"""Seconds on the GPU of any kernel at all."""
REACHED = 0.8
"""Share of the memory's bandwidth that a copy reaches."""
NEAR = 0.4
"""Of the GPU's time, from which on the host's is no longer hidden for certain."""
DEAR = 0.1
"""Of the host's time, what copies may take where the host is not the slower side."""
FEWEST = 4
"""Launches that are worth a graph."""
SHORT = 1e-3
"""Seconds on the GPU up to which a call is short."""
SHORT_NEAR = 0.2
"""The same as :data:`NEAR` for a short call. A BERT layer of ten launches and 0.46 ms on the GPU takes
`torch.compile` 0.54 ms without a graph."""
SLIGHT = 0.08
"""Of a short call's time on the GPU, what copies may take where the host is near."""
BUSY = 1.5
"""Times longer that the host of a short call is taken to need, against what copies take."""
UNCAPTURABLE = re.compile(
    r"\.(?:item|tolist|cpu|tensor|as_tensor|nonzero|masked_select|unique\w*|rand\w*|bernoulli\w*|multinomial"
    r"|normal\w*|\w*dropout\w*|set_allocator|synchronize)\(|\._version\b|self\.training\b"
)
"""What waits for the GPU, draws numbers, or keeps something between calls cannot be recorded once."""
ONCE = "@functools.cache"
"""How functions of the host begin whose result is kept: the plain call before a recording has made it."""


@dataclass(frozen=True)
class Estimate:
    """Seconds of one call."""

    launches: int
    host: float
    """To make every launch and library call."""
    device: float
    """To run them."""
    copies: float
    """Of results, out of what the graph writes."""

    @property
    def worth_it(self) -> bool:
        if self.launches < FEWEST or self.host < SHORT_NEAR * self.device:
            return False
        if self.device < SHORT and self.copies < SLIGHT * self.device:
            return True
        if self.host < NEAR * self.device:
            return False
        if self.copies < DEAR * self.host or self.host > self.device + self.copies:
            return True
        return self.device < SHORT and self.device + self.copies < BUSY * self.host

    def __str__(self) -> str:
        host, device = _shown(self.host), _shown(self.device + self.copies)
        return f"some {self.launches} launches take the host about {host} to make, and the GPU about {device}"


def _shown(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.95e-4 else f"{seconds * 1e6:.0f} us"


def reason(graph: Graph, parts: Parts, gpu: Gpu, wanted: Setting | None = None) -> str | None:
    """Why launches are replayed, as half a sentence; ``None`` where they are not, or cannot be."""
    if wanted is False or obstacle(graph, parts) is not None:
        return None
    estimate = estimated(graph, parts, gpu)
    return str(estimate) if wanted or estimate.worth_it else None


# -- whether it can be ---------------------------------------------------------------------------------


def obstacle(graph: Graph, parts: Parts) -> str | None:
    """What keeps a program from being recorded, as half a sentence."""
    if not graph.arguments or None in graph.arguments:
        return "not every argument is a tensor"
    arguments = [graph.value(str(name)) for name in graph.arguments]
    for value in arguments:
        if value.path != value.name or not value.name.isidentifier():
            return "an argument is a structure of tensors"
        if any(
            step.value == 0 and size.value > 1 for step, size in zip(value.stride, value.shape, strict=True)
        ):
            return "an argument repeats its elements in memory"
    if any(graph.value(str(result)).origin is not Origin.NODE for result in graph.results):
        return "a result is no tensor that the program computes"
    read = {value.name for value in arguments}
    for group, part in parts:
        for node in group.nodes:
            if node.op == "random" or (not part.kernels and node.op == "recurrent"):
                return f"{node.op} operators cannot be recorded"
            if node.op == "library" and not recordable(graph, node):
                return f"{node.label or node['target']} cannot be recorded"
            if node.op == "update" and node.inputs[0] in read:
                return "an argument is written"
        repeated = (text for text in part.helpers.values() if not text.startswith(ONCE))
        if found := UNCAPTURABLE.search("\n".join((*part.call, *repeated))):
            return f"{found[0].strip('.(')} cannot be recorded"
    return None


# -- what it costs -------------------------------------------------------------------------------------


def estimated(graph: Graph, parts: Parts, gpu: Gpu) -> Estimate:
    launches, calls, device, machine = 0, 0, 0.0, Machine.of(gpu)
    for group, part in parts:
        own = sum(launch.times for launch in part.launches if not launch.kept)
        if not part.kernels:
            own = sum(node.op not in ("view", "constant", "joined") for node in group.nodes)
            calls += own
        else:
            launches += own
        device += max(own * SHORTEST, _seconds(graph, group, part, machine))
    handed = [graph.value(str(name)).bytes for name in graph.results]
    copies = sum(2 * size / (REACHED * gpu.bandwidth) + SHORTEST for size in handed)
    return Estimate(launches + calls, launches * LAUNCH + calls * LIBRARY, device, copies)


def _seconds(graph: Graph, group: Group, part: Part, machine: Machine) -> float:
    return PATTERNS[group.pattern].cost(graph, group, part, {}, machine).device


def constants_of(graph: Graph) -> tuple[str, ...]:
    """Tensors at ``self`` that are neither parameters nor buffers, as ``forward`` spells them."""
    held = (name for name, value in graph.values.items() if value.origin is Origin.CONSTANT)
    return tuple(spelled(graph, name) for name in held)
