"""What a structure should cost, before anything is compiled: bytes, operations and launches of each group.

The reckoning on the back of an envelope that decides whether another structure is worth a measurement. A
group moves its operands and results once, over the memory's bandwidth; its products run at a rate that
kernels of their pattern reach, less what computing their operands on the way costs them; what packs operands
first pays for that pass. What is left to PyTorch is one pass for each operator, with the rates that the
libraries reach. On the host every launch takes its time as well, and whichever of the two sides takes longer
decides.

Rates are those of an H200, scaled by the data sheet to other GPUs. They are right within a factor, which is
why groups that were compiled or timed are taken as they were seen (:func:`seen_seconds`), and only what is
different is estimated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from egg.analysis.predict import predict
from egg.core.resources import KernelResources
from egg.expert.deciding.estimate_convolution import Machine, library_seconds, own_seconds
from egg.expert.fusion.choices import FREE, Structure
from egg.expert.fusion.local import HELD
from egg.expert.graph import Graph, Node, Value
from egg.expert.parts import Group, Part
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.prologue import slowed_seconds
from egg.hardware.gpus import Gpu

LAUNCH = 3e-6
"""Seconds between two kernels that wait in the queue."""
HOST_LAUNCH = 30e-6
"""What Python takes to launch a Triton kernel."""
HOST_CALL = 10e-6
"""What PyTorch takes for an operator."""
STREAMED = 0.88
"""Of the data sheet's bandwidth, as a pass over large tensors gets it."""
H200_FP16, H200_FP32, H200_BANDWIDTH = 989e12, 67e12, 4.8e12
OWN = {
    ("product", "fp32", True): 190e12,
    ("product", "fp32", False): 90e12,
    ("product", "tf32", True): 550e12,
    ("product", "tf32", False): 250e12,
    ("product", "half", False): 600e12,
    ("attention", "fp32", True): 130e12,
    ("attention", "fp32", False): 70e12,
    ("attention", "half", False): 400e12,
}
"""Operations per second by pattern, grade and whether operands are packed first."""
ORDINARY = 20e12
"""What any other way reaches on the ordinary units."""
LIBRARY = {"matmul": (50e12, 700e12), "attention": (40e12, 400e12)}
"""Operations per second of the libraries, in fp32 and in 16 bits."""
LIBRARY_LEAST = 8e-6
"""Seconds of the smallest product or attention of a library."""
LIBRARY_STEP = 14e-6
"""Seconds of one step of one layer of a library's recurrent network."""
OWN_STEP, LAUNCHED_STEP = 11e-6, 17e-6
"""The same where programs wait for each other in one launch, and where each step is a launch."""
AGAIN = {"pool": 1.8, "norm": 1.5}
"""How often a pass with such an operator moves its bytes: windows overlap, statistics come first."""
MANY = ("matmul", "conv", "attention", "recurrent")


@dataclass(frozen=True)
class Cost:
    """Seconds of one group on the GPU and on the host."""

    device: float
    host: float


def total(costs: Iterable[Cost], replay: Cost | None = None) -> float:
    """A forward: whichever side takes longer, since the host runs ahead of the GPU.

    ``replay``: what a recorded graph costs, which makes the launches in no time to speak of.
    """
    each = tuple(costs)
    device, host = sum(cost.device for cost in each), sum(cost.host for cost in each)
    return max(device, host) if replay is None else max(device + replay.device, replay.host)


def replaying(graph: Graph, gpu: Gpu) -> Cost:
    """A recorded graph: its launch, and copies of all arguments and results."""
    values = [graph.value(name) for name in (*graph.arguments, *graph.results) if isinstance(name, str)]
    device = 2 * _bytes(values) / (gpu.bandwidth * STREAMED) + len(values) * LAUNCH
    return Cost(device, (1 + len(values)) * HOST_CALL)


def costs(structure: Structure, gpu: Gpu, grades: Mapping[str, str]) -> tuple[Cost, ...]:
    """One per group. ``grades`` by pattern; what is not there has its default."""
    pairs = zip(structure.groups, structure.parts, strict=True)
    return tuple(cost(structure.graph, group, part, gpu, grades) for group, part in pairs)


