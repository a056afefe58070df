"""A kernel so simple that only a broken machine gets it wrong."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def increment(pointer, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=inside) + 1.0, mask=inside)


def increments(device: torch.device) -> bool:
    """Whether adding one to a thousand numbers gives the right thousand numbers."""
    values = torch.arange(1000, dtype=torch.float32, device=device)
    increment[(4,)](values, values.numel(), BLOCK=256)  # pyright: ignore[reportArgumentType]
    return bool((values.cpu() == torch.arange(1, 1001, dtype=torch.float32)).all())
