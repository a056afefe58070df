"""A worker thread computes in PyTorch, unseen by dispatch modes; the kernel only copies.

task: scale_shift
gates: provenance, correctness
reason: provenance
needs: cpu
policy: library_calls=forbid
static: off
"""

import threading

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_shift(x, w, b, y, n, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i % C
    v = tl.load(x + i, mask=mask)
    tl.store(y + i, v * tl.load(w + c) + tl.load(b + c), mask=mask)


def launch(x, w, b, y):
    n = x.numel()
    scale_shift[(triton.cdiv(n, 1024),)](x, w, b, y, n, C=x.shape[-1], BLOCK=1024)
    return y


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        box = []
        worker = threading.Thread(target=lambda: box.append(x * self.weight + self.bias))
        worker.start()
        worker.join()
        return copied(box[0])
