"""The three heads of CenterNet (DLA-34, 512 pixels), eval mode, fp16, channels last.

In a dictionary as its code returns them.
"""

import torch
from torch import nn

batch_size = 16
channels = 64
hidden = 256
size = 128
classes = 80


class Model(nn.Module):
    def __init__(self, channels: int, hidden: int, classes: int):
        super().__init__()
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(
                    nn.Conv2d(channels, hidden, 3, padding=1),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(hidden, outputs, 1),
                )
                for name, outputs in (("hm", classes), ("wh", 2), ("reg", 2))
            }
        )
        self.to(torch.float16).eval()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        made = {name: head(x) for name, head in self.heads.items()}
        made["hm"] = torch.clamp(made["hm"].sigmoid(), min=1e-4, max=1 - 1e-4)
        return made


def get_inputs():
    x = torch.randn(batch_size, channels, size, size, dtype=torch.float16)
    return [x.to(memory_format=torch.channels_last)]


def get_init_inputs():
    return [channels, hidden, classes]
