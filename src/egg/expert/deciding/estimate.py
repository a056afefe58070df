"""What a structure should cost, before anything is compiled: bytes, operations and launches of each group.

The reckoning on the back of an envelope that decides whether another structure is worth a measurement. A
group moves its operands and results once, over the memory's bandwidth; its products run at a rate that
kernels of their pattern reach, less what computing their operands on the way costs them; what packs operands
first pays for that pass. What is left to PyTorch is one pass for each operator, with the rates that the
libraries reach. On the host every launch takes its time as well, and whichever of the two sides takes longer
decides.

Rates are those seen on one GPU, scaled by the data sheet to others. They are right within a factor, which is
why groups that were compiled or timed are taken as they were seen (:func:`seen_seconds`), and only what is
different is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable

from egg.analysis.predict import predict
from egg.core.resources import KernelResources
from egg.expert.cost import (
    HOST_ALLOCATION,
    HOST_CALL,
    HOST_LAUNCH,
    HOST_REPLAY,
    LAUNCH,
    Cost,
    Grades,
    Machine,
    bytes_of,
    passes,
)
from egg.expert.fusion.choices import Structure
from egg.expert.graph import Graph
from egg.expert.parts import Group, Part
from egg.expert.pattern import FREE
from egg.expert.patterns import PATTERNS
from egg.expert.writing.replay_results import computed, copied_results
from egg.hardware.gpus import Gpu


def total(costs: Iterable[Cost], replay: Cost | None = None) -> float:
    """A forward: whichever side takes longer, since the host runs ahead of the GPU.

    ``replay``: what a recorded graph costs, which makes the launches in no time to speak of.
    """
    each = tuple(costs)
    device, host = sum(cost.device for cost in each), sum(cost.host for cost in each)
    return max(device, host) if replay is None else max(device + replay.device, replay.host)


def replaying(structure: Structure, gpu: Gpu) -> Cost:
    """A recorded graph: its launch, new results, and copies of those that it does not write in place."""
    graph = structure.graph
    pairs = list(zip(structure.groups, structure.parts, strict=True))
    copied = [graph.value(name) for name in copied_results(graph, pairs)]
    device = 2 * bytes_of(copied) / Machine.of(gpu).memory + len(copied) * LAUNCH
    return Cost(device, HOST_REPLAY + len(computed(graph)) * HOST_ALLOCATION)


def costs(structure: Structure, gpu: Gpu, grades: Grades) -> tuple[Cost, ...]:
    """One per group."""
    pairs = zip(structure.groups, structure.parts, strict=True)
    return tuple(cost(structure.graph, group, part, gpu, grades) for group, part in pairs)


def cost(graph: Graph, group: Group, part: Part, gpu: Gpu, grades: Grades) -> Cost:
    return PATTERNS[group.pattern].cost(graph, group, part, grades, Machine.of(gpu))


def called_seconds(graph: Graph, group: Group, gpu: Gpu, grades: Grades) -> float:
    """The library's call for a group's anchor, by itself."""
    anchor = PATTERNS.anchor_of(group)
    assert anchor is not None
    pattern, known = PATTERNS.anchor(anchor.op)
    return known.library_seconds(graph, anchor, grades.get(pattern.name), Machine.of(gpu))


def by_the_library(graph: Graph, group: Group, gpu: Gpu, grades: Grades) -> Cost | None:
    """What a group would cost with its anchor left to PyTorch: the call, and a pass for what rides on it.

    Pointwise operators in front of it cost nothing more: the group that makes their operand takes them along.
    """
    anchor = PATTERNS.anchor_of(group)
    if anchor is None or PATTERNS[group.pattern].fallback:
        return None
    machine = Machine.of(gpu)
    device = called_seconds(graph, group, gpu, grades)
    at = group.nodes.index(anchor)
    behind = [node for node in group.nodes[at + 1 :] if node.op not in FREE]
    before = [node for node in group.nodes[:at] if node.op not in (*FREE, "pointwise", "where")]
    moved = 0.0
    if behind:
        inside = {name for node in group.nodes[: at + 1] for name in (*node.inputs, *node.outputs)}
        others = [name for name in group.reads(graph) if name not in inside]
        passed = (*anchor.outputs[:1], *others, *group.writes(graph))
        moved += passes(behind) * bytes_of(graph.value(name) for name in passed)
    if before:
        moved += 2 * graph.value(str(anchor.inputs[0])).bytes
    more = bool(behind) + bool(before)
    device += moved / machine.memory + more * LAUNCH
    return Cost(device, HOST_CALL + more * HOST_LAUNCH)


def seen_seconds(
    structure: Structure, kernels: Iterable[KernelResources], gpu: Gpu, estimated: tuple[Cost, ...]
) -> tuple[float | None, ...]:
    """Per group: what its kernels take on the GPU by what the compiler made of them; ``None`` where one of
    them was not seen. A kernel that several groups launch is shared out by their estimates."""
    found: dict[str, float] = {}
    for kernel in kernels:
        predicted = predict(kernel, gpu)
        if predicted is not None:
            each = max(1, kernel.launches) * predicted.milliseconds * 1e-3
            found[kernel.name] = found.get(kernel.name, 0.0) + each
    names = [part.launched for part in structure.parts]
    users: dict[str, float] = {}
    for own, guess in zip(names, estimated, strict=True):
        for name in own:
            users[name] = users.get(name, 0.0) + guess.device
    seconds: list[float | None] = []
    for own, guess in zip(names, estimated, strict=True):
        # Functions that share their name with a value are renamed in the file.
        spelled = {name: name if name in found else f"{name}_kernel" for name in own}
        if not own or any(name not in found for name in spelled.values()):
            seconds.append(None)
        else:
            seconds.append(sum(found[spelled[name]] * guess.device / users[name] for name in own))
    return tuple(seconds)
