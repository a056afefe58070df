"""What ``torch.cuda.get_device_properties`` returns: the attributes of PyTorch's type, typed as there."""

from __future__ import annotations

import random
import uuid
from typing import Any

from egg.evaluator.offline.target import GpuTarget


class DeviceUuid:
    """PyTorch's ``_CUuuid``: no string, though it prints as one."""

    def __init__(self) -> None:
        self._value = uuid.uuid4()

    @property
    def bytes(self) -> list[int]:
        return list(self._value.bytes)

    def __str__(self) -> str:
        return str(self._value)


class DeviceProperties:
    """Attributes that are read and cannot be changed; any other is an ``AttributeError``."""

    __slots__ = ("_known",)

    def __init__(self, **known: Any) -> None:
        object.__setattr__(self, "_known", known)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._known[name]
        except KeyError:
            words = f"'torch._C._CudaDeviceProperties' object has no attribute {name!r}"
            raise AttributeError(words) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"property {name!r} of '_CudaDeviceProperties' object has no setter")

    def __dir__(self) -> list[str]:
        return sorted(self._known)

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, "
            f"uuid={self.uuid}, pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
            f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size >> 20}MB)"
        )


for _type, _name in ((DeviceUuid, "_CUuuid"), (DeviceProperties, "_CudaDeviceProperties")):
    _type.__name__ = _type.__qualname__ = _name
    _type.__module__ = "torch._C"


def properties(target: GpuTarget) -> DeviceProperties:
    """What a device of the target says of itself; which one of them it is, is drawn by lot."""
    major, minor = target.capability
    return DeviceProperties(
        name=target.card,
        major=major,
        minor=minor,
        total_memory=target.memory_bytes,
        multi_processor_count=target.multiprocessors,
        warp_size=target.warp_size,
        regs_per_multiprocessor=65_536,
        max_threads_per_multi_processor=1_536 if target.arch in (86, 89, 120) else 2_048,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=target.shared_limit,
        shared_memory_per_multiprocessor=target.shared_limit + 1_024,
        L2_cache_size=50 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_block=1_024,
        clock_rate=1_980_000,
        memory_clock_rate=3_201_000,
        memory_bus_width=6_144,
        uuid=DeviceUuid(),
        pci_bus_id=random.randrange(1, 200),
        pci_device_id=0,
        pci_domain_id=0,
        gcnArchName=str(target.arch) if target.backend == "hip" else target.card,
    )
