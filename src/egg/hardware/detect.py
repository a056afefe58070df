"""Which GPUs are here. torch is imported inside, and no CUDA context is made."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

from egg.hardware.gpus import Architecture, Gpu, find, table

DERIVED = "derived from the driver's figures"
"""The source of a row that no document stands behind."""


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
    derived: Gpu | None = None
    """A row made from what the driver reports, where the table has none: for facts and predictions, never
    for a judgement. ``None`` where the table knows the GPU, or nothing is known of its architecture."""

    @property
    def best_row(self) -> Gpu | None:
        """What there is to predict with."""
        return self.spec or self.derived


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
    name = getattr(properties, "name", "")
    spec = find(name)
    return PresentGpu(
        index=index,
        name=name,
        arch=arch_of(properties),
        sms=getattr(properties, "multi_processor_count", 0),
        memory_bytes=getattr(properties, "total_memory", 0),
        l2_bytes=getattr(properties, "L2_cache_size", 0),
        spec=spec,
        derived=derived_gpu(properties) if spec is None else None,
    )


def arch_of(properties: object) -> str:
    """The compiler's name for a device's architecture, from torch's properties of it. CUDA builds put the
    card's name where ROCm builds put the architecture."""
    amd = getattr(properties, "gcnArchName", "")
    major, minor = getattr(properties, "major", 0), getattr(properties, "minor", 0)
    return amd.split(":")[0] if amd.startswith("gfx") else f"sm_{major}{minor}"


def derived_gpu(properties: object) -> Gpu | None:
    """A row for a GPU the table does not know, from torch's device properties.

    What the driver counts is taken as it is. Peaks are its multiprocessors times its clock
    times what a multiprocessor of that architecture does per clock at least, so a card that
    does fp32 sums at full rate is underrated. What this torch does not tell is filled in from
    the weakest card of the architecture. ``None`` where the architecture is unknown too: then
    every figure would be a guess.
    """
    kind = _nearest(arch_of(properties))
    sms, memory = (getattr(properties, name, 0) for name in ("multi_processor_count", "total_memory"))
    if kind is None or not sms or not memory:
        return None
    cousins = [gpu for gpu in table().gpus if gpu.arch == kind.arch]
    clock = getattr(properties, "clock_rate", 0) * 1e3 or min((gpu.clock for gpu in cousins), default=0)
    bandwidth = _bus_bandwidth(properties, kind) or min(
        (gpu.bandwidth / gpu.sms * sms for gpu in cousins), default=0
    )
    if not clock or not bandwidth:
        return None
    threads = getattr(properties, "max_threads_per_multi_processor", 0)
    return Gpu(
        name=getattr(properties, "name", "") or arch_of(properties),
        vendor=kind.vendor,
        architecture=kind.name,
        arch=arch_of(properties),
        sms=sms,
        clock=clock,
        shared_per_block=getattr(properties, "shared_memory_per_block_optin", 0) or kind.shared_per_block,
        shared_per_sm=getattr(properties, "shared_memory_per_multiprocessor", 0) or kind.shared_per_sm,
        registers_per_sm=getattr(properties, "regs_per_multiprocessor", 0) or kind.registers_per_sm,
        warps_per_sm=threads // getattr(properties, "warp_size", 32) if threads else kind.warps_per_sm,
        blocks_per_sm=kind.blocks_per_sm,
        l2_bytes=getattr(properties, "L2_cache_size", 0) or min((g.l2_bytes for g in cousins), default=0),
        memory_bytes=memory,
        bandwidth=bandwidth,
        vector=_peaks(kind.vector, sms * clock),
        tensor=_peaks(kind.tensor, sms * clock),
        tensor_fp16_accumulation=_peaks(kind.tensor_fp16_accumulation, sms * clock),
        source=DERIVED,
    )


def _peaks(per_clock: Mapping[str, float], clocks: float) -> dict[str, float]:
    return {precision: operations * clocks for precision, operations in per_clock.items()}


def _bus_bandwidth(properties: object, kind: Architecture) -> float:
    """Two transfers per memory clock over the whole bus; 0 where that is not reported. AMD's clocks mean
    another number of transfers from one kind of memory to the next, so theirs are not used."""
    if kind.vendor != "nvidia":
        return 0.0
    hertz = getattr(properties, "memory_clock_rate", 0) * 1e3
    return 2 * hertz * getattr(properties, "memory_bus_width", 0) / 8


def _nearest(arch: str) -> Architecture | None:
    """The architecture itself, or the closest earlier one of its family (``sm_87`` is like ``sm_86``,
    ``gfx950`` like ``gfx942``); ``None`` where there is none."""
    known = table().architectures
    if arch in known:
        return known[arch]
    family, generation = _generation(arch)
    ages = {other: generation - _generation(other)[1] for other in known if _generation(other)[0] == family}
    earlier = [other for other, age in ages.items() if age > 0]
    return known[min(earlier, key=ages.__getitem__)] if earlier else None


def _generation(arch: str) -> tuple[str, int]:
    """``sm_103`` -> ("sm_10", 103), ``gfx90a`` -> ("gfx9", 0x90a): cards of one family are built alike."""
    digits = re.fullmatch(r"(sm_|gfx)([0-9a-f]+)", arch)
    if digits is None:
        return arch, 0
    kind, number = digits[1], digits[2]
    family = number[:-1] if kind == "sm_" else number[:-2]
    return f"{kind}{family}", int(number, 16)


def cuda_tool(name: str) -> str | None:
    """Where a tool of the CUDA toolkit is: on the path, or in the toolkit's own folder."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which(name) or shutil.which(name, path=f"{home}/bin")
