"""The device to judge on, and what it can spare for a candidate."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from egg.core.errors import MachineError, UsageError
from egg.evaluator.process import sandbox
from egg.evaluator.process.sandbox import Limits

if TYPE_CHECKING:
    import torch


def device_name(name: str) -> str:
    """:func:`choose_device` for a process that hands the name on: the CPU is found without PyTorch, whose
    import would take longer than most verdicts."""
    return name if name == "cpu" else str(choose_device(name))


def choose_device(name: str) -> torch.device:
    """``auto`` is the first GPU, or the CPU where there is none."""
    import torch

    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"not a device: {name!r}", "use auto, cpu, cuda or cuda:N") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"not a device we can judge on: {name!r}", "use auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        index = device.index or 0
        if index >= count:
            found = f"{count} visible" if count else "none is visible"
            raise MachineError(f"no GPU {index} here: {found}", "use --device cpu, or run `egg doctor`")
        return torch.device("cuda", index)
    return device


def limits_for(device: torch.device) -> Limits:
    return sandbox.limits_for(device.type)


def driver_version(device: torch.device) -> str:
    """The CUDA version the installed driver speaks; empty without a GPU."""
    if device.type != "cuda":
        return ""
    version = ctypes.c_int()
    ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    major, rest = divmod(version.value, 1000)
    return f"CUDA {major}.{rest // 10}"
