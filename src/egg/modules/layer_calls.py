"""Layers that have a kernel, as calls within the graph around them.

Each becomes one call of the operator ``egg::stored_kernel`` (:func:`replaced`), which Inductor compiles
around. Its fake implementation is the layer's own graph. Views and counts that a layer hands on
(:attr:`egg.modules.regions.Region.left_out`) are computed in the graph around it, and so is a contiguous copy
that several layers would make of one tensor (:func:`copied_once`).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from egg.modules.cuts import value_of, written_storages
from egg.modules.fallback import as_dynamos
from egg.modules.regions import Region
from egg.modules.stored_kernel import StoredKernel
from egg.modules.strides import fresh, with_strides

_CONTIGUOUS: dict[str, Any] = {"memory_format": torch.contiguous_format}


@dataclass(frozen=True)
class Layer:
    """What answers the calls of one kind of layer."""

    call: Callable[..., Any]
    plain: Callable[..., Any]
    """The layer as the program wrote it."""
    strides: tuple[tuple[int, ...], ...]
    """Of the outputs, as the program wrote the layer."""
    copied: frozenset[int] = frozenset()
    """Places of the arguments that the kernel copies where they are not contiguous."""

    @classmethod
    def of(cls, region: Region, kernel: StoredKernel) -> Layer:
        strides = tuple(value_of(node).stride() for node in region.outputs)
        return cls(kernel, region.module.forward, strides, kernel.copied)


def replaced(
    graph: fx.GraphModule, kernels: Sequence[tuple[Region, str]], table: Mapping[str, Layer]
) -> fx.GraphModule:
    """The graph with regions as calls of ``egg::stored_kernel``, each under the key of its kernel."""
    new, made = fx.Graph(), {}
    starts = {region.nodes[0]: (region, key) for region, key in kernels}
    inside = {node for region, _ in kernels for node in region.nodes if node not in region.left_out}
    once = copied_once(graph, kernels, table)
    copies: dict[fx.Node, fx.Node] = {}
    _TABLE.update(table)

    def given(node: fx.Node, copied: bool) -> fx.Node:
        if not copied or node not in once:
            return made[node]
        if node not in copies:
            copies[node] = new.call_function(torch.ops.aten.clone.default, (made[node],), _CONTIGUOUS)
            copies[node].meta = {"val": value_of(node).contiguous()}
        return copies[node]

    for node in graph.graph.nodes:
        if node in starts:
            region, key = starts[node]
            copied = table[key].copied
            tensors = [given(node, place in copied) for place, node in enumerate(region.arguments)]
            call = new.call_function(torch.ops.egg.stored_kernel.default, (tensors, key))
            call.meta = {"val": [output.meta.get("val") for output in region.outputs]}
            for place, output in enumerate(region.outputs):
                made[output] = new.call_function(operator.getitem, (call, place))
                made[output].meta = dict(output.meta)
        if node not in inside:
            made[node] = new.node_copy(node, made.__getitem__)
    return as_dynamos(graph, new)


def copied_once(
    graph: fx.GraphModule, kernels: Sequence[tuple[Region, str]], table: Mapping[str, Layer]
) -> frozenset[fx.Node]:
    """Arguments that the kernels of several layers would copy, each for itself: an expanded mask, mostly.

    One copy serves them all, where the graph does not write into that memory.
    """
    times = Counter(region.arguments[place] for region, key in kernels for place in sorted(table[key].copied))
    written = written_storages(graph)
    return frozenset(
        node
        for node, count in times.items()
        if count > 1
        and not value_of(node).is_contiguous()
        and value_of(node).untyped_storage()._cdata not in written
    )


_TABLE: dict[str, Layer] = {}
"""By key, for the operator below: an operator of PyTorch takes tensors, numbers and strings alone."""


def _stored_kernel(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    """One layer. Its outputs have the strides of the original's, which compiled code around it relies on."""
    layer = _TABLE[key]
    made = layer.call(*tensors)
    return [with_strides(tensor, stride) for tensor, stride in zip(made, layer.strides, strict=True)]


def _fake_kernel(tensors: list[torch.Tensor], key: str) -> list[torch.Tensor]:
    layer = _TABLE[key]
    return [fresh(made, stride) for made, stride in zip(layer.plain(*tensors), layer.strides, strict=True)]


_LIBRARY = torch.library.Library("egg", "FRAGMENT")
_LIBRARY.define("stored_kernel(Tensor[] tensors, str key) -> Tensor[]")
_LIBRARY.impl("stored_kernel", _stored_kernel, "CompositeExplicitAutograd")
torch.library.register_fake("egg::stored_kernel", _fake_kernel, lib=_LIBRARY)
