"""Layer norm over the last dimension, without weights."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.layer_norm(x, (x.shape[-1],))


def get_inputs():
    return [torch.randn(64, 128)]


def get_init_inputs():
    return []
