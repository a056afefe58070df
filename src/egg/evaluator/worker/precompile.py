"""Inside a worker without a GPU: capture the candidate's launches at full size and compile them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from egg.core.codec import to_json
from egg.evaluator import exchange
from egg.evaluator.offline import CaptureUnsupported, GpuTarget, capture, compile_all


def precompile(
    make: Callable[[], nn.Module], structure: str, specs: list[dict[str, Any]], target: dict[str, Any]
) -> dict[str, Any]:
    """Resources of every launch, or the reason why the launches could not be captured."""

    def inputs() -> list[Any]:
        tensors = [
            torch.empty_strided(s["shape"], s["stride"], dtype=getattr(torch, s["dtype"])) for s in specs
        ]
        return exchange.unpack(structure, tensors)

    gpu = GpuTarget(**target)
    try:
        captured = capture(make, inputs, gpu)
    except CaptureUnsupported as reason:
        return {"unsupported": str(reason), "kernels": [], "launched": True}
    kernels = [to_json(resources) for resources in compile_all(captured, gpu)]
    return {"kernels": kernels, "launched": bool(captured.launches or captured.first_call_launches)}
