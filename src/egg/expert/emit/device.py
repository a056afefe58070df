"""What host code asks of the device it runs on, as a function of the file: a file may run on other GPUs than
the one it was written for.
"""

from __future__ import annotations

MULTIPROCESSORS = "multiprocessors"
TEXT = '''def multiprocessors(device):
    """How many programs surely run at the same time: one per multiprocessor, one in all off the GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1'''


def multiprocessors(device: str) -> str:
    """The call, for a device as the host spells it."""
    return f"{MULTIPROCESSORS}({device})"
