"""The name of what was found in a graph: its layers, and how it is replayed.

To find the layers of a graph, all calls of modules are cut out as graphs, and some of them run on fake
tensors. What is found follows from the nodes: what they call, the forms of their values, and which modules of
the program they came from. A hash of these takes little time. Under it the store keeps what was found
(:class:`egg.store.Outline`), and the next process does not search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import fx

from egg import __version__
from egg.modules.arithmetic import precision_here
from egg.modules.dynamo import role_of
from egg.modules.graph_text import graph_text
from egg.store import assembly_name, package_version

_RULES = ("aot", "cuts", "dynamo", "fake_run", "graph_text", "regions", "replayable")
"""Files that decide what is found in a graph."""
_KINDS = ("cpu", "cuda")


def outline_name(graph: fx.GraphModule, inputs: Sequence[Any], chosen: Sequence[str]) -> str:
    """A hash of all that decides what is found in a graph and where that is looked up.

    ``chosen`` are options that decide it, too.
    Empty for a graph with free sizes, whose names say nothing, or one that holds tensors or graphs.
    """
    nodes = list(graph.graph.nodes)
    values = [node.meta.get("example_value") for node in nodes]
    if any(isinstance(v, torch.SymInt) for v in (*values, *inputs)) or any(n.op == "get_attr" for n in nodes):
        return ""
    placeholders = graph.graph.find_nodes(op="placeholder")
    roles = [_given(node, value) for node, value in zip(placeholders, inputs, strict=True)]
    casts = [f"{torch.is_autocast_enabled(kind)} {torch.get_autocast_dtype(kind)}" for kind in _KINDS]
    devices = {value.device for value in inputs if isinstance(value, torch.Tensor)}
    gpus = sorted(torch.cuda.get_device_name(device) for device in devices if device.type == "cuda")
    versions = [str(torch.__version__), package_version("triton"), __version__, _rules()]
    terms = [*versions, *gpus, str(len(devices)), precision_here().value, *chosen, *casts]
    return assembly_name(graph_text(graph.graph), [*terms, *roles, *map(_form, values), *_stacks(nodes)])


def _given(node: fx.Node, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    lazy = (value.layout, value.is_conj(), value.is_neg()) if value.layout is torch.strided else value.layout
    return f"{role_of(node, value)} {type(value).__name__} {_form(value)} {lazy}"


def _form(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        stride = value.stride() if value.layout is torch.strided else ""
        return f"{value.dtype} {tuple(value.shape)} {stride} {value.device.type}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_form, value))})"
    return type(value).__name__


def _stacks(nodes: Sequence[fx.Node]) -> list[str]:
    """The modules that each node came from, by numbers: their names are those of the program."""
    numbers: dict[str, int] = {}
    return [
        ".".join(str(numbers.setdefault(path, len(numbers))) for path in stack)
        for stack in (node.meta.get("nn_module_stack") or () for node in nodes)
    ]


@cache
def _rules() -> str:
    """A hash of the code that searches: what an earlier one found is not used."""
    files = (Path(__file__).with_name(f"{name}.py") for name in _RULES)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
