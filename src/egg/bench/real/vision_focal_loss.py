"""Sigmoid focal loss of RetinaNet (R50-FPN, 800 pixels) over 120087 anchors and 91 classes, fp16 logits.

A loss an image. Anchors between the thresholds (-2) are left out, background (-1) has no positive class;
the sum over an image is divided by its number of foreground anchors.
"""

import torch
import torch.nn.functional as F
from torch import nn

images = 4
anchors = 120087
classes = 91


class Model(nn.Module):
    def __init__(self, alpha: float, gamma: float):
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, logits: torch.Tensor, matched: torch.Tensor) -> torch.Tensor:
        logits = logits.float()
        foreground = matched >= 0
        classes = torch.arange(logits.shape[-1], device=logits.device)
        targets = (matched.unsqueeze(-1) == classes).to(logits.dtype)
        p = torch.sigmoid(logits)
        ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        p_t = p * targets + (1 - p) * (1 - targets)
        alpha_t = self.alpha * targets + (1 - self.alpha) * (1 - targets)
        loss = alpha_t * ce * (1 - p_t) ** self.gamma
        loss = torch.where((matched != -2).unsqueeze(-1), loss, torch.zeros_like(loss))
        return loss.sum(dim=(1, 2)) / foreground.sum(dim=1).clamp(min=1)


def get_inputs():
    matched = torch.randint(-2, classes, (images, anchors))
    return [torch.randn(images, anchors, classes, dtype=torch.float16), matched]


def get_init_inputs():
    return [0.25, 2.0]
