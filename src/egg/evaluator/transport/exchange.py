"""Arguments on their way from the oracle to a candidate: structure as a pickle, tensors apart.

Only this direction uses pickle: the oracle is trusted and the candidate is not.
"""

from __future__ import annotations

import base64
import pickle
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from egg.evaluator.task.program import map_tensors


@dataclass(frozen=True)
class TensorRef:
    """Stands for the ``index``-th tensor of a packed structure."""

    index: int


def pack(value: Any) -> tuple[str, list[torch.Tensor]]:
    """Split ``value`` into its structure, as text, and its tensors in order."""
    tensors: list[torch.Tensor] = []

    def take(tensor: torch.Tensor) -> Any:
        tensors.append(tensor)
        return TensorRef(len(tensors) - 1)

    structure = map_tensors(value, take)
    return base64.b64encode(pickle.dumps(structure)).decode(), tensors


def unpack(structure: str, tensors: Sequence[torch.Tensor]) -> Any:
    return _fill(pickle.loads(base64.b64decode(structure)), tensors)


def _fill(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, TensorRef):
        return tensors[value.index]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_fill(v, tensors) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_fill(v, tensors) for v in value)
    if isinstance(value, dict):
        filled = {k: _fill(v, tensors) for k, v in value.items()}
        return OrderedDict(filled) if type(value) is OrderedDict else filled
    return value


def whole(value: Any) -> str:
    """Structure and tensors together, for small things such as constructor arguments."""
    return base64.b64encode(pickle.dumps(value)).decode()


def unwhole(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
