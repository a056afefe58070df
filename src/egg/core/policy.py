"""What both sides of a comparison agreed to: precision, library calls, degree of care."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Precision(StrEnum):
    """The arithmetic both the reference and the candidate are held to.

    ``MATCH`` is whatever the reference does under PyTorch's current settings; the others
    are declared, and then the reference runs under them as well, so that a speedup never
    comes from a difference in precision.
    """

    MATCH = "match"
    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    FP16 = "fp16"


class LibraryCalls(StrEnum):
    """May a candidate call cuBLAS, cuDNN and the like through PyTorch?"""

    ALLOW = "allow"
    FORBID = "forbid"


class Level(StrEnum):
    """How much care an evaluation takes."""

    QUICK = "quick"
    FULL = "full"
    AUDIT = "audit"


class Host(StrEnum):
    """Whose host code is judged: what calls the kernels."""

    AUTHOR = "author"
    """The file's own."""
    RECORDED = "recorded"
    """A plan, recorded of the file's own at the task's call signature: straight-line data, no code."""


@dataclass(frozen=True)
class Policy:
    """The terms of an evaluation, recorded in every result."""

    precision: Precision = Precision.MATCH
    library_calls: LibraryCalls = LibraryCalls.ALLOW
    level: Level = Level.FULL
    host: Host = Host.AUTHOR
