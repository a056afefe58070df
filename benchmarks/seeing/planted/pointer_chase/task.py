"""Many walkers in a graph where every node has one successor: where each stands after so many steps."""

import torch
from torch import nn

walkers = 8448
nodes = 2097152
steps = 1024


class Model(nn.Module):
    def __init__(self, steps: int):
        super().__init__()
        self.steps = steps

    def forward(self, successor, start):
        at = start.long()
        for _ in range(self.steps):
            at = successor[at].long()
        return at.to(torch.int32)


def get_inputs():
    successor = torch.randint(0, nodes, (nodes,), dtype=torch.int32)
    return [successor, torch.randint(0, nodes, (walkers,), dtype=torch.int32)]


def get_init_inputs():
    return [steps]
