"""Many identities, doubled and as floats that hold them."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids):
        return ids * 2 + 1, ids.to(torch.float32)


rows = 4096
width = 256


def get_inputs():
    return [torch.randint(0, 1 << 22, (rows, width))]


def get_init_inputs():
    return []