def cost(graph: Graph, group: Group, part: Part, gpu: Gpu, grades: Mapping[str, str]) -> Cost:
    anchor = next((node for node in group.nodes if node.op in MANY), None)
    if group.pattern == "library":
        counted = [node for node in group.nodes if node.op not in (*FREE, "joined")]
        device = sum(_library(graph, node, gpu, grades) for node in counted)
        return Cost(device, len(counted) * HOST_CALL)
    launches = launched(part)
    if anchor is not None and anchor.op == "recurrent":
        return _recurrent(graph, anchor, part, launches)
    moved = _bytes(graph.value(n) for n in dict.fromkeys((*group.reads(graph), *group.writes(graph))))
    memory = gpu.bandwidth * STREAMED
    device = launches * LAUNCH
    if anchor is None:
        again = max((AGAIN.get(node.op, 1.0) for node in group.nodes), default=1.0)
        return Cost(device + again * moved / memory, launches * HOST_LAUNCH)
    if group.pattern == "convolution":
        if any(node.op == "norm" for node in group.nodes):  # applied when its statistics are whole
            device += 2 * graph.value(anchor.outputs[0]).bytes / memory
        device += own_seconds(graph, group, part, grades.get("convolution"), _machine(gpu), moved)
        return Cost(device, launches * HOST_LAUNCH)
    packed = any("pack" in name for name in part.kernels)
    grade = _grade(graph, anchor, group.pattern, grades)
    if packed:  # read once, written and read again as 16-bit parts
        kept = any("_packed_" in name for name in part.helpers)  # weights, until they change
        packing = [v for v in graph.operands(anchor)[:2] if v is not None and not (kept and v.origin in HELD)]
        operands = _bytes(packing)
        device += operands * (2.0 if grade == "fp32" else 1.5) / memory
    rate = OWN.get((group.pattern, grade, packed), ORDINARY) * _scale(gpu)
    device += max(moved / memory, operations(graph, anchor) / rate)
    if group.pattern == "product":
        device += slowed_seconds(Problem.of(graph, group), gpu)
    return Cost(device, launches * HOST_LAUNCH)


def by_the_library(graph: Graph, group: Group, gpu: Gpu, grades: Mapping[str, str]) -> Cost | None:
    """What a group would cost with its anchor left to PyTorch: the call, and a pass for what rides on it.

    Pointwise operators in front of it cost nothing more: whoever makes their operand takes them along.
    """
    anchor = next((node for node in group.nodes if node.op in MANY), None)
    if anchor is None or group.pattern == "library":
        return None
    device, host = _library(graph, anchor, gpu, grades), HOST_CALL
    at = group.nodes.index(anchor)
    behind = [node for node in group.nodes[at + 1 :] if node.op not in FREE]
    before = [node for node in group.nodes[:at] if node.op not in (*FREE, "pointwise", "where")]
    moved = 0.0
    again = max((AGAIN.get(node.op, 1.0) for node in behind), default=1.0)
    if behind:
        inside = {name for node in group.nodes[: at + 1] for name in (*node.inputs, *node.outputs)}
        others = [name for name in group.reads(graph) if name not in inside]
        passed = (*anchor.outputs[:1], *others, *group.writes(graph))
        moved += again * _bytes(graph.value(name) for name in passed)
    if before:
        moved += 2 * graph.value(str(anchor.inputs[0])).bytes
    passes = bool(behind) + bool(before)
    device += moved / (gpu.bandwidth * STREAMED) + passes * LAUNCH
    return Cost(device, host + passes * HOST_LAUNCH)


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
    names = [_launched_names(part) for part in structure.parts]
    users: dict[str, float] = {}
    for own, guess in zip(names, estimated, strict=True):
        for name in own:
            users[name] = users.get(name, 0.0) + guess.device
    told: list[float | None] = []
    for own, guess in zip(names, estimated, strict=True):
        # Functions that share their name with a value are renamed in the file.
        spelled = {name: name if name in found else f"{name}_kernel" for name in own}
        if not own or any(name not in found for name in spelled.values()):
            told.append(None)
        else:
            told.append(sum(found[spelled[name]] * guess.device / users[name] for name in own))
    return tuple(told)


