"""Products as a pattern: what planning and fusion may ask of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from egg.core.bottleneck import Bottleneck, Limiter
from egg.core.stage import Category
from egg.expert.algebra.across import batch_dimensions, rows_of_one_matrix
from egg.expert.cost import (
    Cost,
    Grades,
    Machine,
    bytes_moved,
    bytes_of,
    grade_of,
    launched,
    library_product_seconds,
    packing_seconds,
    product_rate,
)
from egg.expert.graph import HALF, Graph, Node
from egg.expert.moves import Set
from egg.expert.parts import Group, Part, Target, Use
from egg.expert.pattern import CALIBRATED, FREE, Alternative, Anchor, Finer, LibraryChoice, Pattern, Switch
from egg.expert.patterns.product.follow import long_function
from egg.expert.patterns.product.operands import without_half_done
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.prologue import slowed_seconds
from egg.expert.patterns.product.pytorch import product_call
from egg.expert.patterns.product.write import write
from egg.expert.sizes import ONE


def operations(graph: Graph, node: Node) -> float:
    depth = graph.value(str(node.inputs[0])).shape[-1]
    return 2.0 * graph.value(node.outputs[0]).elements.value * depth.value


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    product = library_product_seconds(graph, node, operations(graph, node), "product", machine)
    return product + _copying_seconds(graph, node, machine)


COPIED, ADDED = 0.18, 0.36
"""Of a pass's bandwidth: what PyTorch's copy of a transposed operand gets, and its addition of a bias. Both
from one program, an MLP-Mixer on an H200: 53 and 50 us."""


def _copying_seconds(graph: Graph, node: Node, machine: Machine) -> float:
    """What the library takes besides the product for an operand whose rows are not one matrix in memory: a
    copy, and a pass for the bias."""
    operand, matrix = (graph.value(str(name)) for name in node.inputs[:2])
    if operand.rank < 3 or matrix.rank != 2 or rows_of_one_matrix(operand) or batch_dimensions(operand):
        return 0.0
    bias = 2.0 * graph.result(node).bytes / ADDED if len(node.inputs) > 2 and node.inputs[2] else 0.0
    copied = COPIED if operand.stride[-1] != ONE else 1.0
    return (2.0 * operand.bytes / copied + bias) / machine.memory


LONG, SHORT = 40.0, 6.0
"""Instructions for an element of an epilogue: of a function like an exact GELU, of any other operator."""


def tail_seconds(graph: Graph, group: Group, anchor: Node, machine: Machine) -> float:
    """What the epilogue of a 16-bit product takes.

    A program stores its tile when its sum is complete, and with tiles that fill a multiprocessor nothing else
    runs there meanwhile: bytes and instructions of the epilogue are added to the time of the product. A
    50176 x 1024 x 256 product with an exact GELU was seen at 175 TFLOP/s where the sum alone takes a quarter
    of that time.
    """
    operands = {str(name) for name in anchor.inputs[:2]}
    names = dict.fromkeys((*group.reads(graph), *group.writes(graph)))
    moved = bytes_of(graph.value(name) for name in names if name not in operands)
    behind = [node for node in group.nodes[group.nodes.index(anchor) + 1 :] if node.op not in FREE]
    each = sum(LONG if long_function(node) else SHORT for node in behind)
    elements = graph.value(anchor.outputs[0]).elements.value
    return moved / machine.memory + elements * each / (machine.gpu.vector["fp32"] / 2)


class Product(Pattern):
    name = "product"
    anchors = (Anchor("matmul", operations, _library_seconds, product_call),)
    stores_by_strides = True
    computes_operands = True
    shares_sizes = True
    spreads_operands = True
    takes_rows = True
    finer = (
        Finer("tf32x3", "products in three TF32 parts, without packing"),
        Finer("ieee", "products on ordinary units"),
    )
    keeps = 3
    left = LibraryChoice(
        "the library's product may be faster than ours at this shape and dtype",
        "leave {} to the library, with what follows in one pass",
        ("pointwise-fusion",),
    )
    switches = (
        Switch(
            Use.DESCRIPTORS,
            frozenset({Limiter.OCCUPANCY_REGISTERS, Limiter.SPILLS, Limiter.LATENCY, Limiter.TENSOR_IDLE}),
            Category.ASYNC_COPY,
            ("tensor-descriptors-tma",),
            "tiles brought by the copy engine, no address arithmetic",
            "nvidia",
        ),
    )

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        anchor = self.anchor(group)
        exact = grade_of(graph, anchor, grades.get(self.name, self.grade))
        rate = product_rate(self.name, exact, part, machine)
        seconds = packing_seconds(graph, anchor, part, exact, machine)
        summed = operations(graph, anchor) / rate
        if exact == "half":
            seconds += summed + tail_seconds(graph, group, anchor, machine)
        else:
            seconds += max(bytes_moved(graph, group) / machine.memory, summed)
        seconds += slowed_seconds(Problem.of(graph, group), machine.gpu)
        return launched(part, seconds)

    def margin(self, graph: Graph, group: Group) -> float | None:
        """Of 16-bit operands the library's product is faster, unless what rides on ours saves enough."""
        anchor = self.anchor(group)
        operands = [value for value in graph.operands(anchor)[:2] if value is not None]
        return CALIBRATED if all(value.dtype in HALF for value in operands) else None

    def producers(
        self, graph: Graph, anchor: Node, taken: Sequence[Node], passes: Sequence[Node]
    ) -> Sequence[Node]:
        return without_half_done(graph, anchor, taken, passes)

    def alternatives(self, group: Group, part: Part, found: Bottleneck | None) -> Iterator[Alternative]:
        """Packed operands, or operands as they lie: the other one."""
        if Use.PACKING in part.uses:
            yield Alternative(
                Category.LAUNCH_REDUCTION,
                "packing both operands costs two launches and a pass over them",
                f"{group.name} reads its operands where they lie",
                (Set(group.name, "packing", False),),
                "two launches fewer, slower products",
                ("tf32-operand-layout", "launch-reduction"),
            )
        else:
            yield Alternative(
                Category.DATA_LAYOUT,
                "operands are split and turned again for every tile that reads them",
                f"{group.name} packs its operands first",
                (Set(group.name, "packing", True),),
                "products at twice the rate, two launches more",
                ("fp32-on-tensor-cores", "tf32-operand-layout"),
            )


PRODUCT = Product()
