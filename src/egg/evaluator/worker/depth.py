"""How many frames a file may put on the stack: as many as in a script, more or less by lot.

A worker calls a file from deeper within than a script does. A file that recursed to the end of the stack
could tell the two apart, so the limit moves with the depth.
"""

from __future__ import annotations

import secrets
import sys

USUAL = 1000
"""Python's own limit."""
LEAST, SPREAD = 4, 48
"""Frames of ours between here and the file, about, and how many more are drawn."""


def as_of_a_script() -> None:
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(USUAL + depth + LEAST + secrets.randbelow(SPREAD))
