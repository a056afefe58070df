"""Log-sum-exp and the target's logit in one reading of a row, which stays in registers."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def token_loss(logits_ptr, targets_ptr, loss_ptr, vocabulary, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    base = logits_ptr + row * vocabulary
    v = tl.load(base + c, mask=c < vocabulary, other=float("-inf"))
    highest = tl.max(v, axis=0)
    total = tl.sum(tl.exp(v - highest), axis=0)
    target = tl.load(base + tl.load(targets_ptr + row))
    tl.store(loss_ptr + row, tl.log(total) - (target - highest))


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        logits, targets = logits.contiguous(), targets.contiguous()
        tokens, vocabulary = logits.shape
        losses = torch.empty((tokens,), device=logits.device, dtype=logits.dtype)
        block = triton.next_power_of_2(vocabulary)
        warps = 32 if block >= 16384 else 8
        token_loss[(tokens,)](logits, targets, losses, vocabulary, BLOCK=block, num_warps=warps)
        return losses
