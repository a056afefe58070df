"""Gigabytes looked at a piece at a time, and a GPU that two processes share.

A task may be so large that a handful of copies of its inputs and outputs fill the GPU. What
needs temporaries as large as its operands therefore goes over them in pieces; and because
PyTorch keeps what it has freed for its own process alone, each side gives that back before
it is the other's turn, where little else is left.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from math import prod

import torch

CHUNK = 1 << 25
"""Elements of a piece: 256 MiB in fp64, far more than it takes to keep a GPU busy."""
IN_CACHE = 1 << 16
"""The same on a CPU: 512 KiB in fp64, so that temporaries come from its cache and not from new pages."""


def pieces(*tensors: torch.Tensor, size: int | None = None) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same elements of tensors of one shape, some at a time and flat, in an order they share.

    Tensors that lie in memory in that order are looked at; of others, one piece at a time is copied.
    """
    most = size or (CHUNK if tensors[0].is_cuda else min(CHUNK, IN_CACHE))
    if all(tensor.is_contiguous() for tensor in tensors):
        yield from zip(*(tensor.view(-1).split(most) for tensor in tensors), strict=True)
        return
    shape = tensors[0].shape
    longest = max(range(len(shape)), key=lambda dim: shape[dim])
    rows = max(1, most * shape[longest] // prod(shape))
    for start in range(0, shape[longest], rows):
        count = min(rows, shape[longest] - start)
        yield tuple(tensor.narrow(longest, start, count).reshape(-1) for tensor in tensors)


def free_bytes(device: torch.device) -> int | None:
    """The free memory of a GPU; ``None`` for a CPU, whose memory is not rationed."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


WORDS = (
    "out of memory",
    "outofmemory",
    "alloc_failed",
    "allocate memory",
    "memoryallocation",
    "cublas_status_not_initialized",
    "unable to find an engine",
)
"""Of PyTorch, the driver and libraries that found none; the last two of libraries that do not say why."""


def was_lacking(text: str) -> bool:
    """Whether ``text`` speaks of memory that was not there."""
    return any(words in text.lower() for words in WORDS)


def collect(device: torch.device) -> None:
    """Free what only cycles hold, and return it to the GPU."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def make_room(device: torch.device, nbytes: int) -> None:
    """See that the other process finds ``nbytes``: give back what is cached, then look for garbage."""
    if _lacks(device, nbytes):
        torch.cuda.empty_cache()
    if _lacks(device, nbytes):
        collect(device)


def give_back_cache(device: torch.device) -> None:
    """Keep nothing cached once half of the GPU is taken: for the side that does not know the need."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        if 2 * free < total:
            torch.cuda.empty_cache()


def _lacks(device: torch.device, nbytes: int) -> bool:
    free = free_bytes(device)
    return free is not None and free < nbytes
