"""MobileNetV1 with its depthwise convolutions as a kernel of nine loads per output; the rest: library."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def depthwise3x3_kernel(x_ptr, w_ptr, y_ptr, C, H, W, OH, OW, stride, BLOCK: tl.constexpr):
    plane = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < OH * OW
    oh, ow = place // OW, place % OW
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for r in range(3):
        for s in range(3):
            ih, iw = oh * stride + r - 1, ow * stride + s - 1
            mask = inside & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
            x = tl.load(x_ptr + plane * H * W + ih * W + iw, mask=mask, other=0.0)
            acc += x * tl.load(w_ptr + (plane % C) * 9 + r * 3 + s)
    tl.store(y_ptr + plane * OH * OW + place, acc, mask=inside)


class Depthwise(nn.Conv2d):
    def forward(self, x):
        n, c, h, w = x.shape
        stride = self.stride[0]
        oh, ow = (h - 1) // stride + 1, (w - 1) // stride + 1
        y = torch.empty((n, c, oh, ow), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(oh * ow, 128), n * c)
        depthwise3x3_kernel[grid](x, self.weight, y, c, h, w, oh, ow, stride, BLOCK=128)
        return y


def separable(ci, co, stride):
    return nn.Sequential(
        Depthwise(ci, ci, 3, stride, 1, groups=ci, bias=False), nn.BatchNorm2d(ci), nn.ReLU(),
        nn.Conv2d(ci, co, 1, bias=False), nn.BatchNorm2d(co), nn.ReLU(),
    )  # fmt: skip


PLAN = ((32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2))
PLAN += ((512, 512, 1),) * 5 + ((512, 1024, 2), (1024, 1024, 1))


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000, input_channels=3, alpha=1.0):
        super().__init__()
        first = nn.Sequential(
            nn.Conv2d(input_channels, int(32 * alpha), 3, 2, 1, bias=False),
            nn.BatchNorm2d(int(32 * alpha)),
            nn.ReLU(),
        )
        blocks = [separable(int(ci * alpha), int(co * alpha), stride) for ci, co, stride in PLAN]
        self.model = nn.Sequential(first, *blocks, nn.AvgPool2d(7))
        self.fc = nn.Linear(int(1024 * alpha), num_classes)

    def forward(self, x):
        return self.fc(self.model(x).flatten(1))
