"""Vision transformer whose layers' linears are a kernel of 32x64 tiles; the rest is the library's."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, w, input_precision="tf32x3")
    acc += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    if RELU:
        acc = tl.maximum(acc, 0.0)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def linear(x, weight, bias, relu=False):
    n, k = weight.shape
    m = x.numel() // k
    y = torch.empty((*x.shape[:-1], n), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 64))
    linear_kernel[grid](x.contiguous(), weight, bias, y, m, n, k, relu, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32)
    return y


class ModelNew(nn.Module):
    def __init__(
        self,
        image_size,
        patch_size,
        num_classes,
        dim,
        depth,
        heads,
        mlp_dim,
        channels=3,
        dropout=0.1,
        emb_dropout=0.1,
    ):
        super().__init__()
        self.patch_size, self.heads = patch_size, heads
        self.pos_embedding = nn.Parameter(torch.randn(1, (image_size // patch_size) ** 2 + 1, dim))
        self.patch_to_embedding = nn.Linear(channels * patch_size**2, dim)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.dropout = nn.Dropout(emb_dropout)
        layer = nn.TransformerEncoderLayer(dim, heads, mlp_dim, dropout)
        self.transformer = nn.TransformerEncoder(layer, depth)
        self.mlp_head = nn.Sequential(
            nn.Linear(dim, mlp_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(mlp_dim, num_classes)
        )

    def layer(self, layer, x):
        """Post-norm, over (sequence, batch, features): the image's batch is taken for the sequence."""
        sequence, batch, dim = x.shape
        attention = layer.self_attn
        q, k, v = linear(x, attention.in_proj_weight, attention.in_proj_bias).chunk(3, dim=-1)
        q, k, v = (
            t.reshape(sequence, batch * self.heads, dim // self.heads).transpose(0, 1) for t in (q, k, v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(sequence, batch, dim)
        x = layer.norm1(x + linear(mixed, attention.out_proj.weight, attention.out_proj.bias))
        hidden = linear(x, layer.linear1.weight, layer.linear1.bias, relu=True)
        return layer.norm2(x + linear(hidden, layer.linear2.weight, layer.linear2.bias))

    def forward(self, img):
        p = self.patch_size
        x = img.unfold(2, p, p).unfold(3, p, p).reshape(img.shape[0], -1, p * p * img.shape[1])
        x = self.patch_to_embedding(x)
        x = torch.cat((self.cls_token.expand(img.shape[0], -1, -1), x), dim=1) + self.pos_embedding
        x = self.dropout(x)
        for layer in self.transformer.layers:
            x = self.layer(layer, x)
        return self.mlp_head(x[:, 0])
