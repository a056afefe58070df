"""The random generators of a process: where they stand."""

from __future__ import annotations

import hashlib

import torch


def states(device: torch.device) -> list[torch.Tensor]:
    """Of the CPU's generator and, where there is one, the device's."""
    found = [torch.get_rng_state()]
    if device.type == "cuda":
        found.append(torch.cuda.get_rng_state(device))
    return found


def digest(device: torch.device) -> str:
    """Where they stand, in a word that two processes can compare."""
    return hashlib.sha256(b"".join(state.numpy().tobytes() for state in states(device))).hexdigest()


def advanced(before: list[torch.Tensor], device: torch.device) -> bool:
    """Whether something was drawn since, or the seed is another."""
    return not all(map(torch.equal, before, states(device)))
