"""A conjugate that is first noted and then carried out, beside a kernel that multiplies.

task: conjugate_product
needs: cpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a, b, y, n, sign, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    ar = tl.load(a + 2 * i, mask=mask, other=0.0)
    ai = tl.load(a + 2 * i + 1, mask=mask, other=0.0)
    br = tl.load(b + 2 * i, mask=mask, other=0.0)
    bi = tl.load(b + 2 * i + 1, mask=mask, other=0.0)
    tl.store(y + 2 * i, ar * br - ai * bi, mask=mask)
    tl.store(y + 2 * i + 1, sign * (ar * bi + ai * br), mask=mask)


def multiplied(a, b, sign):
    a, b = a.detach().contiguous(), b.detach().contiguous()
    y = torch.empty_like(a)
    real = [torch.view_as_real(t) for t in (a, b, y)]
    product[(triton.cdiv(a.numel(), 1024),)](*real, a.numel(), sign, BLOCK=1024)
    return y


class ModelNew(nn.Module):
    def forward(self, a, b):
        assert a.shape == b.shape
        assert a.dtype == torch.complex64
        return multiplied(a, b, 1.0).conj().resolve_conj()
