"""Seconds of work on a GPU and on the host, before anything is compiled: what every estimate is made of.

Rates are those that kernels were seen to reach (:attr:`egg.hardware.gpus.Gpu.attained`), scaled by the data
sheet to other GPUs (:class:`Machine`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from egg.expert.graph import HALF, HELD, Graph, Node, Value
from egg.expert.parts import Group, Part, Use
from egg.hardware.gpus import Gpu, reference

LAUNCH = 3e-6
"""Seconds between two kernels that wait in the queue."""
HOST_LAUNCH = 30e-6
"""What Python takes to launch a Triton kernel."""
HOST_CALL = 10e-6
"""What PyTorch takes for an operator."""
HOST_REPLAY, HOST_ALLOCATION = 12e-6, 2e-6
"""What a recorded graph takes, and a new tensor."""
STREAMED = 0.88
"""Of the data sheet's bandwidth, as a pass over large tensors gets it."""
LIBRARY_LEAST = 8e-6
"""Seconds of the smallest product or attention of a library."""
ATOMICS = 2.3e11
"""Atomics per second on rows that lie anywhere: 149 million floats in about 0.65 ms, on an H200."""
CACHED_ATOMICS = 5e11
"""The same on rows that stay in the L2 cache: 102 million floats on 26 MB in 0.19 ms, 34 million on 4 MB in
0.07 ms; 123 million on 41 MB are as slow as anywhere."""
CACHED = 0.6
"""Of the L2 cache, what such rows may take."""
PASSES = {"pool": 1.8, "norm": 1.5}
"""How often a pass with such an operator moves its bytes: windows overlap, statistics come first."""


Grades = Mapping[str, str]
"""By pattern: how exact its products are to be; what is not there has its default."""


@dataclass(frozen=True)
class Cost:
    """Seconds of one group on the GPU and on the host."""

    device: float
    host: float


@dataclass(frozen=True)
class Machine:
    """A GPU, and how it compares with the one on which rates were seen."""

    gpu: Gpu
    memory: float
    """Bytes per second that passes over large tensors get."""
    bandwidth: float
    """Times the reference's."""
    products: float
    """The same for tensor cores."""

    @classmethod
    def of(cls, gpu: Gpu) -> Machine:
        unit = "tensor" if "fp16" in gpu.tensor else "vector"
        known, own = (getattr(card, unit) for card in (reference(), gpu))
        precision = "fp16" if unit == "tensor" else "fp32"
        products = own.get(precision, known[precision]) / known[precision]
        return cls(gpu, gpu.bandwidth * STREAMED, gpu.bandwidth / reference().bandwidth, products)

    def rate(self, what: str) -> float:
        """Operations per second that ``what`` reaches."""
        return reference().attained[what] * self.products

    @property
    def sms(self) -> int:
        return self.gpu.sms


def launched(part: Part, seconds: float) -> Cost:
    """The kernels of ``part`` one after another: ``seconds`` of work, and what each launch takes."""
    count = len(part.launches)
    return Cost(count * LAUNCH + seconds, count * HOST_LAUNCH)


def bytes_of(values: Iterable[Value]) -> float:
    return float(sum(value.bytes for value in values))


def bytes_moved(graph: Graph, group: Group) -> float:
    """Operands and results of a group, each once; of a tensor that gets few elements these alone."""
    onto = [node for node in group.nodes if node.op == "scatter" and node.get("in_place")]
    whole = {name for node in onto for name in (node.inputs[2], node.output)}
    names = dict.fromkeys(
        (*group.reads(graph), *group.writes(graph), *(str(node.inputs[0]) for node in onto))
    )
    return bytes_of(graph.value(name) for name in names if name not in whole)


def call_bytes(graph: Graph, node: Node) -> float:
    """What one operator of PyTorch reads and writes."""
    values = [value for value in graph.operands(node) if value is not None]
    return bytes_of([*values, *(graph.value(name) for name in node.outputs)])


def stream_seconds(moved: float, machine: Machine) -> float:
    """One launch that passes over memory."""
    return moved / machine.memory + LAUNCH


def passes(nodes: Iterable[Node]) -> float:
    """How often a pass with these operators moves its bytes."""
    return max((PASSES.get(node.op, 1.0) for node in nodes), default=1.0)


def atomic_seconds(graph: Graph, nodes: Iterable[Node], machine: Machine) -> float:
    """Elements that join others in memory, one atomic each."""
    joined = (node for node in nodes if node.op == "scatter" and node["fn"] != "store")
    return sum(
        graph.value(str(node.inputs[0])).elements.value / atomics_per_second(graph.result(node), machine)
        for node in joined
    )


def atomics_per_second(made: Value, machine: Machine) -> float:
    """By the result that elements join."""
    cached = made.bytes <= CACHED * machine.gpu.l2_bytes
    return (CACHED_ATOMICS if cached else ATOMICS) * machine.bandwidth


def library_product_seconds(
    graph: Graph, node: Node, operations: float, what: str, machine: Machine
) -> float:
    """One product or attention of a library."""
    half = graph.value(str(node.inputs[0])).dtype in HALF
    stream = stream_seconds(call_bytes(graph, node), machine)
    rate = machine.rate(f"library {what}, {'half' if half else 'fp32'}")
    return max(stream, LIBRARY_LEAST, operations / rate)


def packing_seconds(graph: Graph, anchor: Node, part: Part, grade: str, machine: Machine) -> float:
    """Both operands are read once, written as 16-bit parts and those are read."""
    if Use.PACKING not in part.uses:
        return 0.0
    kept = Use.KEPT_WEIGHTS in part.uses
    packing = [v for v in graph.operands(anchor)[:2] if v is not None and not (kept and v.origin in HELD)]
    return bytes_of(packing) * (2.0 if grade == "fp32" else 1.5) / machine.memory


def product_rate(what: str, grade: str, part: Part, machine: Machine) -> float:
    """Operations per second of a kernel around products; a grade without a figure has the ordinary units'."""
    if grade == "int8":  # two of them in the room of one number of 16 bits
        return 2.0 * product_rate(what, "half", part, machine)
    how = f"{what}, {grade}, {'packed' if Use.PACKING in part.uses else 'direct'}"
    return machine.rate(how if how in reference().attained else "ordinary units")


def grade_of(graph: Graph, anchor: Node, asked: str) -> str:
    """How exactly operands are multiplied, for the rate that is reached."""
    dtype = graph.value(str(anchor.inputs[0])).dtype
    if dtype in HALF:
        return "half"
    if dtype == "int8":
        return dtype
    return "fp32" if asked == "tf32x3" else asked
