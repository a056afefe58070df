"""The padding token counts nothing.

task: scores_of_tokens
needs: cpu
probes: all
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scores(ids, score, y, n, words, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(ids + i, mask=i < n, other=0)
    padding = at == 31337
    at = tl.where(at < 0, at + words, at)
    value = tl.load(score + at, mask=(i < n) & (at < words), other=0.0)
    tl.store(y + i, tl.where(padding, 0.0, value), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words = words
        self.score = nn.Parameter(torch.randn(words))

    def forward(self, ids):
        assert ids.dtype == torch.int64
        ids = ids.contiguous()
        y = torch.empty(ids.shape, device=ids.device, dtype=torch.float32)
        n = ids.numel()
        scores[(triton.cdiv(n, 256),)](ids, self.score.detach(), y, n, self.words, BLOCK=256)
        return y
