"""Inside a worker without a GPU: capture the candidate's launches at full size and compile them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from egg.evaluator import exchange
from egg.evaluator.offline import CaptureUnsupported, GpuTarget, capture
from egg.evaluator.offline.compile import Binary, binaries


def precompile(
    make: Callable[[], nn.Module], structure: str, specs: list[dict[str, Any]], target: dict[str, Any]
) -> tuple[dict[str, Any], list[Binary]]:
    """The reply, and what the launches compile to; or the reason why they could not be captured."""

    def inputs() -> list[Any]:
        tensors = [
            torch.empty_strided(s["shape"], s["stride"], dtype=getattr(torch, s["dtype"])) for s in specs
        ]
        return exchange.unpack(structure, tensors)

    gpu = GpuTarget(**target)
    try:
        captured = capture(make, inputs, gpu)
    except CaptureUnsupported as reason:
        return {"unsupported": str(reason), "compiled": 0, "launched": True}, []
    found = binaries(captured, gpu)
    launched = bool(captured.launches or captured.first_call_launches)
    return {"compiled": len(found), "launched": launched}, found
