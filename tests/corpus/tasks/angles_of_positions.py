"""A sinusoidal embedding of positions in a long context: fast angles are off by much, slow ones by nothing."""

import math

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, t):
        i = torch.arange(32, dtype=torch.float32, device=t.device)
        angles = t.float()[:, None] * torch.exp(i * (-math.log(10000.0) / 32))[None, :]
        return torch.cat((torch.cos(angles), torch.sin(angles)), dim=-1)


def get_inputs():
    return [torch.randint(0, 131072, (128,))]


def get_init_inputs():
    return []
