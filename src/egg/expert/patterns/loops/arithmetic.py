"""Passes that compute more than memory makes them wait for."""

from __future__ import annotations

from egg.expert.emit.triton.scalar import cheap
from egg.expert.graph import BYTES, Node
from egg.expert.parts import Target
from egg.expert.patterns.loops.work import Work

SPECIAL = 12
"""Instructions of a special function or a division; of anything else one."""
MARGIN = 2.0
"""How many times longer than memory the arithmetic must take, since both are estimates."""


def is_heavy(work: Work, target: Target) -> bool:
    """Whether the instructions for an element take longer than its bytes.

    A loss of logits by several special functions (focal, distances of boxes) has some 90 instructions for
    the two bytes of a logit, where an H200 has time for 14. Such a pass wants many warps, hence few elements
    to a thread: each has its own registers for all that is in between.
    """
    domain = work.domain
    whole = domain.outer_size.value * domain.kept_size.value * domain.reduced_size.value
    moved = sum(
        BYTES.get(value.dtype, 4)
        for value in map(work.graph.value, {*work.group.reads(work.graph), *work.writes})
        if value.elements.value * 2 > whole
    )
    made = (n for n in work.group.nodes if n.op in ("pointwise", "where"))
    instructions = sum(_weight(node) for node in made if work.graph.result(node).elements.value * 2 > whole)
    each_byte = target.gpu.vector["fp32"] / 2 / target.gpu.bandwidth
    return instructions > MARGIN * each_byte * moved


def _weight(node: Node) -> int:
    return SPECIAL if node.op == "pointwise" and not cheap(node["fn"]) else 1
