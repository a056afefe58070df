"""The contrastive loss of MoCo v2 against a queue of 65536 keys of width 128, fp32.

A loss for every image of 256.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch_size = 256
dim = 128
queue = 65536


class Model(nn.Module):
    queue: torch.Tensor

    def __init__(self, dim: int, queue: int, temperature: float):
        super().__init__()
        self.temperature = temperature
        self.register_buffer("queue", F.normalize(torch.randn(dim, queue), dim=0))

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        q, k = F.normalize(q, dim=1), F.normalize(k, dim=1)
        positive = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", [q, self.queue])
        logits = torch.cat([positive, negative], dim=1) / self.temperature
        labels = torch.zeros(logits.shape[0], dtype=torch.long, device=logits.device)
        return F.cross_entropy(logits, labels, reduction="none")


def get_inputs():
    return [torch.randn(batch_size, dim), torch.randn(batch_size, dim)]


def get_init_inputs():
    return [dim, queue, 0.2]
