"""Convolutions as a pattern: what planning and fusion may ask of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from egg.expert.cost import Cost, Grades, Machine, bytes_moved, launched
from egg.expert.emit.reader import is_fixed_norm
from egg.expert.emit.triton.scalar import cheap
from egg.expert.graph import Graph, Node
from egg.expert.moves import Set
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import (
    CALIBRATED,
    MARGIN,
    Anchor,
    Finer,
    LibraryChoice,
    Pattern,
    Refused,
    Repair,
    Symptom,
)
from egg.expert.patterns.convolution.cost import library_seconds, lies_as_wanted, operations, own_seconds
from egg.expert.patterns.convolution.pytorch import convolution_call
from egg.expert.patterns.convolution.write import write
from egg.expert.sizes import ONE, as_size

SLIGHT = 4.0
"""Times the allowed error up to which a few finer convolutions may be enough."""
LIGHT = 0.34
"""Share of the convolutions' operations that those few may have."""


FEW_TAPS = 9
"""At which a stencil may compute a special function of its operand again."""


class Convolution(Pattern):
    name = "convolution"
    anchors = (Anchor("conv", operations, library_seconds, convolution_call),)
    stores_by_strides = True
    computes_operands = True
    shares_sizes = True
    weighed_first = True
    grade = "tf32"
    finer = (
        Finer(
            "fp32",
            "the reference's convolutions run in fp32 here: split operands instead of one TF32 product",
        ),
        Finer("ieee", "convolutions on ordinary units"),
    )
    left = LibraryChoice(
        "packing and an implicit product may cost more than the library's own algorithm",
        "leave {} to the library, with what follows in one pass",
        ("convolution-tail-fusion",),
    )

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        return write(graph, group, target)

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        moved = bytes_moved(graph, group)
        seconds = own_seconds(graph, group, part, grades.get(self.name), machine, moved)
        whole = (node for node in group.nodes if node.op == "norm" and not is_fixed_norm(node))
        if any(whole):  # applied when its statistics are whole
            anchor = self.anchor(group)
            seconds += 2 * graph.value(anchor.outputs[0]).bytes / machine.memory
        return launched(part, seconds)

    def margin(self, graph: Graph, group: Group) -> float | None:
        """The library's convolutions on the tensor cores, in its own layout, are seldom slower than ours."""
        return CALIBRATED if lies_as_wanted(graph, self.anchor(group)) else MARGIN

    def producers(
        self, graph: Graph, anchor: Node, taken: Sequence[Node], passes: Sequence[Node]
    ) -> Sequence[Node]:
        """A stencil computes its operand once for each tap, others pack it once. Special functions
        at many taps take longer than a pass that stores their results."""
        many = _stencil_taps(graph, anchor) > FEW_TAPS
        return [] if many and any(_is_special(node) for node in taken) else taken

    def waits_for(self, nodes: Iterable[Node]) -> bool:
        """A norm may fit only together with what follows it."""
        return any(node.op == "norm" for node in nodes)

    def repairs(self, graph: Graph, groups: Sequence[Group], refused: Refused) -> Iterator[Repair]:
        """PyTorch runs most convolutions in TF32, but not all: the cheapest ones finer, where a slight error
        leaves the choice."""
        slight = refused.excess is not None and refused.excess <= SLIGHT
        if refused.symptom is not Symptom.INEXACT or not slight:
            return
        if light := _light(graph, groups):
            set_already = [name for name in light if "grade" in refused.recipe.settings.get(name, {})]
            yield Repair(
                tuple(Set(name, "grade", "fp32") for name in light if name not in set_already),
                f"the reference runs some convolutions in fp32: {', '.join(light)} with split operands",
            )


def _stencil_taps(graph: Graph, anchor: Node) -> int:
    """Taps of a convolution with one input channel per output channel; 0 for all others."""
    x, weight = (graph.value(str(name)) for name in anchor.inputs[:2])
    if x.shape[1] == ONE or x.shape[1] != as_size(anchor.get("groups", 1)):
        return 0
    return prod(size.value for size in weight.shape[2:])


def _is_special(node: Node) -> bool:
    return node.op == "pointwise" and not cheap(str(node["fn"]))


def _light(graph: Graph, groups: Sequence[Group]) -> list[str]:
    """Names of the groups with the least work."""
    work: dict[str, float] = {}
    for group in groups:
        for node in group.nodes:
            if node.op == "conv":
                work[group.name] = work.get(group.name, 0.0) + operations(graph, node)
    light: list[str] = []
    left = LIGHT * sum(work.values())
    for name in sorted(work, key=lambda name: work[name]):
        left -= work[name]
        if left < 0:
            break
        light.append(name)
    return light


CONVOLUTION = Convolution()
