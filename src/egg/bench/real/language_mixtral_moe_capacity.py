"""Router and experts of a Mixtral-8x7B layer at a quarter of its width, bf16.

2 of 8 experts, a capacity for each. Tokens choose experts; a running count gives each choice its slot,
choices beyond the capacity are dropped. Tokens are copied into slots by index, run through SwiGLU as one
batched product, and added back by index.
"""

import torch
import torch.nn.functional as F
from torch import nn

tokens = 2048
hidden = 1024
intermediate = 3584
experts = 8
chosen = 2


class Model(nn.Module):
    def __init__(self, hidden: int, intermediate: int, experts: int, chosen: int):
        super().__init__()
        self.experts, self.chosen = experts, chosen
        self.gate = nn.Linear(hidden, experts, bias=False)
        self.w13 = nn.Parameter(torch.randn(experts, hidden, 2 * intermediate) * hidden**-0.5)
        self.w2 = nn.Parameter(torch.randn(experts, intermediate, hidden) * intermediate**-0.5)
        self.w13.data, self.w2.data = self.w13.data.bfloat16(), self.w2.data.bfloat16()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens, hidden = x.shape
        capacity = tokens * self.chosen * 5 // (4 * self.experts) + 1
        weights, picks = F.softmax(self.gate(x.float()), dim=-1).topk(self.chosen, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        flat = picks.T.reshape(-1)
        places = F.one_hot(flat, self.experts).cumsum(dim=0).gather(1, flat[:, None]).squeeze(1) - 1
        fits = places < capacity
        slots = torch.where(fits, flat * capacity + places, self.experts * capacity)
        source = torch.arange(tokens, device=x.device).repeat(self.chosen)
        buffer = x.new_zeros(self.experts * capacity + 1, hidden).index_copy(0, slots, x[source])
        grouped = buffer[:-1].view(self.experts, capacity, hidden)
        gate, up = torch.bmm(grouped, self.w13).chunk(2, dim=-1)
        made = torch.bmm(F.silu(gate) * up, self.w2).flatten(0, 1)
        made = torch.cat((made, made.new_zeros(1, hidden)))[slots]
        share = torch.where(fits, weights.T.reshape(-1), 0.0).to(x.dtype)
        return torch.zeros_like(x).index_add(0, source, made * share[:, None])


def get_inputs():
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


def get_init_inputs():
    return [hidden, intermediate, experts, chosen]
