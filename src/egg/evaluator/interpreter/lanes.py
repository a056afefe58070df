"""Conflicts between the lanes of one program.

The lanes of a program are threads, and nothing orders two of them but a barrier
(``tl.debug_barrier``, or an atomic of one element: Triton puts a barrier before one that releases, and
behind one that acquires). A lane may touch again what it touched itself. What another lane touched
since the last barrier conflicts: a load behind a store, a store behind a load, two stores of
different values, and an atomic beside any plain access. A reduction between them orders nothing: the
compiler exchanges values between warps only where the layout needs it.

A *mark* is a lane's number, the size of its tile and the count of barriers. Equal marks are one thread at
one stage; the count is never the same for two programs, so a mark says whose it is, too. A scalar is
loaded by every thread and stored or changed by one: it conflicts with tiles, and what one thread did to it
with a later load, while loading, changing and storing one scalar is left alone.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from egg.evaluator.interpreter.memory import Touched

LANE_BITS = 28
"""Of the number of a lane and of its tile's size together; above them stands the count of barriers."""
_LANE = (1 << LANE_BITS) - 1
SEVERAL_LANES = _LANE
"""In place of a lane: several of them."""

Selection = np.ndarray | slice


@lru_cache(maxsize=64)
def _all_lanes(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int64) | ((count.bit_length() - 1) << 21)


def lane_codes(part: Touched) -> np.ndarray:
    """Which lanes of a tile of which size touch something; equal codes are the same thread."""
    if part.lanes is None:
        return _all_lanes(part.addresses.size)
    return _all_lanes(part.lanes.size)[np.flatnonzero(part.lanes)]


def is_scalar(part: Touched) -> bool:
    return part.addresses.size == 1 and (part.lanes is None or part.lanes.size == 1)


def crossed(marks: np.ndarray, codes: np.ndarray, barriers: int) -> np.ndarray:
    """Where another lane of the running program was, since its last barrier."""
    fresh = (marks >> LANE_BITS) == barriers
    return fresh & ((marks & _LANE) != codes) if fresh.any() else fresh


def crossed_by_scalar(marks: np.ndarray, barriers: int) -> np.ndarray:
    """The same for a scalar that is loaded: by every thread, also where one of them stored or changed it."""
    return (marks >> LANE_BITS) == barriers


def leave(marks: np.ndarray, where: Selection, codes: np.ndarray, barriers: int) -> None:
    """Mark what these lanes touch, and where others were at the same stage, or several at once, say so."""
    stage = barriers << LANE_BITS
    mine = codes | stage
    before = marks[where]
    fresh = (before >> LANE_BITS) == barriers
    if fresh.any():
        marks[where] = np.where(fresh & (before != mine), stage | SEVERAL_LANES, mine)
        if not isinstance(where, slice):
            _leave_doubles(marks, where, mine, stage)
        return
    marks[where] = mine
    if not isinstance(where, slice):
        _leave_doubles(marks, where, mine, stage)


def _leave_doubles(marks: np.ndarray, where: np.ndarray, mine: np.ndarray, stage: int) -> None:
    lost = marks[where] != mine
    if lost.any():
        marks[where[lost]] = stage | SEVERAL_LANES
