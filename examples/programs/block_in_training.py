"""A block of a network, optimized and used in training and for inference: one line in a PyTorch program.

Run it anywhere: `python examples/programs/block_in_training.py`. Without a GPU set `TRITON_INTERPRET=1` to
see the kernel answer; without that too, the original answers every call. Training goes through the original,
as the kernels compute forward only; evaluation between the steps goes through the kernel and sees new
weights.
"""

from __future__ import annotations

import sys
from tempfile import mkdtemp

import torch
from torch import nn
from torch.nn import functional as F

import egg


class FeedForward(nn.Module):
    """The feed-forward part of a transformer block."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


def main() -> int:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, inner, tokens = (2048, 4096, 4096) if device == "cuda" else (16, 16, 8)
    block = FeedForward(width, inner).to(device)
    x, wanted = torch.randn(tokens, width, device=device), torch.randn(tokens, width, device=device)

    fast = egg.optimize(
        block, (x,), budget="sketch", folder=f"{mkdtemp(prefix='egg-')}/run", use_unmeasured=device == "cpu"
    )
    print(fast.result)

    optimizer = torch.optim.SGD(fast.parameters(), lr=1e-2)
    for step in range(3):
        loss = F.mse_loss(fast(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.inference_mode():
            torch.testing.assert_close(fast(x), block(x), rtol=1e-3, atol=1e-3)
        print(f"step {step}: loss {loss.item():.4f}")

    print(fast.stats())
    return 0


if __name__ == "__main__":
    sys.exit(main())
