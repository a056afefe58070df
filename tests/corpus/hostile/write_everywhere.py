"""Leaves files in every folder it can write to, then answers with the wrong thing.

task: scale_shift
gates: build, provenance, correctness
needs: cpu
static: off
"""

import os
import tempfile

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


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        for folder in (os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir(), "/dev/shm"):
            try:
                with open(os.path.join(folder, "egg-was-here"), "wb") as out:
                    out.write(b"x" * (1 << 20))
            except OSError:
                pass
        return x
