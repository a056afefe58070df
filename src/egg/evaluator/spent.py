"""How much work operators of PyTorch did, so that a program can be compared with another under other names.

Three sums that are not added up: operations of products (matrix products, convolutions, attention),
operations of everything else that computes, and bytes that were moved to other places. The conventions are
those of :mod:`egg.evaluator.task.costs`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from egg.core.facts import Family
from egg.evaluator.task.costs import Call, family_of, flops_of, size_of

PRODUCTS = (Family.PRODUCT, Family.CONVOLUTION, Family.ATTENTION, Family.RECURRENCE)

SEVERAL = {"logsumexp": 4.0, "var": 3.0, "std": 3.0, "var_mean": 3.0, "std_mean": 3.0}
"""Reductions that take several operations for each element: maximum, difference, exponential, sum."""


@dataclass(frozen=True)
class Work:
    products: float = 0.0
    others: float = 0.0
    moved: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.products + other.products, self.others + other.others, self.moved + other.moved)

    def __bool__(self) -> bool:
        return any(astuple(self))

    def covers(self, other: Work, share: float) -> bool:
        """Whether this is nearly as much as ``other`` in each respect in which that is anything.

        A product may be done as products, or element by element (a multiplication and a sum).
        """
        products = self.products >= share * other.products or (
            self.products + self.others >= share * (other.products + other.others)
        )
        return products and self.others >= share * other.others and self.moved >= share * other.moved

    def to_json(self) -> list[float]:
        return list(astuple(self))

    @classmethod
    def from_json(cls, data: Sequence[float]) -> Work:
        return cls(*(float(number) for number in data))


def work_of(func: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Work:
    call = Call(name, func, args, kwargs, out)
    family = family_of(name, func)
    if family is Family.MOVEMENT or name in ("pad", "repeat_interleave"):
        return Work(moved=float(sum(map(size_of, call.made))))
    if family is Family.GATHER:
        return Work(others=float(sum(t.numel() for t in call.made)))
    amount = flops_of(call, family) * SEVERAL.get(name, 1.0)
    return Work(products=amount) if family in PRODUCTS else Work(others=amount)
