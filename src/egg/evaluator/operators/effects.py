"""What operations of a program do to elements, by their values and whatever their names.

PyTorch can do some work by operators that count as making or copying memory: it overwrites elements of a
view with a number, picks elements by strides, and rounds by a cast to other floats and back. Whether that
is the work of a task is asked of its operations:

- one *masks* if it leaves elements as they are and makes the others one number;
- one *coarsens* if its results have few significant bits, and its operands more;
- one *picks* if each element of its result is an element of an operand, or one number, and which one does not
  depend on values: another call with other values has them in the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from egg.evaluator.operators.lossy import sample
from egg.evaluator.operators.ops import NEUTRAL, base_name
from egg.evaluator.operators.runs import Follower, tensors_in
from egg.evaluator.tensors.modes import LightMode

LARGEST = 1 << 18
"""Elements of a tensor that is looked at as a whole."""
LEAST_KEPT = 0.25
"""Of the elements that a mask leaves."""
FEW_BITS = 11
"""Significant bits of half precision."""
LEAST_DISTINCT = 16


class Effects:
    """A recorder's ``flow``: whether operations mask or coarsen, and which types of floats occur."""

    def __init__(self) -> None:
        self.masks = False
        self.coarsens = False
        self.floats: set[str] = set()
        self._read: list[tuple[torch.Size, torch.Tensor]] = []

    def given(self, operands: Any) -> bool:
        read = [t for t in tensors_in(operands) if _floating(t)]
        self.floats.update(str(t.dtype) for t in read)
        done = self.masks and self.coarsens
        self._read = [] if done else [(t.shape, _seen(t)) for t in read]
        return False

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        for made in filter(_floating, tensors_in(result)):
            self.floats.add(str(made.dtype))
            read = [
                values for shape, values in self._read if shape == made.shape and values.dtype == made.dtype
            ]
            if computes and read:
                seen = _seen(made)
                self.masks |= any(_masked(one, seen) for one in read)
                self.coarsens |= _is_coarse(seen) and not any(map(_is_coarse, read))


class Several:
    """Several flows as one."""

    def __init__(self, *flows: Follower) -> None:
        self._flows = flows

    def given(self, operands: Any) -> bool:
        for flow in self._flows:
            flow.given(operands)
        return False

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        for flow in self._flows:
            flow.see(result, given=given, computes=computes)


def _floating(tensor: torch.Tensor) -> bool:
    return (
        tensor.is_floating_point()
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and tensor.numel() > 1
        and tensor.itemsize > 1
    )


def _seen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).clone() if tensor.numel() <= LARGEST else sample(tensor)


def _masked(before: torch.Tensor, behind: torch.Tensor) -> bool:
    changed = behind[behind != before]
    kept = 1.0 - changed.numel() / behind.numel()
    return changed.numel() > 1 and kept >= LEAST_KEPT and bool((changed == changed[0]).all())


def _is_coarse(values: torch.Tensor) -> bool:
    if values.itemsize < 4:
        return False
    parts = torch.frexp(values[values.isfinite()]).mantissa * 2.0**FEW_BITS
    return bool((parts == parts.trunc()).all()) and parts.unique().numel() >= LEAST_DISTINCT


class _Picks(LightMode):
    """Of each operation that computes where its result's elements were in its operands, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[tuple[str, tuple[torch.Tensor, ...] | None]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = base_name(func)
        if name in NEUTRAL:
            return func(*args, **(kwargs or {}))
        read = [_seen(t) for t in tensors_in((args, kwargs)) if _floating(t) and t.numel() <= LARGEST]
        result = func(*args, **(kwargs or {}))
        made = [t for t in tensors_in(result) if t.is_floating_point() or t.is_complex()]
        found = [_places(t, read) for t in made if _floating(t) and t.numel() <= LARGEST]
        known = [places for places in found if places is not None]
        whole = bool(made) and len(known) == len(made)
        self.places.append((name.rstrip("_"), tuple(known) if whole else None))
        return result


def _places(made: torch.Tensor, read: Iterable[torch.Tensor]) -> torch.Tensor | None:
    """Where the elements were in one operand, -1 where there is one number instead."""
    values = made.detach().reshape(-1)
    for operand in read:
        if operand.dtype != made.dtype or not operand.numel():
            continue
        ordered, order = operand.sort()
        at = torch.searchsorted(ordered, values).clamp_max(operand.numel() - 1)
        places = torch.where(ordered[at] == values, order[at], -1)
        others = values[places < 0]
        if others.numel() < values.numel() and bool((others == others[:1]).all()):
            return places
    return None


def picking(runs: Iterable[Callable[[], object]]) -> frozenset[str]:
    """Names of operations that pick, in all of some runs on different values."""
    found: list[list[tuple[str, tuple[torch.Tensor, ...] | None]]] = []
    for run in runs:
        with _Picks() as picks:
            run()
        found.append(picks.places)
    if len({tuple(name for name, _ in places) for places in found}) != 1:
        return frozenset()
    names = {name for name, _ in found[0]}
    for (name, first), *others in zip(*found, strict=True):
        if first is None or any(places is None or not _same(first, places) for _, places in others):
            names.discard(name)
    return frozenset(names)


def _same(one: tuple[torch.Tensor, ...], two: tuple[torch.Tensor, ...]) -> bool:
    return len(one) == len(two) and all(map(torch.equal, one, two))
