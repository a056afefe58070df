"""Runs of neighbouring elements, by which values are found again in tensors of another size or order.

A sketch (:mod:`.sketches`) compares tensors with as many elements as the answer. A library that computes the
answer in halves, all rows but one, or in a buffer with a row to spare makes no such tensor. Four neighbours
along a dimension identify a place in whatever tensor they lie, along whichever of its dimensions, also in a
16-bit format, of which every value occurs in every large tensor. A run is kept as one number, a sum with
fixed coefficients: every multiplication and addition is an operation of its own, so both sides round alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves

LENGTH = 4
COEFFICIENTS = (1.0, 2.2360679774997896, -3.3166247903554, 5.5677643628300215)
SAMPLES = 64
LARGEST = 1 << 20
"""Elements of a tensor that is looked at; the interpreter's sizes are smaller."""
MOST_KEPT = 1 << 23
"""Numbers that a :class:`Flow` keeps."""
LEAST_DISTINCT = 16
"""Distinct runs among those that are drawn, or finding them says nothing."""
KNOWN = 0.75
"""Of the runs of an operand that must be known: the rest may be padding."""


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Real elements: a complex one as two, a conjugation or negation that is only noted carried out."""
    resolved = tensor.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(resolved) if resolved.is_complex() else resolved


def runs_along(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The numbers of all runs of a tensor along each dimension, last first; constant runs are left out.

    A tensor without a dimension of four elements counts as flat, and one of fewer elements by each.
    """
    values = plain(tensor).to(torch.float64)
    dims = [dim for dim in reversed(range(values.dim())) if values.shape[dim] >= LENGTH]
    if not dims and values.numel() < LENGTH:
        return [values.reshape(-1) * COEFFICIENTS[0]]
    if not dims:
        values, dims = values.reshape(-1), [0]
    return [_runs(values, dim) for dim in dims]


def _runs(values: torch.Tensor, dim: int) -> torch.Tensor:
    count = values.shape[dim] - LENGTH + 1
    parts = [values.narrow(dim, start, count) for start in range(LENGTH)]
    total = parts[0] * COEFFICIENTS[0]
    for part, coefficient in zip(parts[1:], COEFFICIENTS[1:], strict=True):
        total = total + part * coefficient
    varied = (parts[0] != parts[1]) | (parts[1] != parts[2]) | (parts[2] != parts[3])
    return total[varied & torch.isfinite(total)]


def readable(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and 0 < tensor.numel() <= LARGEST


def drawn(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    """Some runs of a tensor along its last dimension, at places drawn from a seed."""
    runs = runs_along(tensor)[0]
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(max(1, runs.numel()), (SAMPLES if runs.numel() else 0,), generator=generator)
    return runs[places.to(runs.device)]


class Runs:
    """The runs of tensors, sorted, to look others up in."""

    def __init__(self, tensors: Iterable[torch.Tensor] = ()) -> None:
        self._sorted: list[torch.Tensor] = []
        self.kept = 0
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: torch.Tensor) -> None:
        if not readable(tensor) or self.kept > MOST_KEPT:
            return
        for runs in runs_along(tensor):
            if runs.numel():
                self._sorted.append(runs.sort().values)
                self.kept += runs.numel()

    def hold(self, wanted: torch.Tensor) -> torch.Tensor:
        """Of each of the numbers in ``wanted``, whether it is one of a run."""
        found = torch.zeros_like(wanted, dtype=torch.bool)
        for runs in self._sorted:
            place = torch.searchsorted(runs, wanted.to(runs.device)).clamp_max(runs.numel() - 1)
            found |= (runs[place] == wanted.to(runs.device)).to(found.device)
        return found


class Follower(Protocol):
    """Is shown what each operator is about to read, then what it made."""

    def given(self, operands: Any) -> bool: ...
    def see(self, result: Any, *, given: bool, computes: bool) -> None: ...


class Flow:
    """Which runs of the answers operators of PyTorch make, and which of them of given values alone.

    Given are the inputs and the weights, and what an operator makes of nothing else. An operand counts as
    given by its values: a copy that an own kernel made of an input does, whatever its size, and what an own
    kernel computed does not.
    """

    def __init__(self, wanted: Sequence[Sequence[float]], given: Any, seed: int) -> None:
        self._wanted = [torch.tensor(runs, dtype=torch.float64) for runs in wanted]
        self.made = [torch.zeros(len(runs), dtype=torch.bool) for runs in wanted]
        """Of the wanted runs, those that an operator which computes made."""
        self.alone = [torch.zeros(len(runs), dtype=torch.bool) for runs in wanted]
        """Those that operators made of given values alone."""
        self._seed = seed
        self._given = Runs(tensors_in(given))

    def given(self, operands: Any) -> bool:
        """Whether an operator reads given values alone; asked before it runs, as it may write to them."""
        return all(map(self._is_given, tensors_in(operands)))

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        for tensor in tensors_in(result):
            if not readable(tensor):
                continue
            runs = Runs([tensor])
            for index, wanted in enumerate(self._wanted):
                found = runs.hold(wanted)
                self.made[index] |= found & computes
                self.alone[index] |= found & given
            if given:
                self._given.add(tensor)

    def _is_given(self, tensor: torch.Tensor) -> bool:
        """One constant is; values of few kinds (a mask) are like others by chance, and are not."""
        if not readable(tensor):
            return tensor.numel() == 0
        runs = drawn(tensor, self._seed)
        if not runs.numel():
            return True
        if tensor.numel() >= SAMPLES and runs.unique().numel() < LEAST_DISTINCT:
            return False
        return float(self._given.hold(runs).double().mean()) >= KNOWN


def tensors_in(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
