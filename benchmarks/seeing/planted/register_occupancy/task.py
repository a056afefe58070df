"""Walks along linked rows: each row names the next. Sums over stretches of a walk are mixed into channels.

A row is sixteen numbers, of which the first is the next row's number, and then 512 of payload.
"""

import torch
from torch import nn

rows = 262144
walkers = 1056
segments = 8
steps = 64
channels = 40


class Model(nn.Module):
    def __init__(self, segments: int, steps: int):
        super().__init__()
        self.segments, self.steps = segments, steps

    def forward(self, table, weights, start):
        at = start.long()
        sums = []
        for _ in range(self.segments):
            total = torch.zeros(at.numel(), table.shape[1] - 16, device=table.device, dtype=table.dtype)
            for _ in range(self.steps):
                row = table[at]
                total += row[:, 16:]
                at = row[:, 0].clamp(0, table.shape[0] - 1).long()
            sums.append(total)
        return torch.einsum("spc,sd->pdc", torch.stack(sums), weights)


def get_inputs():
    table = torch.randn(rows, 528)
    table[:, 0] = torch.randint(0, rows, (rows,)).to(table.dtype)
    start = torch.randint(0, rows, (walkers,), dtype=torch.int32)
    return [table, torch.randn(segments, channels), start]


def get_init_inputs():
    return [segments, steps]
