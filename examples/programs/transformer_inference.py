"""A transformer for inference with `torch.compile(backend="egg")`: each distinct graph is tuned once.

Run it anywhere: `python examples/programs/transformer_inference.py [STORE]`. The blocks of the model compute
the same thing on weights of their own, so the kernel store gets one graph for all of them. The first run
tunes it and waits for that; a second run with the same STORE finds the kernel there. Real programs leave
`tune` out, run once, and call `egg tune` afterwards.

Without a GPU set `TRITON_INTERPRET=1` to see the kernels answer, in Triton's interpreter; without that too,
PyTorch answers every call.
"""

from __future__ import annotations

import sys
from tempfile import mkdtemp

import torch
from torch import nn
from torch.nn import functional as F

import egg


class Block(nn.Module):
    """Attention and a gated feed-forward part, each behind a norm."""

    def __init__(self, width: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
        self.to_all = nn.Linear(width, 3 * width, bias=False)
        self.attended = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        parts = self.to_all(self.before_attention(x)).view(batch, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(batch, tokens, width))
        y = self.before_feed(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Transformer(nn.Module):
    def __init__(self, words: int, width: int, inner: int, heads: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, inner, heads) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-6), nn.Linear(width, words, bias=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> int:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    width, inner, heads, tokens = (1024, 2816, 16, 512) if device == "cuda" else (16, 16, 2, 8)
    model = Transformer(100, width, inner, heads, depth=3).to(device).eval()
    words = torch.randint(0, 100, (1, tokens), device=device)

    options = {"store": sys.argv[1] if len(sys.argv) > 1 else mkdtemp(prefix="egg-"), "tune": True}
    if device == "cpu":
        options |= {"budget": "sketch", "unmeasured": True, "fallback": "eager"}
    with torch.inference_mode():
        expected = model(words)
        for block in model.blocks:
            block.compile(backend="egg", options=options, dynamic=False)
        for _ in range(3):
            torch.testing.assert_close(model(words), expected, rtol=1e-3, atol=1e-3)

    for row in egg.backend.stats():
        print(f"{row['route']:<9} {row['key'][:16]} {row['counts']} {row['reason']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
