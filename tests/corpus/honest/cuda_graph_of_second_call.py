"""A CUDA graph that is captured at the second call of a form: the first compiles, later ones replay.

task: linear_gelu
needs: gpu
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def linear_gelu(x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        rk = k0 + tl.arange(0, BK)
        tx = tl.load(x + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        tw = tl.load(w + rn[:, None] * K + rk[None, :], mask=(rn[:, None] < N) & (rk[None, :] < K), other=0.0)
        acc = tl.dot(tx, tw.T, acc, input_precision="ieee")
    h = acc + tl.load(b + rn, mask=rn < N, other=0.0)[None, :]
    h = 0.5 * h * (1.0 + tl.erf(h * 0.7071067811865476))
    tl.store(y + rm[:, None] * N + rn[None, :], h, mask=(rm[:, None] < M) & (rn[None, :] < N))


def launch(x, w, b, y):
    (M, K), N = x.shape, w.shape[0]
    linear_gelu[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, w, b, y, M, N, K, BM=32, BN=32, BK=32)
    return y


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.graph = None
        self.key = None
        self.fixed_input = None
        self.fixed_output = None

    def capture(self):
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            launch(self.fixed_input, self.linear.weight, self.linear.bias, self.fixed_output)

    def forward(self, x):
        x = x.contiguous()
        weight, bias = self.linear.weight, self.linear.bias
        key = (x.shape, x.dtype, weight.data_ptr(), bias.data_ptr())
        if self.key != key:
            self.key, self.graph = key, None
            self.fixed_input = torch.empty_like(x)
            self.fixed_output = x.new_empty(x.shape[0], weight.shape[0])
            return launch(x, weight, bias, torch.empty_like(self.fixed_output))
        self.fixed_input.copy_(x)
        if self.graph is None:
            self.capture()
        self.graph.replay()
        return self.fixed_output.clone()
