"""What a forward returned: plain tensors in plain containers, described and copied to the oracle.

A result that computes when somebody looks at it would do so behind the stopwatch. So a tensor's type must
be ``torch.Tensor`` itself, by identity, without attributes of its own, and a container's a built-in one.
The copy is made by a function that was bound before there was a candidate.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch

from egg.evaluator.restrict.names import RestrictedError
from egg.evaluator.task.program import outputs_of

_copy = torch.Tensor.copy_
_Tensor = torch.Tensor
CONTAINERS = (list, tuple, dict, OrderedDict)
PLAIN = "Tensor"


def leaves_of(result: Any) -> list[tuple[str, Any]]:
    """The named leaves of a result whose containers are plain."""
    for part in _containers(result):
        kind = type(part)
        named = issubclass(kind, tuple) and hasattr(kind, "_fields") and kind.__iter__ is tuple.__iter__
        if kind not in CONTAINERS and not named:
            raise RestrictedError(f"forward returns a {kind.__qualname__}", "correctness.type")
    return outputs_of(result)


def _containers(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | dict):
        yield value
        if type(value) in CONTAINERS or isinstance(value, tuple):
            for item in value.values() if isinstance(value, dict) else value:
                yield from _containers(item)


def copy_out(result: Any, destinations: list[torch.Tensor | None]) -> None:
    """Into memory of the oracle's; nothing of the result has a name when the next call begins."""
    for destination, (_, leaf) in zip(destinations, leaves_of(result), strict=True):
        if isinstance(destination, _Tensor) and isinstance(leaf, _Tensor):
            lay(destination, leaf)


def lay(destination: torch.Tensor, leaf: torch.Tensor) -> None:
    """Copy one output, if it is a plain tensor; the oracle finds the poison there otherwise."""
    if kind_of(leaf) == PLAIN:
        _copy(destination, leaf)


def kind_of(leaf: torch.Tensor) -> str:
    """``Tensor`` for a plain one, else what is wrong with it."""
    if type(leaf) is not _Tensor:
        return f"{type(leaf).__module__}.{type(leaf).__qualname__}"
    held = sorted(vars(leaf))
    return f"Tensor with attributes {', '.join(held)}" if held else PLAIN


def describe(path: str, leaf: Any) -> dict[str, Any]:
    if not isinstance(leaf, _Tensor):
        return {
            "path": path,
            "type": "number",
            "number": abs(leaf) if isinstance(leaf, complex) else float(leaf),
        }
    return {
        "path": path,
        "shape": list(leaf.shape),
        "dtype": str(leaf.dtype),
        "device": leaf.device.type,
        "type": kind_of(leaf),
        "layout": str(leaf.layout),
    }
