"""What following a program counts: amounts, products, and the steps that it may still take."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

from egg.evaluator.work.access import Site
from egg.evaluator.work.ttir import Op
from egg.evaluator.work.values import Known


class Watch(Protocol):
    """Receives the accesses of one program; those of an attempt that failed are taken back."""

    def access(self, op: Op, env: Mapping[str, Known], *, sure: bool) -> None: ...
    def mark(self) -> int: ...
    def take_back(self, mark: int) -> None: ...


@dataclass
class Steps:
    """How much may still be evaluated, in operations on scalars; large tiles count for more."""

    left: float

    def take(self, amount: float) -> None:
        self.left -= amount

    @property
    def short(self) -> bool:
        return self.left <= 0


@dataclass(frozen=True)
class Amount:
    """Key of a tally: ``bytes``, ``sectors``, ``granules`` of an access, or the ``most`` bytes of a store."""

    site: Site
    what: str


@dataclass(frozen=True)
class Product:
    """Key of a tally: FLOPs of matrix products on tensor cores."""

    precision: str


def bounds(key: Hashable) -> bool:
    """Whether an amount is a bound: of a row of things it is the greatest for each, not the mean."""
    return isinstance(key, Amount) and key.what == "most"


def matters(key: Hashable) -> bool:
    """Whether a difference is worth a closer look: sectors change with alignment from trip to trip."""
    return not (isinstance(key, Amount) and key.what != "bytes")
