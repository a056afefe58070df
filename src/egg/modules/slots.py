"""What a graph's placeholders hold, described well enough that another process can draw the like.

The judge draws its own inputs. They must be legal: an index within its table, a mask that hides no whole
row, a variance above zero. So a :class:`Slot` says of each placeholder its role, its form, and what its
values are like (:class:`Values`), and :mod:`egg.modules.drawing` prints the expression that draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import FakeTensor

Role = Literal["input", "parameter", "buffer", "constant"]
Kind = Literal[
    "normal", "uniform", "integers", "distinct", "padded", "steps", "share", "filled", "triangle", "additive",
    "listed",
]  # fmt: skip

MOST_LISTED = 256
"""Elements of a constant that are written down one by one."""
MOST_DISTINCT = 1 << 20
"""Integers that are drawn each once."""
LEAST_SEEN = 16
"""Elements of a row of a mask that are true on average, where every row has some."""
MOST_LOOKED_AT = 1 << 22
"""Elements of a tensor that its values are judged by."""


@dataclass(frozen=True)
class Values:
    """What the elements of a tensor are like.

    ``normal``: mean ``low``, deviation ``high``. ``uniform`` and ``integers``: from ``low`` to ``high``, the
    latter included for integers; ``distinct``: of these each once. ``padded``: integers from 0 to ``high``, a
    share ``numbers[0]`` of them ``low`` instead, which stands for none, as -100 does in the targets of a
    cross-entropy. ``steps``: 0, 1, 2, ... along the last dimension, from ``low``. ``share``: true with
    probability ``high``. ``filled``: all ``low``. ``triangle``: boolean, true on and below the diagonal
    (``low`` = 0), or on and above it (1). ``additive``: a mask of 0 and ``low``, of which a share ``high`` is
    masked; a causal one where ``high`` is 0. ``listed``: exactly ``numbers``.
    """

    kind: Kind
    low: float = 0.0
    high: float = 1.0
    numbers: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Slot:
    """One placeholder: who fills it, its form, and what its values are like."""

    name: str
    role: Role
    shape: tuple[int, ...]
    dtype: str
    """As PyTorch spells it, without the prefix: ``float32``."""
    stride: tuple[int, ...]
    values: Values = Values("normal")
    trains: bool = True
    """Of a parameter: whether it requires a gradient."""

    @classmethod
    def of(cls, name: str, role: Role, tensor: torch.Tensor) -> Slot:
        """The slot that ``tensor`` is an example of; a fake tensor has a form alone."""
        return cls(
            name,
            role,
            tuple(map(_concrete, tensor.shape)),
            str(tensor.dtype).removeprefix("torch."),
            tuple(map(_concrete, tensor.stride())),
            described(tensor, fixed=role == "constant"),
            tensor.requires_grad,
        )

    def within(self, bound: int) -> Slot:
        """The same integers, none of them ``bound`` or more: they index a table of that many rows."""
        if self.values.kind == "padded":
            return replace(self, values=replace(self.values, high=float(bound - 1)))
        if self.values.kind not in ("integers", "distinct"):
            return self
        return replace(self, values=replace(self.values, low=0.0, high=float(bound - 1)))


def told_apart(slot: Slot, tensor: torch.Tensor) -> Slot:
    """Integers that are all different stay so: places that a program writes to, each once.

    Where two are the same, what is left there is open.
    """
    count = tensor.numel()
    if slot.values.kind != "integers" or not 1 < count <= MOST_DISTINCT or slot.values.high >= MOST_DISTINCT:
        return slot
    if len(torch.unique(tensor)) < count:
        return slot
    return replace(slot, values=replace(slot.values, kind="distinct"))


def described(tensor: torch.Tensor, *, fixed: bool = False) -> Values:
    """What the values of a tensor are like; ``fixed`` where they are the program's own and never change."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return _unseen(tensor.dtype)
    plain = tensor.detach()
    if plain.numel() == 0:
        return Values("filled", 0.0)
    if plain.numel() > MOST_LOOKED_AT:
        rows = max(1, MOST_LOOKED_AT * plain.shape[0] // plain.numel())
        plain = plain[:rows]
    plain = plain.cpu()
    if plain.dtype == torch.bool:
        return _booleans(plain, fixed)
    if plain.is_complex():
        return Values("normal", 0.0, float(plain.abs().float().std(correction=0)) or 1.0)
    if plain.is_floating_point():
        return _floats(plain.float() if plain.dtype != torch.float64 else plain, fixed)
    return _integers(plain, fixed)


def _unseen(dtype: torch.dtype) -> Values:
    if dtype == torch.bool:
        return Values("share", high=0.5)
    if dtype.is_floating_point or dtype.is_complex:
        return Values("normal")
    return Values("integers", 0.0, 0.0)


def _booleans(plain: torch.Tensor, fixed: bool) -> Values:
    share = plain.float().mean().item()
    if share in (0.0, 1.0):
        return Values("filled", share)
    if plain.dim() >= 2 and plain.shape[-2] > 1:
        for upper, form in enumerate((torch.tril, torch.triu)):
            if torch.equal(plain, form(torch.ones(plain.shape[-2:], dtype=torch.bool)).expand_as(plain)):
                return Values("triangle", float(upper))
    if fixed and plain.numel() <= MOST_LISTED:
        return Values("listed", numbers=tuple(plain.flatten().tolist()))
    if plain.dim() and bool(plain.any(-1).all()):  # no row is hidden whole, and none is to be drawn so
        share = max(share, min(0.99, LEAST_SEEN / plain.shape[-1]))
    return Values("share", high=share)


def _integers(plain: torch.Tensor, fixed: bool) -> Values:
    low, high = int(plain.min()), int(plain.max())
    if low == high and (fixed or plain.dim() == 0):
        return Values("filled", float(low))
    steps = torch.arange(low, low + plain.shape[-1]) if plain.dim() else None
    if steps is not None and plain.shape[-1] > 1 and torch.equal(plain.long(), steps.expand_as(plain)):
        return Values("steps", float(low))
    if fixed and plain.numel() <= MOST_LISTED:
        return Values("listed", numbers=tuple(plain.flatten().tolist()))
    if low < 0 and high >= 0 and not bool(((plain < 0) & (plain != low)).any()):
        return Values("padded", float(low), float(high), (float((plain == low).float().mean()),))
    return Values("integers", float(min(low, 0)), float(high))


def _floats(plain: torch.Tensor, fixed: bool) -> Values:
    lowest = float(plain.min())
    if lowest <= -1e4 and bool(((plain == 0) | (plain == lowest)).all()):
        return _masking(plain, lowest)
    finite = plain[torch.isfinite(plain)]
    if finite.numel() == 0:
        return Values("filled", lowest)
    low, high = float(finite.min()), float(finite.max())
    if low == high and finite.numel() == plain.numel() and fixed:
        return Values("filled", low)
    if fixed and plain.numel() <= MOST_LISTED:
        return Values("listed", numbers=tuple(plain.flatten().tolist()))
    if low == high:
        return _around(low)
    if low >= 0.0:
        return Values("uniform", low, high)
    spread = float(finite.std(correction=0))
    return Values("normal", float(finite.mean()), spread if math.isfinite(spread) and spread > 0 else 1.0)


def _around(value: float) -> Values:
    """Values near one that all elements have: a weight of ones, a bias of zeros, as they are before training,
    or the gradient of a loss.

    The judge must see them differ, or a kernel that leaves them out would pass.
    """
    if value > 0:
        return Values("uniform", 0.5 * value, 1.5 * value)
    return Values("normal", value, 0.1 * abs(value) or 0.1)


def _masking(plain: torch.Tensor, lowest: float) -> Values:
    hidden = plain == lowest
    if plain.dim() >= 2 and plain.shape[-2] > 1:
        causal = torch.triu(torch.ones(plain.shape[-2:], dtype=torch.bool), 1).expand_as(plain)
        if torch.equal(hidden, causal):
            return Values("additive", lowest, 0.0)
    return Values("additive", lowest, max(float(hidden.float().mean()), 0.05))


def _concrete(size: Any) -> int:
    """A size as a number: a symbolic one at the value it was seen with."""
    if isinstance(size, torch.SymInt):
        node: Any = size.node
        return int(node.hint) if node.has_hint() else int(size)
    return int(size)


def slots_of(placeholders: Sequence[tuple[str, Role, torch.Tensor]]) -> tuple[Slot, ...]:
    """One slot for each placeholder, from its name, its role and an example."""
    return tuple(Slot.of(*placeholder) for placeholder in placeholders)
