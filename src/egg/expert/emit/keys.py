"""Floats as whole numbers of the same order, so that a maximum over memory is one integer instruction.

The bits of a positive float, taken for a whole number, grow with it; those of a negative one shrink, so all
but its sign are inverted. A NaN gets the key beyond all others of its side, because PyTorch's maxima and
minima are NaN where one of their elements is. ``FEWEST`` and ``MOST`` are keys of no float: what begins as
one and is one in the end met no element.
"""

from __future__ import annotations

import struct

FEWEST, MOST = -(2**31), 2**31 - 1
MAX_NAN, MIN_NAN = 0x7FC00000, 0x003FFFFF - 2**31
"""The key of a NaN where the largest key counts, and where the smallest does."""


def key(number: float, largest: bool) -> int:
    """The key of one number."""
    if number != number:
        return MAX_NAN if largest else MIN_NAN
    (bits,) = struct.unpack("<i", struct.pack("<f", number))
    return bits ^ 0x7FFFFFFF if bits < 0 else bits
