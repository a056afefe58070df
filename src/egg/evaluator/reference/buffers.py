"""The buffers of a module as they are at one time, to go back to."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Buffers:
    """Each with its place and what it held: a forward may write to a buffer, or put another in its place."""

    held: tuple[tuple[nn.Module, str, torch.Tensor, torch.Tensor], ...]

    @classmethod
    def of(cls, module: nn.Module) -> Buffers:
        return cls(
            tuple(
                (part, name, buffer, buffer.clone())
                for part in module.modules()
                for name, buffer in part.named_buffers(recurse=False)
            )
        )

    def put_back(self) -> None:
        for part, name, buffer, before in self.held:
            buffer.copy_(before)
            if part._buffers.get(name) is not buffer:
                part._buffers[name] = buffer
