"""One step of decoding: a row goes to its place in a cache that the caller owns, and all rows so far are summed."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, cache, position):
        rows, position = torch.arange(x.shape[0], device=x.device), position.clamp(0, cache.shape[1] - 1)
        cache[rows, position] = torch.nn.functional.softsign(x)
        places = torch.arange(cache.shape[1], device=x.device)
        before = places[None, :, None] <= position[:, None, None]
        return torch.where(before, cache, 0.0).sum(dim=1)


batch_size, length, columns = 8, 24, 64


def get_inputs():
    cache = torch.randn(batch_size, length, columns)
    return [torch.randn(batch_size, columns), cache, torch.randint(1, length, (batch_size,))]


def get_init_inputs():
    return []
