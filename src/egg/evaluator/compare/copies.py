"""Answers that are not computed: numbers that were given, moved or selected (a gather, a maximum, a cast).

No order of summation excuses a difference there. Every element is the reference's, or the exact run's as the
type holds it: a program that rounds on the way may be spared that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from egg.evaluator.compare.bands import LEAST
from egg.evaluator.tensors import memory
from egg.evaluator.tensors.reals import as_reals


def compare(three: Sequence[torch.Tensor]) -> str:
    """What is wrong with the candidate, if anything, beside the reference and the exact run.

    Where NaN and Inf stand is looked at elsewhere. Zeros may have either sign, and numbers that a GPU may
    flush may be zeros.
    """
    changed = 0
    for c, r, g in memory.pieces(*map(as_reals, three)):
        differs = (c != r) & (c != g.to(r.dtype)) & torch.isfinite(c) & torch.isfinite(r)
        changed += int((differs & (torch.maximum(c.abs(), r.abs()) > LEAST)).sum())
    count = three[1].numel()
    return f"{changed} of {count} elements differ, where the reference only moves numbers" if changed else ""
