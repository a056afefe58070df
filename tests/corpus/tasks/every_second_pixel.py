"""The last level of a feature pyramid: every second pixel, as a maximum of one."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, 1, 2, 0)


def get_inputs():
    return [torch.randn(4, 4, 16, 16)]


def get_init_inputs():
    return []