# -- one group ------------------------------------------------------------------------------------------


def launched(part: Part) -> int:
    """Kernels that the call launches, loops of the host not followed."""
    text = "\n".join((*part.call, *part.helpers.values()))
    return sum(len(re.findall(rf"\b{name}\[", text)) for name in part.kernels)


def _launched_names(part: Part) -> list[str]:
    text = "\n".join((*part.call, *part.helpers.values()))
    return [name for name in part.kernels if re.search(rf"\b{name}\[", text)]


def operations(graph: Graph, node: Node) -> float:
    """Multiplications and additions of a product, a convolution, an attention."""
    made, (first, second) = graph.value(node.outputs[0]), graph.operands(node)[:2]
    assert first is not None
    assert second is not None
    match node.op:
        case "matmul":
            return 2.0 * made.elements.value * first.shape[-1].value
        case "conv":
            taps = second.elements.value / max(1, second.shape[0].value)
            return 2.0 * (first if node["transposed"] else made).elements.value * taps
        case "attention":
            keys = second.shape[-2].value
            whole = 2.0 * (first.elements.value + made.elements.value) * keys
            return whole / 2 if node.get("causal") else whole
    return 0.0


def _library(graph: Graph, node: Node, gpu: Gpu, grades: Mapping[str, str]) -> float:
    """One operator of PyTorch: a pass over its operands and results, and its products."""
    values = [value for value in graph.operands(node) if value is not None]
    moved = _bytes([*values, *(graph.value(name) for name in node.outputs)])
    stream = moved / (gpu.bandwidth * STREAMED) + LAUNCH
    if node.op == "conv":
        return library_seconds(graph, node, grades.get("convolution"), _machine(gpu), moved) + LAUNCH
    if node.op == "recurrent":
        return _steps(graph, node) * _chains(node) * LIBRARY_STEP
    if node.op in LIBRARY:
        single, half = LIBRARY[node.op]
        rate = half if values[0].dtype in ("float16", "bfloat16") else single
        return max(stream, LIBRARY_LEAST, operations(graph, node) / (rate * _scale(gpu)))
    return stream


def _recurrent(graph: Graph, node: Node, part: Part, launches: int) -> Cost:
    """Steps one after another; each is a launch unless all are in one, or one program has them to itself."""
    steps = _steps(graph, node)
    looped = any(line.lstrip().startswith("for ") for line in part.call)
    layers = int(node["layers"])
    each = steps + layers - 1 if launches <= 3 else steps * layers  # directions walk side by side
    together = any("launch_cooperative_grid" in line for line in part.call)
    device = each * (LAUNCHED_STEP if looped and not together else OWN_STEP)
    return Cost(device, (each if looped and not together else launches) * HOST_LAUNCH)


def _steps(graph: Graph, node: Node) -> int:
    x = graph.value(str(node.inputs[0]))
    return x.shape[1 if node["batch_first"] else 0].value


def _chains(node: Node) -> int:
    return int(node["layers"]) * (2 if node["bidirectional"] else 1)


def _grade(graph: Graph, anchor: Node, pattern: str, grades: Mapping[str, str]) -> str:
    if graph.value(str(anchor.inputs[0])).dtype in ("float16", "bfloat16"):
        return "half"
    asked = grades.get(pattern, "tf32" if pattern == "convolution" else "fp32")
    return "fp32" if asked == "tf32x3" else asked


def _scale(gpu: Gpu) -> float:
    """This GPU's tensor cores against an H200's."""
    if "fp16" in gpu.tensor:
        return gpu.tensor["fp16"] / H200_FP16
    return gpu.vector.get("fp32", H200_FP32) / H200_FP32


def _machine(gpu: Gpu) -> Machine:
    return Machine(gpu, gpu.bandwidth * STREAMED, gpu.bandwidth / H200_BANDWIDTH, _scale(gpu))


def _bytes(values: Iterable[Value]) -> float:
    return float(sum(value.bytes for value in values))
