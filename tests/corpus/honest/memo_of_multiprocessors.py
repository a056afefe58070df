"""Asks for the number of multiprocessors once; logs it; keeps settings in slots.

task: row_softmax
needs: cpu
"""

import functools
import logging

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    e = tl.load(x + at, mask=inside, other=-float("inf"))
    e = tl.exp(e - tl.max(e, axis=0))
    tl.store(y + at, e / tl.sum(e, axis=0), mask=inside)


logger = logging.getLogger(__name__)


class Settings:
    __slots__ = ("block", "warps")

    def __init__(self, block, warps):
        self.block = block
        self.warps = warps


@functools.lru_cache(maxsize=None)
def multiprocessors() -> int:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


@functools.cache
def settings(columns: int) -> int:
    return triton.next_power_of_2(columns)


def softmax(x):
    logger.debug("rows %d on %d multiprocessors", x.shape[0], multiprocessors())
    x = x.contiguous()
    y = torch.empty_like(x)
    chosen = Settings(settings(x.shape[1]), 4)
    softmax_rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=chosen.block, num_warps=chosen.warps)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x)
