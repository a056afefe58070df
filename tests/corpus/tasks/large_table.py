"""Sum of the embeddings of a bag of indices into a table of which few rows are drawn."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, entries, features):
        super().__init__()
        self.table = nn.Embedding(entries, features)

    def forward(self, indices):
        return self.table(indices).sum(dim=1)


bags = 16
bag_size = 4
entries = 1024
features = 16


def get_inputs():
    return [torch.randint(0, entries, (bags, bag_size))]


def get_init_inputs():
    return [entries, features]
