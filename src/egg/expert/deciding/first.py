"""The recipe to begin with: kernels of ours, but for what the library should compute much faster.

A library's convolution is hard to beat where a network's last layers have hundreds of channels and few
positions, and easily beaten where it must change the order in memory or has few channels. So each
convolution is priced both ways (:mod:`egg.expert.deciding.estimate`), with the pass that would remain
for what rides on it. What is left to the library by these prices is left only if the whole file, written
that way, promises to be faster as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from egg.expert.assemble import NothingToWrite, Written
from egg.expert.deciding.estimate import by_the_library, cost, costs, replaying, total
from egg.expert.fusion.choices import Structure
from egg.expert.moves import Recipe, Without
from egg.expert.parts import Group, Unfit
from egg.expert.patterns import PATTERNS
from egg.hardware.gpus import Gpu

MARGIN = 1.3
"""How many times faster a library's call must promise to be: estimates of ours and theirs err apart."""
LEAST_GAIN = 1.03
"""The same for the whole file."""

Write = Callable[[Recipe], Written]


def first_recipe(write: Write, gpu: Gpu, library: bool) -> Recipe:
    """``library``: whether calls of libraries are allowed."""
    plain = Recipe()
    if not library:
        return plain
    own = write(plain)
    moves = tuple(left_to_the_library(own.structure, gpu))
    if not moves:
        return plain
    recipe = plain.after(*moves)
    try:
        other = write(recipe)
    except (NothingToWrite, Unfit):
        return plain
    return recipe if seconds(other, gpu) * LEAST_GAIN < seconds(own, gpu) else plain


def left_to_the_library(structure: Structure, gpu: Gpu) -> Iterator[Without]:
    """Operators that PyTorch should compute faster than the groups around them."""
    for group, part in zip(structure.groups, structure.parts, strict=True):
        theirs = by_the_library(structure.graph, group, gpu, {}) if _weighed(group) else None
        if theirs is None:
            continue
        ours = cost(structure.graph, group, part, gpu, {})
        if theirs.device * MARGIN < ours.device:
            yield Without(group.pattern, PATTERNS.anchor_value(group))


def _weighed(group: Group) -> bool:
    """Whether a group may lose to the library by factors. Where one only might, the designer tries it against
    a measured base."""
    return PATTERNS[group.pattern].weighed_first


def seconds(file: Written, gpu: Gpu) -> float:
    """Of a whole forward, by the estimate."""
    graph = file.structure.graph
    return total(costs(file.structure, gpu, {}), replaying(graph, gpu) if file.replays else None)
