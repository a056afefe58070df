"""The launch of a generated kernel as a file's host code writes it; blocks and warps are constants."""

from __future__ import annotations

from collections.abc import Mapping

from egg.expert.compiled.grids import SPLIT_SCAN, Extents, grid_text
from egg.expert.compiled.kernels import Kernel
from egg.expert.compiled.steps import Launch
from egg.expert.parts import Constant, Unfit

LARGEST: Mapping[str, int] = {"XBLOCK": 4096, "YBLOCK": 1024, "ZBLOCK": 1024, "R0_BLOCK": 4096}
"""Blocks up to which generated kernels need no other masks than those they have."""
WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4)


def launch_constants(kernel: Kernel) -> tuple[Constant, ...]:
    """What was chosen for a kernel, with values near it that a sweep may try."""
    made = [
        Constant(_constant(kernel, name), value, _near(kernel, name, value))
        for name, value in kernel.constants.items()
    ]
    made.append(Constant(_constant(kernel, "NUM_WARPS"), kernel.num_warps, _beside(WARPS, kernel.num_warps)))
    stages = _beside(STAGES, kernel.num_stages) if kernel.loops else ()
    made.append(Constant(_constant(kernel, "NUM_STAGES"), kernel.num_stages, stages))
    return tuple(made)


def launch_lines(kernel: Kernel, given: Launch) -> list[str]:
    """The launch; extents that the kernel sets itself are left out."""
    if len(given.texts) != len(kernel.parameters):
        raise Unfit(
            f"the kernel {kernel.name} takes {len(kernel.parameters)} arguments, not {len(given.texts)}"
        )
    by_name = dict(zip(kernel.parameters, zip(given.texts, given.values, strict=True), strict=True))
    numels = {name: value for name, (_, value) in by_name.items() if type(value) is int}
    blocks = {name: str(value) for name, value in kernel.chosen.items()}
    blocks |= {name: _constant(kernel, name) for name in kernel.constants}
    smallest = {
        name: min((value, *_near(kernel, name, value))) if name in kernel.constants else value
        for name, value in kernel.chosen.items()
    }
    grid = grid_text(kernel.grid, Extents({**numels, **kernel.fixed}, blocks, smallest))
    texts = [text for name, (text, _) in by_name.items() if name not in kernel.dropped]
    texts += [f"{name}={_constant(kernel, name)}" for name in kernel.constants]
    texts += [f"{option}={_constant(kernel, option.upper())}" for option in ("num_warps", "num_stages")]
    return [f"{kernel.name}[{grid}]({', '.join(texts)})"]


def _constant(kernel: Kernel, name: str) -> str:
    return f"{kernel.name.upper()}_{name}"


def _near(kernel: Kernel, name: str, value: int) -> tuple[int, ...]:
    """Half and double of a block, where the kernel allows it. A shared scan has memory for a number of pieces
    that its host code fixes: smaller ones may not fit."""
    largest = LARGEST.get(name)
    if largest is None:
        return ()
    least = value if kernel.grid == SPLIT_SCAN else 1
    return tuple(n for n in (value // 2, value, value * 2) if least <= n <= largest)


def _beside(values: tuple[int, ...], value: int) -> tuple[int, ...]:
    """The value with its neighbours."""
    if value not in values:
        return ()
    place = values.index(value)
    return values[max(0, place - 1) : place + 2]
