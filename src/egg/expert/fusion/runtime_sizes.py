"""Which sizes a kernel is compiled for, and which it is given when it runs.

A size that the compiler knows (``tl.constexpr``) makes quotients and remainders cheap and tells it how far
addresses are aligned; but every value of one is compiled anew, a good part of a second each. So:

*Sizes of the module* (channels, features) are the same in every call: they stay known, unless one kernel
serves blocks of a network with more than :data:`MOST` values of one.

*Sizes that the caller chooses* (what ``forward`` reads off the shape of an argument) are plain arguments
wherever that costs nothing:

- a leading one, such as the batch, everywhere: it scales grids, bounds and the outermost offset;
- any other one where a kernel only compares with it, as with the number of elements of a flat tensor, if
  Triton's own specialisation (whether an argument is a multiple of 16) says as much of the value at capture
  as the value itself did: a multiple of 16, or odd.

Lengths of rows and the sides of images stay known where they stand in addresses and loops: written as plain
arguments, the kernels of norms and of softmax are a fifth to a third longer. So does a size that divides a
vector of indices (such a quotient by a plain number is a dozen instructions for every element), one that only
the compiler can use (the shape of a tile, a condition that chooses code, the constant of another function),
the summed dimension of a product and the rows of its result. And so do all sizes of kernels whose tensors
need 64-bit offsets: products of plain arguments are 32 bits wide.
"""

from __future__ import annotations

import re

MOST = 4
"""Values of one size that a kernel may be compiled for."""
ALIGNED = 16
"""Triton compiles a kernel anew where an argument is a multiple of this, and where it is 1."""
LEADING = re.compile(r"\w+\.shape\[0\]")
READ = re.compile(r"[\w.\[\]]*\.shape\[-?\d+\]")


def is_free(text: str) -> bool:
    """Whether the caller chooses a size that ``forward`` finds by this text: by the shapes of arguments."""
    read = READ.findall(text)
    return bool(read) and not any(tensor.startswith("self") for tensor in read) and "self." not in text


def is_leading(text: str) -> bool:
    return is_free(text) and all(LEADING.fullmatch(tensor) for tensor in READ.findall(text))


def specialization_tells(value: int) -> bool:
    """Whether Triton's specialisation says as much of a number as the number itself would say."""
    return value % ALIGNED == 0 or value % 2 == 1
