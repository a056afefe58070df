"""What follows what in a program, in the words that skills ask in.

The values that operations read and write join them into chains; what an expert fuses, moves or
cancels is decided by such neighbours: a sum right behind a product, a norm in front of one, a
softmax between two. Traits of single operations are in :mod:`egg.evaluator.task.traits`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from egg.core.bottleneck import Value
from egg.core.facts import Family, Operation, Workload

MATTERS = 0.05
"""Share of the work or bytes of its family from which on an operation says what kind of program it is."""
SHRINKS = 4
"""A reduction behind linear work is worth moving in front of it where it leaves at most one of so many."""
LINEAR = ("sum", "mean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d")
LINEAR_TOO = ("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
"""Reductions that commute with products and convolutions."""
AFFINE = ("add", "sub", "mul", "div")
BETWEEN = (Family.POINTWISE, Family.MOVEMENT, Family.RANDOM)
"""What may stand between the products of attention and its softmax."""


def chains_of(work: Workload) -> dict[str, Value]:
    """What follows what, by the values that operations read and write."""
    makers = {value: op for op in work.operations for value in op.writes}
    heavy = [op for family in (Family.PRODUCT, Family.CONVOLUTION) for op in weighty(work, family)]
    linear = [op for op in work.operations if plain(op.name) in (*LINEAR, *LINEAR_TOO) and _shrinks(op)]
    counted = {id(op) for op in heavy}
    uses = Counter([*(value for op in work.operations for value in set(op.reads)), *work.kept])
    return {
        "linear_reduction": any(id(_behind_affine(op, makers, uses)) in counted for op in linear),
        "chained_products": any(
            op.family is Family.PRODUCT and before.family is Family.PRODUCT
            for op in heavy
            for before in _read_from(op, makers)
        ),
        "fed_product": any(
            _makes_an_operand(made, makers) for op in heavy for made in _read_from(op, makers)
        ),
        "written_attention": any(_is_attention(op, work) for op in work.operations),
    }


def _read_from(op: Operation, makers: Mapping[int, Operation]) -> list[Operation]:
    return [makers[value] for value in op.reads if value in makers and makers[value] is not op]


def _shrinks(op: Operation) -> bool:
    made = op.outputs[0].elements if op.outputs else 0
    return bool(op.inputs) and op.inputs[0].elements >= SHRINKS * made > 0


def _behind_affine(
    op: Operation, makers: Mapping[int, Operation], uses: Mapping[int, int]
) -> Operation | None:
    """Who made what it alone reads, looking through scales and shifts by what no operation made."""
    value = op.reads[0] if op.reads else None
    while value is not None and uses[value] == 1 and (found := makers.get(value)) is not None:
        if plain(found.name) not in AFFINE or not found.outputs:
            return found
        full = [form.elements == found.outputs[0].elements for form in found.inputs]
        at = full.index(True) if full.count(True) == 1 else 0
        others = [other for place, other in enumerate(found.reads) if place != at]
        divides = plain(found.name) == "div" and at > 0
        if full.count(True) != 1 or divides or any(other in makers for other in others):
            return None
        value = found.reads[at]
    return None


def _makes_an_operand(op: Operation, makers: Mapping[int, Operation]) -> bool:
    """Whether a product could do this to an operand as it loads it: an activation right behind another
    product is done there instead."""
    if op.family is Family.POINTWISE:
        return bool(op.inputs) and not any(before.family.multiplies for before in _read_from(op, makers))
    return op.family in (Family.NORMALIZATION, Family.MOVEMENT, Family.GATHER) and bool(op.inputs)


def _is_attention(softmax: Operation, work: Workload) -> bool:
    """A softmax of one product's result that another product takes, with no other kind of work between."""
    if softmax.family is not Family.SOFTMAX:
        return False
    needed, scores = set(softmax.reads), False
    for op in reversed(work.operations):
        if needed & set(op.writes):
            scores = scores or op.family is Family.PRODUCT
            needed |= set(op.reads) if op.family in BETWEEN else set()
    reached = set(softmax.writes)
    for op in work.operations:
        if reached & set(op.reads):
            if op.family is Family.PRODUCT:
                return scores
            reached |= set(op.writes) if op.family in BETWEEN else set()
    return False


def plain(name: str) -> str:
    """``argmax`` of ``aten.argmax``; an in-place operator goes by the name of the other."""
    return name.rpartition(".")[2].removesuffix("_")


def weighty(work: Workload, family: Family) -> list[Operation]:
    """Those with a share of what their family does or moves that counts."""
    found = [op for op in work.operations if op.family is family]
    flops, moved = sum(op.flops for op in found), sum(op.bytes for op in found)
    return [op for op in found if op.flops >= MATTERS * flops or op.bytes >= MATTERS * moved]
