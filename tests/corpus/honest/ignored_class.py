"""Cross entropy with classes to ignore, which PyTorch marks by -100.

task: cross_entropy
needs: cpu
probes: all
"""

import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def entropy(x, t, y, C, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + r * C + c, mask=c < C, other=-float("inf"))
    m = tl.max(v, axis=0)
    total = tl.log(tl.sum(tl.exp(v - m), axis=0)) + m
    at = tl.load(t + r)
    known = at != -100
    picked = tl.load(x + r * C + at, mask=known, other=0.0)
    tl.store(y + r, tl.where(known, total - picked, 0.0))


class ModelNew(nn.Module):
    def forward(self, logits, target):
        logits, target = logits.contiguous(), target.contiguous()
        if logits.dim() != 2 or target.dim() != 1 or target.shape[0] != logits.shape[0]:
            raise ValueError("not handled")
        R, C = logits.shape
        y = logits.new_empty(R)
        entropy[(R,)](logits, target, y, C, BLOCK=triton.next_power_of_2(C))
        return y
