"""RMS norm of bfloat16 rows: two bytes per element in memory, fp32 in registers, one rounding at the end.

Eight bf16 elements make a 16-byte access, so a row needs half the bytes and half the instructions of
fp32; the sum of squares in bf16 would lose everything after a few hundred elements.
"""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 2
WARPS = 4


@triton.jit
def rms_norm(
    x_ptr, weight_ptr, out_ptr, rows, eps, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (r < rows)[:, None] & (c < WIDTH)[None, :]
    at = r[:, None].to(tl.int64) * WIDTH + c[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=1) / WIDTH + eps)
    weight = tl.load(weight_ptr + c, mask=c < WIDTH, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, (x * scale[:, None] * weight[None, :]).to(out_ptr.dtype.element_ty), mask=inside)


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, dtype=torch.bfloat16))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, dtype=torch.bfloat16))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        out = torch.empty_like(x)
        rms_norm[(triton.cdiv(rows, ROWS),)](
            x, self.weight, out, rows, self.eps, WIDTH=width, ROWS=ROWS,
            BLOCK=triton.next_power_of_2(width), num_warps=WARPS,
        )  # fmt: skip
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(5, 13, 520, dtype=torch.bfloat16)]


def get_init_inputs() -> list[int]:
    return [520]
