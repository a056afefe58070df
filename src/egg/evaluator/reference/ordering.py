"""Operators that order elements, and which of equal ones comes first.

PyTorch leaves that open for ``topk``, ``sort`` and ``argsort`` without ``stable=True``, ``kthvalue``,
``median`` and ``mode``: it is another one on a CPU than on a GPU. For ``argmax``, ``argmin`` and ``max`` and
``min`` along a dimension it is the first by the documentation, and these are no operators of that kind.

:class:`Ordered` runs a program with each such operator's equal elements in an order that is asked for, and
notes what was chosen; :class:`Chosen` lets another run (in fp64, where other elements are equal) choose the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from egg.core.errors import TaskError
from egg.evaluator.operators.ops import base_name

ARRANGING = frozenset({"topk.default", "sort.default", "sort.stable"})
SELECTING = frozenset({"kthvalue.default", "median.dim", "nanmedian.dim", "mode.default"})


class Order(StrEnum):
    """Of equal elements."""

    OWN = "as PyTorch has them"
    FIRST = "the first of them first"
    LAST = "the last of them first"


Way = Order | torch.Tensor
"""An order, or the very indices."""


class Impossible(TaskError):
    """Indices that no order of equal elements gives."""


@dataclass(frozen=True)
class Choice:
    """What one operator chose."""

    name: str
    indices: torch.Tensor
    ties: bool = False
    """Whether it could have chosen otherwise."""


def open_order(func: Any, kwargs: Mapping[str, Any]) -> str:
    """The operator's name where the order of equal elements is left open, else nothing."""
    name = f"{base_name(func)}.{func._overloadname}"
    stable = name == "sort.stable" and kwargs.get("stable")
    return name if name in ARRANGING | SELECTING and not stable else ""


class Ordered(TorchDispatchMode):
    """Breaks ties as asked: ``ways`` holds for one operator after the other, the last for all that follow."""

    def __init__(self, ways: Sequence[Way]) -> None:
        super().__init__()
        self._ways = ways
        self.choices: list[Choice] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = open_order(func, kwargs)
        if not name or not args[0].dim() or not result[1].numel():
            return result
        way = self._ways[min(len(self.choices), len(self._ways) - 1)]
        call = _Call(name, _bound(func, args, kwargs), *result)
        first, last = call.first(), call.last()
        ties = not (torch.equal(result[1], first) and torch.equal(result[1], last))
        indices = result[1]
        if isinstance(way, torch.Tensor):
            indices = way.reshape(indices.shape).to(indices.dtype)
            if not call.possible(indices):
                raise Impossible(f"{name} cannot give these indices", "they are the candidate's")
        elif way is not Order.OWN:
            indices = first if way is Order.FIRST else last
        self.choices.append(Choice(name, indices.clone(), ties))
        return result if way is Order.OWN else call.answer(indices)


class Chosen:
    """Gives each operator of another run what was chosen at its place."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self._choices = iter(choices)

    def answer(
        self, func: Any, args: Any, kwargs: Mapping[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """``None`` where nothing was chosen."""
        name = open_order(func, kwargs)
        if not name or not args[0].dim():
            return None
        values, indices = func(*args, **kwargs)
        if not indices.numel():
            return None
        choice = next(self._choices, None)
        if choice is None or choice.name != name or choice.indices.shape != indices.shape:
            raise Impossible(f"{name} was not called at this place before", "the choice cannot be repeated")
        return _Call(name, _bound(func, args, kwargs), values, indices).answer(choice.indices)


@dataclass(frozen=True)
class _Call:
    """One call of such an operator, and PyTorch's answer."""

    name: str
    given: Mapping[str, Any]
    values: torch.Tensor
    indices: torch.Tensor

    @property
    def _input(self) -> torch.Tensor:
        return self.given["self"]

    @property
    def _dim(self) -> int:
        return self.given["dim"] % self._input.dim()

    @property
    def _dropped(self) -> bool:
        """Whether the results lack the dimension along which one element was selected."""
        return self.name in SELECTING and not self.given["keepdim"]

    def first(self) -> torch.Tensor:
        return self._arranged(self._input) if self.name in ARRANGING else self._selected(self._equal())

    def last(self) -> torch.Tensor:
        """As the first of what lies the other way round."""
        if self.name in ARRANGING:
            found = self._arranged(self._input.flip(self._dim))
        else:
            found = self._selected(self._equal().flip(self._dim))
        return self._input.shape[self._dim] - 1 - found

    def _arranged(self, values: torch.Tensor) -> torch.Tensor:
        falling = self.given["largest"] if "largest" in self.given else self.given["descending"]
        order = values.sort(dim=self._dim, descending=falling, stable=True).indices
        return order.narrow(self._dim, 0, self.indices.shape[self._dim])

    def _selected(self, equal: torch.Tensor) -> torch.Tensor:
        return equal.byte().argmax(self._dim, keepdim=not self._dropped)

    def _equal(self) -> torch.Tensor:
        """Which elements have the value that was selected."""
        return _same(self._input, self._whole(self.values))

    def _whole(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.unsqueeze(self._dim) if self._dropped else tensor

    def _taken(self, indices: torch.Tensor) -> torch.Tensor:
        found = self._input.gather(self._dim, self._whole(indices))
        return found.squeeze(self._dim) if self._dropped else found

    def possible(self, indices: torch.Tensor) -> bool:
        """Whether an order of equal elements gives these: each at most once, with the values that are due."""
        if not bool(((indices >= 0) & (indices < self._input.shape[self._dim])).all()):
            return False
        found, due = self._taken(indices), self.values
        if self.name in ARRANGING:
            distinct = indices.sort(self._dim).values
            if not bool((distinct.diff(dim=self._dim) > 0).all()):
                return False
        if not self.given.get("sorted", True):
            found, due = found.sort(self._dim).values, due.sort(self._dim).values
        return bool(_same(found, due).all())

    def answer(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._taken(indices), indices.clone()


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (torch.isnan(one) & torch.isnan(other))


def _bound(func: Any, args: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by their names."""
    arguments = func._schema.arguments
    defaults = {a.name: a.default_value for a in arguments if a.has_default_value()}
    return {**defaults, **dict(zip((a.name for a in arguments), args, strict=False)), **kwargs}
