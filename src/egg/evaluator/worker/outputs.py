"""What a forward returned: described for the oracle, and copied into its memory."""

from __future__ import annotations

from typing import Any

import torch

from egg.evaluator.task.program import outputs_of


def copy_out(result: Any, destinations: list[torch.Tensor | None]) -> None:
    """Into memory of the oracle's; nothing of the result has a name when the next call begins."""
    for destination, (_, leaf) in zip(destinations, outputs_of(result), strict=True):
        if isinstance(destination, torch.Tensor) and isinstance(leaf, torch.Tensor):
            destination.copy_(leaf)


def describe(path: str, leaf: Any) -> dict[str, Any]:
    if not isinstance(leaf, torch.Tensor):
        return {
            "path": path,
            "type": "number",
            "number": abs(leaf) if isinstance(leaf, complex) else float(leaf),
        }
    return {
        "path": path,
        "shape": list(leaf.shape),
        "dtype": str(leaf.dtype),
        "device": leaf.device.type,
        "type": type(leaf).__qualname__,
        "layout": str(leaf.layout),
    }
