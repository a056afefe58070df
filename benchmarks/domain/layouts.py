"""The same values in other memory layouts, and tensors at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from egg.evaluator.reference.probes import Given, legal
from egg.evaluator.task.dimensions import Axis


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The last two dimensions in the opposite order in memory."""
    return tensor if tensor.dim() < 2 else tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a tensor twice as wide; what lies between is garbage."""
    if tensor.dim() < 1:
        return tensor
    wide = _garbage((*tensor.shape[:-1], 2 * tensor.shape[-1]), tensor)
    wide[..., ::2] = tensor
    return wide[..., ::2]


def offset(tensor: torch.Tensor) -> torch.Tensor:
    """One element into its memory, so that no vector load is aligned."""
    room = _garbage((tensor.numel() + 1,), tensor)
    room[1:] = tensor.reshape(-1)
    return room[1:].view(tensor.shape)


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    """The first row at every place of the first dimension, without a copy."""
    return tensor if tensor.dim() < 1 or not tensor.numel() else tensor[:1].expand(tensor.shape)


def rows_of_a_larger(tensor: torch.Tensor) -> torch.Tensor:
    """The middle columns of a wider matrix: rows are contiguous, and further apart than they are long."""
    if tensor.dim() < 2:
        return tensor
    wide = _garbage((*tensor.shape[:-1], tensor.shape[-1] + 5), tensor)
    wide[..., 2:-3] = tensor
    return wide[..., 2:-3]


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    form = formats.get(tensor.dim())
    return tensor if form is None else tensor.contiguous(memory_format=form)


LAYOUTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": transposed,
    "every second element": strided,
    "offset by one": offset,
    "expanded": expanded,
    "rows of a larger": rows_of_a_larger,
    "channels-last": channels_last,
}


def _garbage(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """Memory whose values show where they are read: large numbers, random flags, index 0."""
    if like.is_floating_point() or like.is_complex():
        return torch.full(tuple(shape), 1e4, dtype=like.dtype, device=like.device)
    if like.dtype == torch.bool:
        return torch.rand(tuple(shape), device=like.device) < 0.5
    return like.reshape(-1)[:1].new_zeros(tuple(shape)) if like.numel() else like.new_zeros(tuple(shape))


# -- sizes ---------------------------------------------------------------------------------------------

Place = tuple[int, int]
"""Which input, and which of its dimensions."""
Change = Mapping[Place, int]


def resized(tensor: torch.Tensor, dimension: int, size: int, generator: torch.Generator) -> torch.Tensor:
    """``tensor`` cut off or gone on with: what is repeated is scaled at random where it is floating, so that
    no two places hold the same numbers, and kept where it is an index or a mask."""
    old = tensor.shape[dimension]
    if size <= old:
        return tensor.narrow(dimension, 0, size).contiguous()
    places = torch.arange(size, device=tensor.device) % max(old, 1)
    longer = tensor.index_select(dimension, places)
    if tensor.is_floating_point():
        shape = [1] * tensor.dim()
        shape[dimension] = size
        factors = 0.5 + torch.rand(size, generator=generator)
        factors[:old] = 1.0
        longer = longer * factors.reshape(shape).to(device=tensor.device, dtype=tensor.dtype)
    return longer


def changed(inputs: Sequence[Any], change: Change, seed: int = 7) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    found = list(inputs)
    for (at, dimension), size in change.items():
        found[at] = resized(found[at], dimension, size, generator)
    return tuple(found)


@dataclass(frozen=True)
class Sizes:
    """Which dimensions of a call's inputs can change, found by asking the reference.

    This knows nothing of how the built-in team reads a program, so that it can contradict it: a dimension
    is changed alone, then with those of equal size at the same place of other inputs, then with all of
    equal size; the first change with which the reference runs is the one that is tried.
    """

    inputs: tuple[Any, ...]
    runs: Callable[[tuple[Any, ...]], bool]

    def places(self) -> Iterator[Place]:
        for at, given in enumerate(self.inputs):
            if isinstance(given, torch.Tensor):
                yield from ((at, dimension) for dimension in range(given.dim()))

    def size(self, place: Place) -> int:
        return self.inputs[place[0]].shape[place[1]]

    def groups(self, place: Place) -> Iterator[tuple[Place, ...]]:
        """What may have to change with a dimension."""
        size = self.size(place)
        alike = [other for other in self.places() if self.size(other) == size]
        aligned = tuple(other for other in alike if other[1] == place[1])
        seen: set[tuple[Place, ...]] = set()
        for group in ((place,), aligned, tuple(alike)):
            if group not in seen:
                seen.add(group)
                yield group

    def at(self, place: Place, size: int) -> Change | None:
        """A change that gives ``place`` this size; ``None`` where the reference takes none."""
        if size < 1 or size == self.size(place):
            return None
        for group in self.groups(place):
            change = dict.fromkeys(group, size)
            if self.takes(change):
                return change
        return None

    def takes(self, change: Change) -> bool:
        """Whether the reference runs with it. A dimension that an index may point into is not made smaller:
        on a GPU an index beyond the end costs the process. Indices along that dimension move with it."""
        own = {at for at, _ in change}
        others = [given for at, given in enumerate(self.inputs) if at not in own]
        indices = Given.of(others)
        legals = (legal(Axis((), self.size(place)), size, indices) for place, size in change.items())
        return all(legals) and self.runs(changed(self.inputs, change))
