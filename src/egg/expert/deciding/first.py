"""The recipe to begin with: kernels of ours, but for what the library should compute much faster.

A library's convolution is hard to beat where a network's last layers have hundreds of channels and few
positions, and easily beaten where it must change the order in memory or has few channels. So each
convolution is priced both ways (:mod:`egg.expert.deciding.estimate`), with the pass that would remain
for what rides on it. So is every product and attention of 16-bit operands, where the library is ahead unless
what rides on ours saves more than the difference. What is left to the library by these prices is left only if
the whole file, written that way, promises to be faster as well. Where nothing would remain to be written, as
in two linear layers around an attention, the kernel that loses least against the library stays ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from egg.expert.assemble import NothingToWrite, Written
from egg.expert.deciding.estimate import by_the_library, called_seconds, cost, costs, replaying, total
from egg.expert.fusion.choices import Structure
from egg.expert.moves import Recipe, Without
from egg.expert.parts import Unfit
from egg.expert.pattern import MARGIN
from egg.expert.patterns import PATTERNS
from egg.hardware.gpus import Gpu

LEAST_GAIN = 1.03
"""The same for the whole file."""

Write = Callable[[Recipe], Written]


def first_recipe(write: Write, gpu: Gpu, library: bool) -> Recipe:
    """``library``: whether calls of libraries are allowed."""
    plain = Recipe()
    if not library:
        return plain
    own = write(plain)
    best, least = plain, seconds(own, gpu) / LEAST_GAIN
    found: dict[tuple[Without, ...], Recipe] = {}
    for joined in (False, True):
        moves = tuple(left_to_the_library(own.structure, gpu, joined))
        if _leaves_nothing(plain.after(*moves), write):
            least_lost = min(moves, key=lambda move: _lost(own.structure, gpu, move))
            moves = tuple(move for move in moves if move != least_lost)
        found[moves] = plain.after(*moves)
    for moves, recipe in found.items():
        for tried in _followed(recipe, write, gpu) if moves else ():
            taken = seconds(write(tried), gpu)
            if taken < least:
                best, least = tried, taken
    return best


def _leaves_nothing(recipe: Recipe, write: Write) -> bool:
    try:
        write(recipe)
    except NothingToWrite:
        return True
    except Unfit:
        pass
    return False


def _lost(structure: Structure, gpu: Gpu, move: Without) -> float:
    """Seconds by which the library should be ahead of the group that ``move`` leaves to it."""
    for group, part in zip(structure.groups, structure.parts, strict=True):
        if group.pattern == move.pattern and PATTERNS.anchor_value(group) == move.at:
            theirs = by_the_library(structure.graph, group, gpu, {})
            ours = cost(structure.graph, group, part, gpu, {}).device
            return ours - theirs.device if theirs is not None else 0.0
    return 0.0


def _followed(recipe: Recipe, write: Write, gpu: Gpu) -> Iterator[Recipe]:
    """A recipe, and the same with what its own structure would leave to the library: a convolution that the
    library should have may be a product there."""
    try:
        structure = write(recipe).structure
        yield recipe
        more = tuple(left_to_the_library(structure, gpu))
        if more:
            write(recipe.after(*more))
            yield recipe.after(*more)
    except (NothingToWrite, Unfit):
        return


def left_to_the_library(structure: Structure, gpu: Gpu, joined: bool = False) -> Iterator[Without]:
    """Operators that PyTorch should compute faster than the groups around them.

    ``joined``: what rides on a group of 16-bit operands is taken to join the pass that follows it, which
    costs little more. Only the file that is written so shows whether it does.
    """
    for group, part in zip(structure.groups, structure.parts, strict=True):
        pattern = PATTERNS[group.pattern]
        margin = pattern.margin(structure.graph, group)
        theirs = by_the_library(structure.graph, group, gpu, {}) if margin is not None else None
        if theirs is None or margin is None:
            continue
        device = theirs.device
        if joined and margin < MARGIN:
            device = called_seconds(structure.graph, group, gpu, {})
        if device * margin < cost(structure.graph, group, part, gpu, {}).device:
            yield Without(group.pattern, PATTERNS.anchor_value(group))


def seconds(file: Written, gpu: Gpu) -> float:
    """Of a whole forward, by the estimate."""
    return total(costs(file.structure, gpu, {}), replaying(file.structure, gpu) if file.replays else None)
