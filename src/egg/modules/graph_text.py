"""A graph as text that depends on what is computed alone: the part of a key that names the program.

One line for each node: its number, what is called, and with what. Nodes are named by their places, functions
by where PyTorch defines them, so names and modules of the program that the graph came from leave no trace.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.node import _get_qualified_name


def graph_text(graph: fx.Graph) -> str:
    places = {node: f"%{index}" for index, node in enumerate(graph.nodes)}
    return "\n".join(_line(node, places) for node in graph.nodes)


def values_text(tensor: torch.Tensor) -> str:
    """A constant of the program by its values."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()[:16]


def _line(node: fx.Node, places: Mapping[fx.Node, str]) -> str:
    if node.op == "placeholder":
        return f"{places[node]} = placeholder"
    if node.op == "output":
        return f"output {_text(node.args[0], places)}"
    name = target_name(node.target)
    given = [_text(value, places) for value in node.args]
    given += [f"{key}={_text(value, places)}" for key, value in sorted(node.kwargs.items())]
    called = f".{name}" if node.op == "call_method" else name
    return f"{places[node]} = {called}({', '.join(given)})"


def target_name(target: Any) -> str:
    """What a node calls, by where it is defined; by its type where that is all that is known."""
    if isinstance(target, str):
        return target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    try:
        return _get_qualified_name(target)
    except (AttributeError, RuntimeError):
        return f"{type(target).__module__}.{type(target).__qualname__}"


def _text(value: Any, places: Mapping[fx.Node, str]) -> str:
    if isinstance(value, fx.Node):
        return places[value]
    if isinstance(value, list | tuple):
        return f"({', '.join(_text(item, places) for item in value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_text(item, places)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"[{':'.join(_text(part, places) for part in (value.start, value.stop, value.step))}]"
    if isinstance(value, torch.device):
        return value.type
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return repr(value)
