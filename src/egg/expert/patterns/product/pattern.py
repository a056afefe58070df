"""Products as a pattern: what planning and fusion may ask of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from egg.core.bottleneck import Bottleneck, Limiter
from egg.core.stage import Category
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
from egg.expert.graph import HALF, Graph, Node
from egg.expert.moves import Set
from egg.expert.parts import Group, Part, Target, Use
from egg.expert.pattern import CALIBRATED, FREE, Alternative, Anchor, Finer, LibraryChoice, Pattern, Switch
from egg.expert.patterns.product.operands import without_half_done
from egg.expert.patterns.product.problem import Problem
from egg.expert.patterns.product.prologue import slowed_seconds
from egg.expert.patterns.product.pytorch import product_call
from egg.expert.patterns.product.write import write


def operations(graph: Graph, node: Node) -> float:
    depth = graph.value(str(node.inputs[0])).shape[-1]
    return 2.0 * graph.value(node.outputs[0]).elements.value * depth.value


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    return library_product_seconds(graph, node, operations(graph, node), "product", machine)


CROWDED_RATE = 0.8
"""Of the rate of 16-bit products, where the epilogue has long functions: their values and the accumulators
share the registers. 450 TFLOP/s seen with an exact GELU behind 8192 x 4096 x 1024."""
TAILED_RATE = 0.93
"""The same where anything but a bias rides on the product."""
CROWDING = frozenset({"gelu", "gelu_tanh", "erf", "tanh", "silu", "sigmoid", "softplus", "mish", "exp"})


def tail_rate(group: Group, anchor: Node, exact: str) -> float:
    """Of a kernel's rate, what its epilogue leaves."""
    behind = group.nodes[group.nodes.index(anchor) + 1 :]
    long = any(node.op == "pointwise" and node["fn"] in CROWDING for node in behind)
    tailed = any(node.op not in FREE for node in behind)
    return 1.0 if exact != "half" else CROWDED_RATE if long else TAILED_RATE if tailed else 1.0


class Product(Pattern):
    name = "product"
    anchors = (Anchor("matmul", operations, _library_seconds, product_call),)
    stores_by_strides = True
    computes_operands = True
    shares_sizes = True
    spreads_operands = True
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
        anchor = next(node for node in group.nodes if node.op == "matmul")
        exact = grade_of(graph, anchor, grades.get(self.name, self.grade))
        count = len(part.launches)
        rate = product_rate(self.name, exact, part, machine) * tail_rate(group, anchor, exact)
        seconds = count * LAUNCH + packing_seconds(graph, anchor, part, exact, machine)
        seconds += max(bytes_moved(graph, group) / machine.memory, operations(graph, anchor) / rate)
        seconds += slowed_seconds(Problem.of(graph, group), machine.gpu)
        return Cost(seconds, count * HOST_LAUNCH)

    def margin(self, graph: Graph, group: Group) -> float | None:
        """Of 16-bit operands the library's product is faster, unless what rides on ours saves enough."""
        anchor = next(node for node in group.nodes if node.op == "matmul")
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
