"""Which GPUs are here. torch is imported inside, and no CUDA context is made."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass

from egg.hardware.gpus import Gpu, find


@dataclass(frozen=True)
class PresentGpu:
    """A GPU this process can see, by the index torch gives it."""

    index: int
    name: str
    arch: str
    sms: int
    memory_bytes: int
    l2_bytes: int
    spec: Gpu | None
    """Its row in the table; ``None`` where the table does not know it."""


def present_gpus() -> tuple[PresentGpu, ...]:
    """The visible GPUs in torch's order (``CUDA_VISIBLE_DEVICES`` applies); empty where there is none.

    Only device properties are read: they need the driver, not a context on the device, so a process
    that merely schedules stays clean of one.
    """
    import torch

    if not torch.cuda.is_available():
        return ()
    return tuple(_describe(i, torch.cuda.get_device_properties(i)) for i in range(torch.cuda.device_count()))


def _describe(index: int, properties: object) -> PresentGpu:
    """From torch's device properties, whose fields differ a little between CUDA and ROCm builds."""
    amd = getattr(properties, "gcnArchName", "")
    name = getattr(properties, "name", "")
    major, minor = getattr(properties, "major", 0), getattr(properties, "minor", 0)
    return PresentGpu(
        index=index,
        name=name,
        arch=amd.split(":")[0] if amd.startswith("gfx") else f"sm_{major}{minor}",
        sms=getattr(properties, "multi_processor_count", 0),
        memory_bytes=getattr(properties, "total_memory", 0),
        l2_bytes=getattr(properties, "L2_cache_size", 0),
        spec=find(name),
    )


def cuda_tool(name: str) -> str | None:
    """Where a tool of the CUDA toolkit is: on the path, or in the toolkit's own folder."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which(name) or shutil.which(name, path=f"{home}/bin")
