"""Passes over memory as a pattern: what planning and fusion may ask of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from egg.core.bottleneck import Bottleneck, Limiter
from egg.core.stage import Category
from egg.expert.cost import Cost, Grades, Machine, atomic_seconds, bytes_moved, launched, passes
from egg.expert.graph import Graph
from egg.expert.moves import FILE, Set
from egg.expert.parts import Group, Part, Target, Unfit
from egg.expert.pattern import (
    BELIEVED,
    CROWDED,
    Alternative,
    Pattern,
    Refused,
    Repair,
    Symptom,
    first_value,
    left_to_pytorch,
)
from egg.expert.patterns.loops.write import OPS, write


class Loops(Pattern):
    name = "loops"
    streams = OPS
    stores_by_strides = True
    computes_operands = True
    shares_sizes = True

    def write(self, graph: Graph, group: Group, target: Target) -> Part:
        try:
            return write(graph, group, target)
        except RecursionError as deep:  # each value is read by way of what it follows from
            raise Unfit("values that follow from each other in too long a chain") from deep

    def cost(self, graph: Graph, group: Group, part: Part, grades: Grades, machine: Machine) -> Cost:
        moved = passes(group.nodes) * bytes_moved(graph, group) / machine.memory
        atomics = atomic_seconds(graph, group.nodes, machine)
        return launched(part, max(moved, atomics))

    def alternatives(self, group: Group, part: Part, found: Bottleneck | None) -> Iterator[Alternative]:
        """Rows in registers, rows in blocks, rows split over programs: the other one where this suffers.
        Lists instead of atomics, where elements join others."""
        kinds = {node.op for node in group.nodes}
        if any(node.op == "scatter" and node["fn"] != "store" for node in group.nodes):
            yield LISTED
        if found is None or "selection" in kinds or not kinds & {"reduce", "softmax", "norm"}:
            return
        names = {constant.name.removeprefix(f"{group.name.upper()}_") for constant in part.constants}
        relief = {first_value(group): max(1.0, found.gain) ** BELIEVED}
        if found.limiter in CROWDED and "BLOCK_R" not in names:
            yield Alternative(
                Category.ALGORITHM_REPLACEMENT,
                "whole rows in registers leave room for too few warps",
                f"{group.name} walks its rows block by block",
                (Set(group.name, "mode", "looped"),),
                "fewer registers, rows read again from the cache",
                ("welford-norm", "online-softmax", "one-pass-norm"),
                relief,
            )
        elif found.limiter is Limiter.SMALL_GRID and "SPLITS" not in names:
            yield Alternative(
                Category.KERNEL_SPLIT,
                "fewer programs than the GPU has room for",
                f"{group.name} splits its rows over several programs",
                (Set(group.name, "mode", "split"),),
                "a full GPU, and a second kernel that joins the parts",
                ("split-reduction",),
                relief,
            )

    def repairs(self, graph: Graph, groups: Sequence[Group], refused: Refused) -> Iterator[Repair]:
        """Cumulative sums in a program that takes exponentials are left to PyTorch.

        ``exp`` of a sum near 40 turns its last bit into a relative error of 4e-6, more than the judge allows
        where the reference was lucky; only the same order of summation has the same luck.
        """
        if refused.symptom is not Symptom.INEXACT:
            return
        if not any(node.op == "pointwise" and node.get("fn") == "exp" for node in graph.nodes):
            return
        sums = [g for g in groups if any(n.op == "scan" and n["fn"] == "sum" for n in g.nodes)]
        if sums:
            sentence = "exponentials follow cumulative sums: PyTorch's own are rounded as there"
            yield Repair(left_to_pytorch(sums), sentence)


LISTED = Alternative(
    Category.ALGORITHM_REPLACEMENT,
    "every element that joins others is an atomic, and many may wait for one place",
    "rows that join others are filed under their places and joined there, however few they are",
    (Set(FILE, "lists", True),),
    "an integer atomic for each row instead of one for each element",
    ("scatter-to-gather",),
)
LOOPS = Loops()
