"""Layers that have a kernel, as calls within the graph around them.

Each becomes one call of the operator ``egg::stored_kernel`` (:func:`replaced`), which Inductor compiles
around. Its fake implementation is the layer's own graph. Views and counts that a layer hands on
(:attr:`egg.modules.regions.Region.left_out`) are computed in the graph around it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from egg.modules.cuts import value_of
from egg.modules.regions import Region


@dataclass(frozen=True)
class Layer:
    """What answers the calls of one kind of layer."""

    call: Callable[..., Any]
    plain: Callable[..., Any]
    """The layer as the program wrote it."""
    strides: tuple[tuple[int, ...], ...]
    """Of the outputs, as the program wrote the layer."""

    @classmethod
    def of(cls, region: Region, call: Callable[..., Any]) -> Layer:
        strides = tuple(value_of(node).stride() for node in region.outputs)
        return cls(call, region.module.forward, strides)


def replaced(
    graph: fx.GraphModule, kernels: Sequence[tuple[Region, str]], table: Mapping[str, Layer]
) -> fx.GraphModule:
    """The graph with regions as calls of ``egg::stored_kernel``, each under the key of its kernel."""
    new, made = fx.Graph(), {}
    starts = {region.nodes[0]: (region, key) for region, key in kernels}
    inside = {node for region, _ in kernels for node in region.nodes if node not in region.left_out}
    _TABLE.update(table)
    for node in graph.graph.nodes:
        if node in starts:
            region, key = starts[node]
            tensors = [made[argument] for argument in region.arguments]
            call = new.call_function(torch.ops.egg.stored_kernel.default, (tensors, key))
            call.meta = {"val": [output.meta.get("val") for output in region.outputs]}
            for place, output in enumerate(region.outputs):
                made[output] = new.call_function(operator.getitem, (call, place))
                made[output].meta = dict(output.meta)
        if node not in inside:
            made[node] = new.node_copy(node, made.__getitem__)
    return as_dynamos(graph, new)


def as_dynamos(graph: fx.GraphModule, nodes: fx.Graph) -> fx.GraphModule:
    """A module of other nodes with the same placeholders, known as Dynamo's as ``graph`` is.

    AOTAutograd asks the module where its inputs come from: which are the same tensor, and which are
    parameters that stay where they are, so that a CUDA graph reads them in place.
    """
    made = fx.GraphModule(graph, nodes)
    made.meta = dict(graph.meta)
    if hasattr(graph, "_param_name_to_source"):
        made._param_name_to_source = graph._param_name_to_source
    inputs = (module.graph.find_nodes(op="placeholder") for module in (graph, made))
    for known, same in zip(*inputs, strict=True):
        if hasattr(known, "_dynamo_source"):
            same._dynamo_source = known._dynamo_source
    return made


_TABLE: dict[str, Layer] = {}
"""By key, for the operator below: an operator of PyTorch takes tensors, numbers and strings alone."""


def _stored_kernel(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    """One layer. Its outputs have the strides of the original's, which compiled code around it relies on."""
    layer = _TABLE[key]
    made = layer.call(*tensors)
    return [
        tensor if tensor.stride() == stride else _like(tensor, stride).copy_(tensor)
        for tensor, stride in zip(made, layer.strides, strict=True)
    ]


def _fake_kernel(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    layer = _TABLE[key]
    return [_like(made, stride) for made, stride in zip(layer.plain(*tensors), layer.strides, strict=True)]


_LIBRARY = torch.library.Library("egg", "FRAGMENT")
_LIBRARY.define("stored_kernel(Tensor[] tensors, str key) -> Tensor[]")
_LIBRARY.impl("stored_kernel", _stored_kernel, "CompositeExplicitAutograd")
torch.library.register_fake("egg::stored_kernel", _fake_kernel, lib=_LIBRARY)


def _like(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
