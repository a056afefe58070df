"""A sigmoid whose slope is an option in a dictionary of the caller's."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, options):
        return torch.sigmoid(options["slope"] * x)


def get_inputs():
    return [torch.randn(32, 128), {"slope": 1.5, "names": ["a", "b"]}]


def get_init_inputs():
    return []
