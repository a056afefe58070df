"""Pools behind a convolution in Triton: places of a level, and the reduction over columns."""

from __future__ import annotations

from math import prod

from egg.expert.emit.reader import Body
from egg.expert.index import flat
from egg.expert.patterns.convolution.pooled import Windows
from egg.expert.patterns.loops.triton.gathering import HELPERS
from egg.expert.sizes import ONE

LARGER = "larger"
"""The function that joins two numbers of a window."""


def define_level(windows: Windows, body: Body, level: int) -> None:
    """Lines for the variables of a level; ``pid`` is the number of the tile."""
    held = f"BLOCK_P // {windows.positions(level)}"
    body.line(f"v{level} = pid * ({held}) + tl.arange(0, {held})[None, :]")
    body.line(f"inside{level} = v{level} < {windows.counted(level)}")
    image, at = windows.places(level, f"v{level}")
    if windows.batch != ONE:
        own = f"image + tl.zeros_like(v{level})" if windows.imaged else f"{image}.to(tl.int64)"
        body.line(f"n{level} = {own}")
    body.line(f"s{level} = {flat(at, windows.shapes[level])}")


def pooled(windows: Windows, body: Body, level: int, x: str, rows: str) -> str:
    """The results of the pool that makes a level, from what lies before it."""
    pool, size = windows.pools[level - 1], prod(windows.kernels[level - 1])
    before, after = (_columns(windows, at) for at in (level - 1, level))
    spread = f"tl.broadcast_to({x}, ({rows}, {before}))"
    together = body.let("windows", f"tl.reshape({spread}, ({rows}, {after}, {size}))")
    stem = pool.label or f"{pool['fn']}_pool"
    if pool["fn"] == "max":
        return body.let(stem, f"tl.reduce({together}, 2, {LARGER})")
    return body.let(stem, f"tl.sum({together}, axis=2) * {1 / size!r}")


def _columns(windows: Windows, level: int) -> str:
    positions = windows.positions(level)
    return "BLOCK_P" if positions == 1 else f"BLOCK_P // {positions}"


def helpers(windows: Windows) -> dict[str, str]:
    """Functions that kernels call."""
    return {LARGER: HELPERS[LARGER].strip()} if any(pool["fn"] == "max" for pool in windows.pools) else {}
