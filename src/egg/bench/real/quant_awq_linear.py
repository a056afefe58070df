"""A product with AWQ's packed 4-bit weights, fp16.

The gate projection of Llama-2-7B-AWQ, 4096 to 11008, groups of 128. Eight weights of a row share one 32-bit
word in the order 0 2 4 6 1 3 5 7; zero points are packed alike.
"""

import torch
from torch import nn

tokens = 16
groups = 32
group_size = 128
words = 1376
order = (0, 4, 1, 5, 2, 6, 3, 7)


class Model(nn.Module):
    qweight: torch.Tensor
    qzeros: torch.Tensor
    scales: torch.Tensor
    shifts: torch.Tensor

    def __init__(self, groups: int, group_size: int, words: int):
        super().__init__()
        self.group_size = group_size
        limits = torch.iinfo(torch.int32)
        low, high = limits.min, limits.max
        self.register_buffer(
            "qweight", torch.randint(low, high, (groups * group_size, words), dtype=torch.int32)
        )
        self.register_buffer("qzeros", torch.randint(low, high, (groups, words), dtype=torch.int32))
        scales = (0.5 + torch.rand(groups, 8 * words)) / (4.6 * (groups * group_size) ** 0.5)
        self.register_buffer("scales", scales.half())
        self.register_buffer("shifts", torch.tensor([4 * place for place in order], dtype=torch.int32))

    def unpacked(self, stored: torch.Tensor) -> torch.Tensor:
        return ((stored[:, :, None] >> self.shifts) & 15).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = self.unpacked(self.qweight)
        zeros = self.unpacked(self.qzeros).repeat_interleave(self.group_size, dim=0)
        scales = self.scales.repeat_interleave(self.group_size, dim=0)
        return x @ ((codes - zeros).to(x.dtype) * scales)


def get_inputs():
    return [torch.randn(tokens, groups * group_size, dtype=torch.float16)]


def get_init_inputs():
    return [groups, group_size, words]
