"""The operator family of a task: what kind of work it is, so that scores can be split by it.

A task is rarely one operation. What counts is what a kernel engineer would call it: a product with eleven
pointwise operations behind it is a product, though eager PyTorch spends most of its time on the eleven. So
families are asked in order of how much they decide about a kernel, and each has only to reach a small share
(:data:`MATTERS`) of the time that eager would take on its GPU:

1. *network*: several layers of several kinds. Three or more multiplying operations among at least three kinds
   of work that matter, or eight or more among two; pointwise work, copies and indexing are no kind here.
2. *attention*: PyTorch's own, or a softmax with two batched products around it.
3. *recurrence*, then the largest of *convolution* and *product*.
4. *loss*, whatever its share: next to the softmax before it, it takes no time. Then *scan*, *normalization*,
   *softmax*, *pooling*, *reduction*. A reduction whose result is as large as its input has been spread over
   it again: that is a normalization written by hand.
5. Whatever takes the most time: *pointwise*, *gather*, *movement*, *random*, *other*.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from egg.core.facts import Facts, Family, ProgramFacts

MATTERS = 0.05
"""Share of eager's time from which on a family says what a task is."""
FEW_LAYERS, MANY_LAYERS = 3, 8
NOMINAL = "H100"
"""The GPU on which shares are taken where a task comes without facts."""


class WholeFamily(StrEnum):
    """Families that tasks have and operations have not."""

    NETWORK = "network"
    UNKNOWN = "unknown"
    """The task could not be run on meta tensors, or was not tried."""


WorkFamily = Family | WholeFamily
"""The family of a task."""


_NO_KIND = {Family.POINTWISE, Family.MOVEMENT, Family.RANDOM, Family.GATHER, Family.OTHER}
_DECIDING = (Family.SCAN, Family.NORMALIZATION, Family.SOFTMAX, Family.POOLING, Family.REDUCTION)
_BATCHED = ("aten.bmm ", "aten.baddbmm ")


def family_of(facts: Facts) -> WorkFamily:
    """What kind of task these are the facts of."""
    program = facts.program
    if program is None:
        return WholeFamily.UNKNOWN
    spent = facts.gpu.savings.eager_by_family if facts.gpu.savings is not None else program.flops_by_family
    shares = _shares(spent)
    if not shares:
        return WholeFamily.UNKNOWN
    if _is_network(shares, program):
        return WholeFamily.NETWORK
    return _deciding(shares, program)


def _shares(spent: Mapping[str, float]) -> dict[Family, float]:
    """Of what is spent in all, the largest first; families that cost nothing are left out."""
    total = sum(spent.values())
    found = {Family(name): value / total for name, value in spent.items() if value > 0} if total > 0 else {}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0].value)))


def _is_network(shares: Mapping[Family, float], program: ProgramFacts) -> bool:
    kinds = sum(share >= MATTERS for family, share in shares.items() if family not in _NO_KIND)
    layers = sum(_count(program, name) for name in ("products", "convolutions"))
    return (layers >= FEW_LAYERS and kinds >= 3) or (layers >= MANY_LAYERS and kinds >= 2)


def _count(program: ProgramFacts, trait: str) -> int:
    value = program.traits.get(trait, 0)
    return value if isinstance(value, int) else 0


def _deciding(shares: Mapping[Family, float], program: ProgramFacts) -> Family:
    mattering = [family for family, share in shares.items() if share >= MATTERS]
    if Family.ATTENTION in mattering or (Family.SOFTMAX in shares and _batched_products(program) >= 2):
        return Family.ATTENTION
    if Family.RECURRENCE in mattering:
        return Family.RECURRENCE
    multiplying = next((family for family in mattering if family.multiplies), None)
    if multiplying is not None:
        return multiplying
    if Family.LOSS in shares:
        return Family.LOSS
    decided = next((family for family in _DECIDING if family in mattering), None)
    if decided is Family.REDUCTION and _as_large_as_its_input(program):
        return Family.NORMALIZATION
    return decided or next(iter(shares))


def _batched_products(program: ProgramFacts) -> int:
    return sum(line.startswith(_BATCHED) for line in program.operations)


def _as_large_as_its_input(program: ProgramFacts) -> bool:
    made, given = (program.traits.get(f"{which}_bytes", 0) for which in ("outputs", "inputs"))
    return isinstance(made, int) and isinstance(given, int) and 0 < given <= 2 * made
