"""The eight largest of each row, whose levels are few, their places, and what stands there in another tensor."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, levels, payload):
        values, places = torch.topk(levels, 8, dim=-1)
        return values, places, payload.gather(1, places)


def get_inputs():
    return [torch.randint(0, 12, (8, 64)).float(), torch.randn(8, 64)]


def get_init_inputs():
    return []
