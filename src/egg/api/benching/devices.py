"""Which devices of this machine judge for a bench."""

from __future__ import annotations

from egg.hardware.detect import present_gpus


def alike(device: str) -> list[str]:
    """What a device's name stands for: ``auto`` and ``cuda`` are all GPUs of the first one's kind, since
    times from different kinds cannot stand in one table."""
    if device not in ("auto", "cuda"):
        return [device]
    present = present_gpus()
    found = [f"cuda:{gpu.index}" for gpu in present if gpu.name == present[0].name]
    return found or (["cpu"] if device == "auto" else ["cuda:0"])
