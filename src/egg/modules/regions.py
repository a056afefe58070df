"""Layers that repeat in a graph: each is a task of its own, and one kernel answers for all of them.

A whole model is too large for one task, and most of it is the same layer many times over. Dynamo marks every
node with the modules whose calls it belongs to. :func:`layers` takes the outermost calls whose nodes lie next
to each other and whose graph occurs at least twice, with the same text and the same forms of inputs; the
embedding, the head and whatever occurs once are left to the fallback.

A layer that has a kernel becomes one call of the operator ``egg::stored_kernel`` (:func:`replaced`), which
Inductor compiles around. Its fake implementation is the layer's own graph.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from egg.modules.dynamo import Program, role_of
from egg.modules.graph_text import graph_text

LEAST_NODES = 4
"""A layer of fewer calls is left to the fallback, which fuses it with its neighbours."""
MOST_WHOLE = 40
"""A graph of at most so many calls is one task."""


@dataclass(frozen=True)
class Region:
    """Adjacent nodes of a graph, as a graph of their own."""

    nodes: tuple[fx.Node, ...]
    module: fx.GraphModule
    arguments: tuple[fx.Node, ...]
    """The nodes that its placeholders stand for, in order."""
    outputs: tuple[fx.Node, ...]
    text: str
    """Equal for regions that one kernel answers."""

    def examples(self, given: Mapping[fx.Node, Any]) -> list[Any]:
        """Of its placeholders: what the program passed, and fake tensors for what the graph computes."""
        return [given.get(node, node.meta.get("example_value")) for node in self.arguments]


def layers(graph: fx.GraphModule) -> tuple[Region, ...]:
    """The layers that repeat, in the order of the graph; none in a small graph, or one with free sizes."""
    calls = [node for node in graph.graph.nodes if node.op in ("call_function", "call_method")]
    if len(calls) <= MOST_WHOLE or any(
        isinstance(node.meta.get("example_value"), torch.SymInt) for node in graph.graph.nodes
    ):
        return ()
    found = [region for span in _spans(calls) if (region := _cut(graph, span)) is not None]
    times = Counter(region.text for region in found)
    chosen: list[Region] = []
    taken: set[fx.Node] = set()
    for region in found:
        if times[region.text] > 1 and taken.isdisjoint(region.nodes):
            chosen.append(region)
            taken.update(region.nodes)
    order = {node: place for place, node in enumerate(calls)}
    return tuple(sorted(chosen, key=lambda region: order[region.nodes[0]]))


def replaced(
    graph: fx.GraphModule, kernels: Sequence[tuple[Region, str]], table: Mapping[str, Layer]
) -> fx.GraphModule:
    """The graph with regions as calls of ``egg::stored_kernel``, each under the key of its kernel."""
    new, made = fx.Graph(), {}
    starts = {region.nodes[0]: (region, key) for region, key in kernels}
    inside = {node for region, _ in kernels for node in region.nodes}
    _TABLE.update(table)
    for node in graph.graph.nodes:
        if node in starts:
            region, key = starts[node]
            tensors = [made[argument] for argument in region.arguments]
            call = new.call_function(torch.ops.egg.stored_kernel.default, (tensors, key))
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


@dataclass(frozen=True)
class Layer:
    """What answers the calls of one kind of layer."""

    call: Callable[..., Any]
    program: Program

    @cached_property
    def strides(self) -> list[tuple[int, ...]]:
        """Of the outputs, as the program wrote the layer."""
        output: Any = next(node for node in self.program.graph.graph.nodes if node.op == "output").args[0]
        return [output[result.place].meta["example_value"].stride() for result in self.program.results]


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
    return [_like(t, stride) for t, stride in zip(layer.program.plain(*tensors), layer.strides, strict=True)]


_LIBRARY = torch.library.Library("egg", "FRAGMENT")
_LIBRARY.define("stored_kernel(Tensor[] tensors, str key) -> Tensor[]")
_LIBRARY.impl("stored_kernel", _stored_kernel, "CompositeExplicitAutograd")
torch.library.register_fake("egg::stored_kernel", _fake_kernel, lib=_LIBRARY)


def _like(tensor: torch.Tensor, stride: Sequence[int]) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)


def _spans(calls: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, ...]]:
    """The nodes of each call of a module that lie next to each other, the outermost calls first."""
    members: dict[tuple[str, ...], list[int]] = {}
    for place, node in enumerate(calls):
        stack = tuple(node.meta.get("nn_module_stack") or ())
        for depth in range(1, len(stack) + 1):
            members.setdefault(stack[:depth], []).append(place)
    for path in sorted(members, key=len):
        places = members[path]
        if len(places) >= LEAST_NODES and places[-1] - places[0] + 1 == len(places):
            yield tuple(calls[places[0] : places[-1] + 1])


def _cut(graph: fx.GraphModule, nodes: tuple[fx.Node, ...]) -> Region | None:
    """A region; ``None`` where something else than tensors leaves it or enters it."""
    inside = set(nodes)
    arguments = list(dict.fromkeys(a for node in nodes for a in node.all_input_nodes if a not in inside))
    outputs = tuple(node for node in nodes if any(user not in inside for user in node.users))
    values: list[Any] = [node.meta.get("example_value") for node in (*arguments, *outputs)]
    if not outputs or not all(isinstance(value, torch.Tensor) for value in values):
        return None
    new = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for place, node in enumerate(arguments):
        made[node] = new.placeholder(f"given{place}")
        made[node].meta = dict(node.meta) if node.op == "placeholder" else {"example_value": values[place]}
    for node in nodes:
        made[node] = new.node_copy(node, made.__getitem__)
    new.output(tuple(made[node] for node in outputs))
    module = fx.GraphModule(graph, new)
    forms = [
        f"{role_of(made[node], value)} {value.dtype} {tuple(value.shape)} {value.stride()}"
        for node, value in zip(arguments, values, strict=False)
    ]
    return Region(nodes, module, tuple(arguments), outputs, "\n".join([graph_text(module), *forms]))
