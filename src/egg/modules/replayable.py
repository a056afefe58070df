"""Whether a graph of Dynamo may be replayed as a CUDA graph, as far as its text says.

A CUDA graph repeats what was launched on the GPU, at the same addresses, and nothing that the host did. That
is the same computation where all tensors are on one GPU, no operator does more than launch (those of other
libraries may), no number of the host enters it, and nothing is written to memory that the caller chose for
this call alone: such inputs are copied in, and a write would go to the copy. What only a call shows (results
that share memory, random numbers) is seen at the first one (:mod:`egg.modules.replay`).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from egg.modules.dynamo import role_of
from egg.modules.fake_run import Unsuitable, example_values, fake_mode

OWN_OPERATORS = ("aten", "prims", "egg")
"""Namespaces of operators that do nothing on the host but launch."""
_WRITING = {
    operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod,
    operator.ipow, operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift,
    operator.setitem,
}  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """How a recorded graph treats the inputs, by their places among the arguments."""

    fixed: tuple[int, ...] = ()
    """Parameters and buffers: they are read, and written, where they lie."""
    written: tuple[int, ...] = ()
    """Those of them that a call changes in place."""
    obstacle: str = ""
    """Why the graph cannot be replayed."""


def replayable(graph: fx.GraphModule, inputs: Sequence[Any]) -> Inputs:
    """How the inputs of a graph are treated, or why it cannot be replayed."""
    if reason := _elsewhere(inputs) or next(_foreign(graph), ""):
        return Inputs(obstacle=reason)
    nodes = graph.graph.find_nodes(op="placeholder")
    rows = enumerate(zip(nodes, inputs, strict=True))
    fixed = tuple(place for place, (node, value) in rows if role_of(node, value) != "input")
    try:
        written = _written(graph)
    except Unsuitable as reason:
        return Inputs(obstacle=str(reason))
    if not set(written) <= set(fixed):
        return Inputs(obstacle="it changes an input in place")
    return Inputs(fixed, written)


def _elsewhere(inputs: Sequence[Any]) -> str:
    """Why the inputs are not all tensors of one GPU."""
    if not all(isinstance(value, torch.Tensor) for value in inputs):
        return "an input is no tensor"
    devices = {value.device for value in inputs}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        return "its inputs are not all on one GPU"
    return ""


def _foreign(graph: fx.GraphModule) -> Iterator[str]:
    """Nodes that may do more than launch."""
    for node in graph.graph.nodes:
        target, value = node.target, node.meta.get("example_value")
        if isinstance(target, torch._ops.HigherOrderOperator):
            yield f"it calls {target.__name__}, which holds graphs of its own"
        elif isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
            space = str(target).replace("::", ".").split(".")[0]
            if space not in OWN_OPERATORS:
                yield f"it calls {target}, which may do more than launch kernels"
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.dim() > 0:
            yield "a tensor in it is on the CPU"


def _written(graph: fx.GraphModule) -> tuple[int, ...]:
    """The inputs that a call changes; the graph runs on fake tensors where its text shows any write."""
    if not any(_writes(node) for node in graph.graph.nodes):
        return ()
    mode = fake_mode(graph)
    with mode, torch.no_grad():
        given = [
            torch.empty_strided(v.size(), v.stride(), dtype=v.dtype, device=v.device)
            for v in example_values(graph)
        ]
        before = [tensor._version for tensor in given]
        try:
            _OnFakes(graph, mode).run(*given)
        except Exception as error:  # of whatever operator: the graph is not replayed then
            raise Unsuitable(f"it does not run on fake tensors: {error}".splitlines()[0]) from error
    return tuple(place for place, (t, old) in enumerate(zip(given, before, strict=True)) if t._version != old)


class _OnFakes(fx.Interpreter):
    """Runs a graph whose own constants are real tensors."""

    def __init__(self, graph: fx.GraphModule, mode: Any) -> None:
        super().__init__(graph)
        self._mode = mode

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        found = super().get_attr(target, args, kwargs)
        return self._mode.from_tensor(found, static_shapes=True) if isinstance(found, torch.Tensor) else found


def _writes(node: fx.Node) -> bool:
    """Whether a node may write to a tensor that it is given."""
    if node.op == "call_method":
        name = str(node.target)
        return (name.endswith("_") and not name.endswith("__")) or name in ("__setitem__", "__iadd__")
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    name = getattr(node.target, "__name__", "")
    if name == "embedding" and (node.kwargs.get("max_norm") or any(node.args[3:4])):
        return True
    switches = any(value is True for value in (*node.args, *node.kwargs.values()))  # inplace, training
    in_place = name.endswith("_") and not name.endswith("__")
    return node.target in _WRITING or "out" in node.kwargs or switches or in_place
