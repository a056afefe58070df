"""What is changed after a refusal: the next more careful way to write the same program."""

from __future__ import annotations

from dataclasses import dataclass

from egg.core.evaluation import Refusal
from egg.expert.moves import Alone, Grade, Move, Without


@dataclass(frozen=True)
class Mend:
    """Moves, and the sentence that explains them."""

    moves: tuple[Move, ...]
    sentence: str


ACCURACY = frozenset({"correctness.error"})
"""Refusals that say: too inexact, though not plainly wrong."""

_EXACT = (
    Mend(
        (Grade("convolution", "fp32"),),
        "the reference's convolutions run in fp32 here: split operands instead of one TF32 product",
    ),
    Mend(
        (Grade("convolution", "ieee"), Grade("product", "tf32x3")),
        "products in three TF32 parts, without packing",
    ),
    Mend((Grade("product", "ieee"),), "products on ordinary units"),
)
_SIMPLE = (
    Mend((Alone("convolution"), Alone("product")), "nothing rides on products and convolutions"),
    Mend((Without("convolution"),), "convolutions stay with the library"),
    Mend((Without("product"),), "products stay with the library"),
    Mend((Without("attention"), Without("recurrent")), "only loops are ours"),
)


def mended(refusal: Refusal, count: int) -> Mend:
    """The mend for the refusal that came after ``count`` earlier ones in this step."""
    ladder = (*_EXACT, *_SIMPLE[1:]) if refusal.reason in ACCURACY else _SIMPLE
    return ladder[min(count, len(ladder) - 1)]
