"""What of a layer no kernel holds: writes into its arguments, and views and counts that it hands on.

A kernel takes tensors and returns new ones. :func:`pieces` finds, by a run on fake tensors, the calls that
write into an argument or draw random numbers, and by their names those of a library that a kernel file has no
function for; what lies between them are pieces. :func:`left_out` finds the
values of a piece that the graph around it computes as well from its arguments and outputs: views, which share
memory and cost nothing, and arithmetic on integers, such as the places of a cache that are written next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from egg.modules.dynamo import IN_PLACE
from egg.modules.fake_run import Effect, Unsuitable, effects_of
from egg.modules.graph_text import target_name

_VIEWS = frozenset({
    "view", "reshape", "transpose", "permute", "expand", "unsqueeze", "squeeze", "getitem", "to",
    "contiguous",
    "flatten", "t", "narrow", "select", "slice", "movedim", "swapaxes", "expand_as", "view_as", "unflatten",
    "detach", "alias", "as_strided", "chunk", "split", "unbind", "split_with_sizes", "_unsafe_view", "float",
    "type_as", "swapdims", "mT", "T", "diagonal", "unfold", "getattr",
})  # fmt: skip
_COUNTS = frozenset({"add", "sub", "mul", "floordiv", "floor_divide", "remainder", "mod", "neg", "cumsum"})
_MADE = frozenset({"zeros", "ones", "full", "empty", "arange", "iota", "scalar_tensor"})
_FUSED_ATTENTION = ("_scaled_dot_product_", "_flash_attention", "_efficient_attention", "_cudnn_attention")
"""How operators begin that return what the backward of attention needs beside its result."""


def value_of(node: fx.Node) -> Any:
    """What Dynamo or AOTAutograd saw as the result of a node: a fake tensor, mostly."""
    return node.meta.get("example_value", node.meta.get("val"))


def pieces(module: fx.GraphModule) -> Iterator[range]:
    """The places of adjacent calls without a call between them that no kernel may hold.

    A tensor that one piece makes is an argument of the next, so each is looked at again by itself.
    """
    try:
        effects = effects_of(module)
    except Unsuitable:  # the reason is found once more, and named, when the region is read
        effects = ()
    calls = [node for node in module.graph.nodes if node.op in ("call_function", "call_method")]
    for span in _between(range(len(calls)), [place for place, node in enumerate(calls) if uncallable(node)]):
        yield from _pieces(effects, span)


def uncallable(node: fx.Node) -> bool:
    """Whether a call, or what a result of it is taken from, has no function that a kernel file may call.

    PyTorch has such operators for gradients alone: the backward of a convolution, of a pool and of attention,
    and the attention that goes before it. A layer that holds one would have no kernel at all.
    """
    source = node.args[0] if node.args else None
    if target_name(node.target) == "_operator.getitem" and isinstance(source, fx.Node):
        return uncallable(source)
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = _name(node)
    return name.endswith("_backward") or name.startswith(_FUSED_ATTENTION)


def written_arguments(graph: fx.GraphModule) -> frozenset[fx.Node]:
    """Arguments that the graph may write into, by the names of what it calls.

    Compiled code writes without a trace, so no kernel may keep anything made of such a tensor: it is an input
    of a task, not a buffer.
    """
    storages = written_storages(graph)
    return frozenset(
        node
        for node in graph.graph.find_nodes(op="placeholder")
        if any(tensor.untyped_storage()._cdata in storages for tensor in _tensors(value_of(node)))
    )


def written_storages(graph: fx.GraphModule) -> frozenset[int]:
    """The memory that the graph may write into, as the storages of fake tensors name it."""
    return frozenset(
        tensor.untyped_storage()._cdata
        for node in graph.graph.nodes
        if node.op in ("call_function", "call_method") and writes(node)
        for operand in node.all_input_nodes
        for tensor in _tensors(value_of(operand))
    )


def writes(node: fx.Node) -> bool:
    """Whether the name or an option of a call says that it may write into an operand."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return bool(schema.is_mutable)
    name, options = _name(node), node.kwargs
    if name in ("batch_norm", "instance_norm"):  # in training they write their statistics
        return bool(options.get("training", options.get("use_input_stats", (*node.args, *[True] * 6)[5])))
    in_place = name == "setitem" or (name.endswith("_") and not name.endswith("__"))
    return in_place or node.target in IN_PLACE or "out" in options or bool(options.get("inplace"))


def _pieces(effects: Sequence[Effect], places: range) -> Iterator[range]:
    borders = [e.place for e in effects if e.place in places and (e.random or e.oldest < places.start)]
    if not borders:
        yield places
        return
    for span in _between(places, borders):
        yield from _pieces(effects, span)


def _between(places: range, borders: Sequence[int]) -> Iterator[range]:
    """What is left of adjacent places without some of them."""
    begins = [places.start, *(at + 1 for at in borders)]
    for begin, end in zip(begins, [*borders, places.stop], strict=True):
        if begin < end:
            yield range(begin, end)


Parted = tuple[frozenset[fx.Node], tuple[fx.Node, ...], tuple[fx.Node, ...]]


def left_out(nodes: Sequence[fx.Node]) -> Parted:
    """The nodes that the graph around computes, those that the region does, and the latter's outputs.

    A node that both need is computed by both.
    """
    parting = _Parting(nodes)
    inner: set[fx.Node] = set()
    for node in reversed(nodes):
        if node not in parting.beside or any(user in inner for user in node.users):
            inner.add(node)
    kept = tuple(node for node in nodes if node in inner)
    return frozenset(parting.beside), kept, tuple(node for node in nodes if node in parting.outputs)


class _Parting:
    """Sorts what leaves a region: computed by the graph around it, or an output."""

    def __init__(self, nodes: Sequence[fx.Node]) -> None:
        self._inside = set(nodes)
        self.beside: set[fx.Node] = set()
        self.outputs: set[fx.Node] = set()
        for node in nodes:
            if any(user not in self._inside for user in node.users):
                self._sort(node)

    def _sort(self, node: fx.Node) -> None:
        if node not in self._inside or node in self.beside or node in self.outputs:
            return
        if _is_view(node) or self._counts(node):
            self.beside.add(node)
            for operand in node.all_input_nodes:
                self._sort(operand)
        else:
            self.outputs.add(node)

    def _counts(self, node: fx.Node) -> bool:
        """Whether it rests on integers of the arguments, or on nothing, and the region does not write it."""
        if node not in self._inside:
            return _is_integer(value_of(node))
        if _is_view(node):
            return all(map(self._counts, node.all_input_nodes))
        name = _name(node)
        if name in _MADE and not node.all_input_nodes:
            return not any(user in self._inside for user in node.users) or _is_integer(value_of(node))
        counts = name in _COUNTS and _is_integer(value_of(node))
        return counts and all(map(self._counts, node.all_input_nodes))


def _is_view(node: fx.Node) -> bool:
    """Whether a node shows memory of an operand in another form."""
    if _name(node) not in _VIEWS:
        return False
    source = node.args[0] if node.args else None
    if isinstance(source, fx.Node) and not isinstance(value_of(source), torch.Tensor):
        return _is_view(source)  # one of several results
    made = {tensor.untyped_storage()._cdata for tensor in _tensors(value_of(node))}
    given = {t.untyped_storage()._cdata for o in node.all_input_nodes for t in _tensors(value_of(o))}
    return bool(made) and made <= given


def _name(node: fx.Node) -> str:
    """Of an operator without its module and overload: ``transpose``."""
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.name.split("::")[-1]
    return target_name(node.target).split(".")[-1]


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
