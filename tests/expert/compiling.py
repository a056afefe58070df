"""A written file as a module, for compiling its launches where there is no GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn


def module_of(path: Path, layers: Callable[[], dict[str, nn.Module]] = dict) -> type[nn.Module]:
    """The class whose ``forward`` is that of the file at ``path``, with the layers that it reads."""

    class Written(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, layer in layers().items():
                self.add_module(name, layer)
            spec = importlib.util.spec_from_file_location(path.stem, path)
            assert spec is not None
            assert spec.loader is not None
            self.code = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self.code)

        def forward(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
            return self.code.forward(self, *arguments)

    return Written
