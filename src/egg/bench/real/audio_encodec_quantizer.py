"""Residual vector quantisation of EnCodec 24 kHz, fp32.

Four codebooks of 1024 codes of width 128, 1500 frames. Each codebook takes the code nearest to what the
ones before left over; returned are the sum of the codes and the distance that is left after each.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 4
frames = 1500
dim = 128
codes = 1024
books = 4


class Model(nn.Module):
    def __init__(self, books: int, codes: int, dim: int):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(books, codes, dim))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        residual = x.transpose(1, 2)
        made = torch.zeros_like(residual)
        left = []
        for embed in self.embed:
            flat = residual.flatten(0, 1)
            distance = (
                flat.pow(2).sum(1, keepdim=True)
                - 2 * flat @ embed.t()
                + embed.t().pow(2).sum(0, keepdim=True)
            )
            index = (-distance).max(dim=-1).indices.view(residual.shape[:-1])
            found = F.embedding(index, embed)
            residual, made = residual - found, made + found
            left.append(residual.pow(2).mean(dim=-1))
        return made.transpose(1, 2), torch.stack(left)


def get_inputs():
    return [torch.randn(batch_size, dim, frames)]


def get_init_inputs():
    return [books, codes, dim]
