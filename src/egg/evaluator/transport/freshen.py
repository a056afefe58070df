"""Whole new inputs for every timed call, made of draws that the task's own generator made.

A candidate that remembers answers, or mends the last one where its inputs changed, would be fastest
of all if timed calls repeated their inputs. So the oracle keeps a few further draws of the
generator in memory that both sides see, the *reserve*, and before each call every input is
overwritten by one of them. How depends on its :class:`Kind`: values that may stand at any place are
copied rotated by a secret offset, and every second one once more from another draw by another, so that no
two calls have the same inputs, nor a row that a kernel could have kept from an earlier one;
lengths, masks, sorted offsets and whatever else has an order are copied as they were drawn. The
oracle knows every move, so it knows every answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

import torch

Move = list[int]
"""Which tensor, from where to where in it, which draw of the reserve, by how much that is rotated, and in
steps of how many elements."""

SEEN = 1 << 16
"""Elements of a tensor that are looked at to find an order in them."""
FEW = 16
"""Values: with so few different ones a tensor is a mask, a gate, or a handful of lengths."""
MANY = 1 << 16
"""Integers: so many take long to draw, and are rotated where they show no order."""


class Kind(StrEnum):
    """What may be done to one input."""

    FIXED = "fixed"
    """The generator makes the same values whatever its seed; they stay."""
    LOOSE = "loose"
    """Any value may stand at any place."""
    DRAWN = "drawn"
    """All else: only whole draws of the generator are legal."""


def kind_of(one: torch.Tensor, other: torch.Tensor) -> Kind:
    """What two draws of the generator tell of an input."""
    if _dense(one) and _loose(one) and _loose(other):
        return Kind.LOOSE
    same = one.shape == other.shape and torch.equal(one, other)
    return Kind.FIXED if same else Kind.DRAWN


def _dense(tensor: torch.Tensor) -> bool:
    """Whether its elements are all of the memory that it spans, each once."""
    return tensor.numel() > 1 and span(tensor) == tensor.numel() and tensor.layout == torch.strided


def _loose(tensor: torch.Tensor) -> bool:
    """Whether nothing is seen of an order: rows that are sorted, normalised, distinct or symmetric.

    A part of the tensor is looked at: generators do not change their manner half way.
    """
    if tensor.dtype is torch.bool or tensor.is_complex():
        return False
    if tensor.numel() <= (FEW if tensor.is_floating_point() else MANY):
        return False
    rows = _matrix(tensor)
    rows = rows[: max(1, SEEN // rows.shape[1]), :SEEN]
    if tensor.is_floating_point():
        return _loose_floats(rows.double(), tensor)
    distinct = len(torch.unique(rows))
    return distinct > FEW and distinct < rows.numel() and not _sorted(rows)


def _loose_floats(rows: torch.Tensor, tensor: torch.Tensor) -> bool:
    zeros = int((rows == 0).sum())
    if not bool(torch.isfinite(rows).all()) or 64 * zeros > rows.numel() or len(torch.unique(rows)) <= FEW:
        return False
    if _sorted(rows) or _normalised(rows):
        return False
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return True
    corner = _matrix(tensor)[:256, :256].double()
    return not torch.allclose(corner, corner.mT)


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    """The first of its matrices."""
    found = tensor.detach()
    while found.dim() > 2:
        found = found[0]
    return found if found.dim() == 2 else found.reshape(1, -1)


def _sorted(rows: torch.Tensor) -> bool:
    """Along rows or down columns, upwards or downwards."""
    for lines in (rows, rows.mT):
        if lines.shape[1] > 2:
            steps = lines[:, 1:] >= lines[:, :-1]
            if bool(steps.all()) or bool((lines[:, 1:] <= lines[:, :-1]).all()):
                return True
    return False


def _normalised(rows: torch.Tensor) -> bool:
    """Rows that are probabilities, or unit vectors."""
    if rows.shape[0] < 2 or rows.shape[1] < 2:
        return False
    for totals in (rows.sum(1), rows.square().sum(1)):
        centre = float(totals.mean())
        if abs(centre) > 1e-3 and float((totals - centre).abs().max()) < 2e-2 * abs(centre):
            return True
    return False


def span(tensor: torch.Tensor) -> int:
    """Elements of memory from the first to the last of a tensor."""
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def draw(
    tensors: Sequence[torch.Tensor], kinds: Sequence[Kind], sources: Sequence[int], generator: random.Random
) -> list[Move]:
    """The moves that make new values for every input that is not fixed.

    ``sources`` are numbers of draws in the reserve, the one to be used first; loose inputs take every second
    element of the last one. Where that is another one no element comes twice: a tie that no draw of the
    generator has would be the judge's own, and which of two equal elements ``topk`` names first is open.
    """
    moves: list[Move] = []
    for index, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True)):
        size = span(tensor)
        if kind is Kind.FIXED or not size:
            continue
        if kind is Kind.DRAWN:
            moves.append([index, 0, size, sources[0], 0, 1])
            continue
        first, between = sources[0], sources[-1]
        moves.append([index, 0, size, first, generator.randrange(1, size), 1])
        moves.append([index, generator.randrange(2), size, between, generator.randrange(1, size), 2])
    return moves


@torch.no_grad()
def apply(
    tensors: Sequence[torch.Tensor], reserve: Sequence[Sequence[torch.Tensor]], moves: Sequence[Move]
) -> None:
    """Make the moves: elements of ``[start, end)`` of a tensor from a draw of the reserve, rotated."""
    copy(copies(tensors, reserve, moves))


def copies(
    tensors: Sequence[torch.Tensor], reserve: Sequence[Sequence[torch.Tensor]], moves: Sequence[Move]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The moves as copies to be made: to where, and from where."""
    found = []
    for index, start, end, source, offset, step in moves:
        to, given = flat(tensors[index])[start:end:step], flat(reserve[source][index])
        size = given.numel()
        begin = (start + offset) % size
        first = min(len(to), size - begin)
        found.append((to[:first], given[begin : begin + first]))
        if first < len(to):
            found.append((to[first:], given[: len(to) - first]))
    return found


@torch.no_grad()
def copy(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
    for to, given in pairs:
        to.copy_(given)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """All memory that a tensor spans, in a row."""
    return tensor.as_strided((span(tensor),), (1,))
