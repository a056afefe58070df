"""Depthwise 2-D convolution: one program per block of one plane's outputs, every tap a load of its own."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise_kernel(x_ptr, w_ptr, y_ptr, C, H, W, OH, OW, K: tl.constexpr, BLOCK: tl.constexpr):
    plane = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < OH * OW
    oh, ow = place // OW, place % OW
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for r in range(K):
        for s in range(K):
            x = tl.load(x_ptr + plane * H * W + (oh + r) * W + ow + s, mask=inside, other=0.0)
            acc += x * tl.load(w_ptr + (plane % C) * K * K + r * K + s)
    tl.store(y_ptr + plane * OH * OW + place, acc, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, in_channels, kernel_size, stride=1, padding=0, bias=False):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels, in_channels, kernel_size, stride, padding, groups=in_channels, bias=bias
        )

    def forward(self, x):
        n, c, h, w = x.shape
        k = self.conv2d.weight.shape[2]
        oh, ow = h - k + 1, w - k + 1
        y = torch.empty((n, c, oh, ow), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(oh * ow, 256), n * c)
        depthwise_kernel[grid](x, self.conv2d.weight, y, c, h, w, oh, ow, k, BLOCK=256)
        return y
