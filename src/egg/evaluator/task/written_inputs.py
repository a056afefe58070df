"""Inputs that forward writes to: key-value caches, the parameters of an optimizer's step.

What a call leaves there is a part of its answer, so the judge treats it as one: a result is given out
together with those inputs. The reference computes on copies, so that a question stays as it was drawn; a
candidate gets the inputs themselves, which are put back behind the call, or whose values are replaced before
the next one where calls are made in a row or timed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from egg.evaluator.task.program import map_tensors, restrided

RETURNED, WRITTEN = "returned", "written"


def spared(inputs: Any, writes: Collection[int]) -> Any:
    """The inputs, with copies of those that are written, by their numbers."""
    if not writes:
        return inputs
    numbers = iter(range(1 << 30))
    return map_tensors(
        inputs, lambda tensor: restrided(tensor, torch.clone) if next(numbers) in writes else tensor
    )


def answered(result: Any, inputs: Any, writes: Collection[int]) -> Any:
    """What a call on ``inputs`` returned, if anything, with what it left in those that it writes to."""
    if not writes:
        return result
    return {RETURNED: () if result is None else result, WRITTEN: written_of(inputs, writes)}


def written_of(inputs: Any, writes: Collection[int]) -> dict[str, torch.Tensor]:
    """The inputs that are written, by name."""
    tensors: list[torch.Tensor] = []
    map_tensors(inputs, lambda tensor: (tensors.append(tensor), tensor)[1])
    return {f"input {number}": tensors[number].detach() for number in writes}


def only_read(inputs: Any, writes: Collection[int]) -> list[torch.Tensor]:
    """The other inputs: no output may lie in their memory."""
    tensors: list[torch.Tensor] = []
    map_tensors(inputs, lambda tensor: (tensors.append(tensor), tensor)[1])
    return [tensor for number, tensor in enumerate(tensors) if number not in writes]


def versions_of(inputs: Any) -> list[int]:
    """How often each tensor was written to, by PyTorch's count."""
    tensors: list[torch.Tensor] = []
    map_tensors(inputs, lambda tensor: (tensors.append(tensor), tensor)[1])
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def numbered(inputs: Collection[int]) -> str:
    """``inputs 1, 2``."""
    return f"input{'s' if len(inputs) > 1 else ''} {', '.join(map(str, sorted(inputs)))}"
