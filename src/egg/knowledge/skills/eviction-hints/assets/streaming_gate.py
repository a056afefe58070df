"""x * sigmoid(gate) + bias on tensors far larger than L2, touched once: hints keep the caches for the bias.

Loads of x and gate are marked evict_first, the store goes by .cs; the small bias, which every
program reads again, is marked evict_last.
"""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 8
WARPS = 4


@triton.jit
def gate_bias(
    x_ptr, gate_ptr, bias_ptr, out_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = (r < rows)[:, None] & (c < WIDTH)[None, :]
    at = r[:, None].to(tl.int64) * WIDTH + c[None, :]
    bias = tl.load(bias_ptr + c, mask=c < WIDTH, other=0.0, eviction_policy="evict_last")
    x = tl.load(x_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first")
    gate = tl.load(gate_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first")
    y = x / (1.0 + tl.exp(-gate)) + bias[None, :]
    tl.store(out_ptr + at, y, mask=inside, cache_modifier=".cs")


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(gate) + self.bias


class ModelNew(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        x, gate = x.contiguous(), gate.contiguous()
        width = x.shape[-1]
        rows = x.numel() // width
        out = torch.empty_like(x)
        block = min(512, triton.next_power_of_2(width))
        gate_bias[(triton.cdiv(rows, ROWS), triton.cdiv(width, block))](
            x, gate, self.bias, out, rows, WIDTH=width, ROWS=ROWS, BLOCK=block, num_warps=WARPS
        )
        return out


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(101, 700), torch.randn(101, 700)]


def get_init_inputs() -> list[int]:
    return [700]
