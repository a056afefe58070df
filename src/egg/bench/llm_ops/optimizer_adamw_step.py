"""One step of AdamW as a function of tensors: master weights and moments in fp32, gradient and copy in bf16.

The query projection of Llama-3-8B, 4096 x 4096, at step 1000. Returned are the weights, both moments, and
the bf16 weights for the next forward. The second moment of a square is never negative; the clamp says so.
"""

import torch
from torch import nn

rows = 4096
columns = 4096


class Model(nn.Module):
    def __init__(self, rate: float, beta1: float, beta2: float, eps: float, decay: float, step: float):
        super().__init__()
        self.rate, self.beta1, self.beta2, self.eps, self.decay = rate, beta1, beta2, eps, decay
        self.correction1, self.correction2 = 1.0 - beta1**step, 1.0 - beta2**step

    def forward(
        self, weight: torch.Tensor, gradient: torch.Tensor, first: torch.Tensor, second: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        slope = gradient.to(weight.dtype)
        first = self.beta1 * first + (1.0 - self.beta1) * slope
        second = self.beta2 * second.clamp_min(0.0) + (1.0 - self.beta2) * slope * slope
        spread = torch.sqrt(second / self.correction2) + self.eps
        weight = weight * (1.0 - self.rate * self.decay) - self.rate / self.correction1 * first / spread
        return weight, first, second, weight.to(gradient.dtype)


def get_inputs():
    weight, first = 0.5 * torch.randn(rows, columns), 0.1 * torch.randn(rows, columns)
    gradient = torch.randn(rows, columns, dtype=torch.bfloat16)
    return [weight, gradient, first, torch.randn(rows, columns).square()]


def get_init_inputs():
    return [3e-3, 0.9, 0.95, 1e-8, 0.1, 1000.0]
