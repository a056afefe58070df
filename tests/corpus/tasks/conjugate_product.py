"""The complex conjugate of a product, element by element."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.conj_physical(a * b)


def get_inputs():
    return [torch.randn(16, 64, dtype=torch.complex64), torch.randn(16, 64, dtype=torch.complex64)]


def get_init_inputs():
    return []
