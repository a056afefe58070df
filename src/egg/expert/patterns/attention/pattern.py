"""Attention as a pattern: what planning and fusion may ask of it."""

from __future__ import annotations

from egg.expert.cost import (
    HOST_LAUNCH,
    LAUNCH,
    Cost,
    Grades,
    Machine,
    bytes_moved,
    grade_of,
    library_product_seconds,
    packing_seconds,
    product_rate,
)
from egg.expert.emit.triton.scalar import cheap
from egg.expert.graph import HALF, Graph, Node
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import CALIBRATED, Anchor, LibraryChoice, Pattern
from egg.expert.patterns.attention.problem import FEW_QUERIES
from egg.expert.patterns.attention.pytorch import attention_call
from egg.expert.patterns.attention.write import write


def operations(graph: Graph, node: Node) -> float:
    made, queries, keys = (graph.value(str(name)) for name in (node.outputs[0], *node.inputs[:2]))
    whole = 2.0 * (queries.elements.value + made.elements.value) * keys.shape[-2].value
    return whole / 2 if node.get("causal") else whole


PREFILL_RATE = 0.8
"""Of the rate of 16-bit attention, what ours reaches with many queries: 0.178 ms where PyTorch's flash kernel
takes 0.148, for 32 heads of 128 over 2048 places, causal."""
MASKED_RATE = 0.5
"""The same for a library's attention with a mask, which its flash kernel does not take."""
SPECIAL = 16
"""Exponentials, quotients and their like that a multiprocessor has in a cycle."""
FLASH_DEPTH = 256
"""The widest head of a library's flash kernel."""


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    work = operations(graph, node)
    if len(node.inputs) > 4:
        return _stored_seconds(graph, node, machine)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        work /= MASKED_RATE
    return library_product_seconds(graph, node, work, "attention", machine)


def _scores(graph: Graph, node: Node) -> float:
    """How many there are, those that a triangle hides included."""
    queries, keys = (graph.value(str(name)) for name in node.inputs[:2])
    return float(queries.elements.value // queries.shape[-1].value * keys.shape[-2].value)


def _stored_seconds(graph: Graph, node: Node, machine: Machine) -> float:
    """Two products and a pass over stored scores for each operator between: all functions of the score, the
    scale, the mask, the column of a sink joined and dropped, the softmax. Each reads and writes them."""
    whole = operations(graph, node) * (2.0 if node.get("causal") else 1.0)
    masked = bool(node.get("causal")) or node.inputs[3] is not None
    passes = 2 + masked + len(node.get("steps") or ()) + 2 * (node.inputs[4] is not None)
    queries = graph.value(str(node.inputs[0]))
    moved = _scores(graph, node) * queries.bytes / queries.elements.value
    products = library_product_seconds(graph, node, whole, "product", machine)
    return products + (passes + 1) * (2 * moved / machine.memory + LAUNCH)


def _function_seconds(graph: Graph, node: Node, machine: Machine) -> float:
    """What special functions of the score take beside the products: two each, an exponential and a quotient,
    at a sixteenth of a multiprocessor's lanes."""
    dear = sum(not cheap(fn) for fn, *_ in node.get("steps") or ())
    computed = _scores(graph, node) / (2.0 if node.get("causal") else 1.0)
    return 2 * dear * computed / (SPECIAL * machine.gpu.sms * machine.gpu.clock)


def _by_flash(graph: Graph, node: Node) -> bool:
    """Whether a library has a flash kernel for it that is ahead of ours: 16-bit operands, many queries, no
    mask, the same width of keys and values."""
    q, k, v = (graph.value(str(name)) for name in node.inputs[:3])
    masked = len(node.inputs) > 3 and node.inputs[3] is not None
    keys, values = k.shape[-1].value, v.shape[-1].value
    wide = keys != values or keys > FLASH_DEPTH or keys % 8 != 0
    if len(node.inputs) > 4:
        return False
    return q.dtype in HALF and q.shape[-2].value > FEW_QUERIES and not masked and not wide and q.rank == 4


class Attention(Pattern):
    name = "attention"
    anchors = (Anchor("attention", operations, _library_seconds, attention_call),)
    computes_operands = True
    keeps = 1
    left = LibraryChoice(
        "the library's attention may be faster than ours at this shape and dtype",
        "leave {} to the library",
        ("flash-attention",),
    )

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        anchor = self.anchor(group)
        exact = grade_of(graph, anchor, grades.get(self.name, self.grade))
        count = len(part.launches)
        rate = product_rate(self.name, exact, part, machine)
        rate *= PREFILL_RATE if exact == "half" else 1.0
        seconds = count * LAUNCH + packing_seconds(graph, anchor, part, exact, machine)
        computing = operations(graph, anchor) / rate + _function_seconds(graph, anchor, machine)
        seconds += max(bytes_moved(graph, group) / machine.memory, computing)
        return Cost(seconds, count * HOST_LAUNCH)

    def margin(self, graph: Graph, group: Group) -> float | None:
        """Many queries of 16 bits without a mask are the library's case."""
        anchor = self.anchor(group)
        return CALIBRATED if _by_flash(graph, anchor) else None


ATTENTION = Attention()
