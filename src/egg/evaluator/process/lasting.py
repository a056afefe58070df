"""Keep the garbage collector away from what a process imports and never lets go of."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """For imports at the start of a process: nothing is collected meanwhile, and nothing of it ever after.

    PyTorch and Triton make some 300,000 objects, which the collector would walk through again and again
    as they grow in number. In forked children each walk would also copy the pages they lie on.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
