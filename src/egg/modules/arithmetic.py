"""What the program itself says of fp32 arithmetic on a GPU, and whether a kernel may run under it.

The judge runs a task under PyTorch's defaults, where convolutions are TF32 and products are not. A program
may have switched TF32 off or on: a kernel that was judged under the defaults is then for another program.
"""

from __future__ import annotations

from typing import Any

import torch

from egg.core.policy import Precision


def precision_here() -> Precision:
    """The precision under which a program with these settings is judged."""
    if not tf32_convolutions():
        return Precision.FP32
    return Precision.TF32 if torch.get_float32_matmul_precision() != "highest" else Precision.MATCH


def is_coarser(judged: Precision) -> bool:
    """Whether a kernel judged so may compute in TF32 where the program has it switched off."""
    return judged is Precision.MATCH and not tf32_convolutions()


def tf32_convolutions() -> bool:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # the program uses the newer switches, which this one does not mix with
        newer: Any = torch.backends.cudnn
        return newer.conv.fp32_precision != "ieee"
