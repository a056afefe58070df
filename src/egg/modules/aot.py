"""A forward or backward graph of AOTAutograd, read as a task.

AOTAutograd hands out functional graphs of ATen operators. A forward graph returns what the backward needs
beside its results; a backward graph takes that and the gradients of the results, and returns gradients. The
interface between the two is these tensors, so each is a task by itself, whether a kernel or Inductor computes
the other.

A kernel returns new tensors. What a graph does beside that is done around it, by :attr:`Program.finish`:

- outputs that are views, of an argument (the transpose of a weight that is kept for the backward) or of
  something computed: the kernel computes what is looked at, the views are taken afterwards;
- writes into arguments at the end of the graph (the running statistics of a batch norm);
- arithmetic on sizes and on single integers (its counter of batches).

All arguments of the graph are inputs of the task, weights too: they change with every step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from egg.modules.dynamo import Program, read
from egg.modules.fake_run import Unsuitable
from egg.modules.graph_text import target_name
from egg.modules.strides import fresh, with_strides

_INDUCTORS = "prims.inductor_"
"""Operators that exist where Inductor is loaded: random numbers, for the most part."""


def read_functional(graph: fx.GraphModule) -> Program:
    """A graph of AOTAutograd as a program; raises :class:`Unsuitable`.

    Its examples are without values: :meth:`Program.task` wants those of a call.
    """
    for node in graph.graph.nodes:
        if node.op == "call_function" and target_name(node.target).startswith(_INDUCTORS):
            raise Unsuitable(f"it draws random numbers ({node.target})")
    split = _Split(graph)
    examples = [node.meta["example_value"] for node in split.core.graph.nodes if node.op == "placeholder"]
    program = read(split.core, examples, functional=True)
    inputs = tuple(split.kept[place] for place in program.inputs)
    return replace(program, inputs=inputs, finish=split.finish)


class _Split:
    """A graph in two: what a kernel computes, and what is done with that and the arguments afterwards."""

    def __init__(self, graph: fx.GraphModule) -> None:
        self._source = graph
        self._placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        output: Any = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        self._outputs: list[Any] = list(output) if isinstance(output, list | tuple) else [output]
        self._writes = list(_writes(graph.graph))
        self._after: set[fx.Node] = set()
        self._roots: dict[fx.Node, None] = {}
        for item in (*self._outputs, *(value for _, value in self._writes)):
            if isinstance(item, fx.Node):
                self._look(item)
        self.kept: list[int] = []
        """The places of the arguments that the first part takes."""
        self.core = self._core()
        self.finish: Callable[..., Any] = self._finish()

    def _look(self, node: fx.Node) -> None:
        """Sort one value that the second part needs: taken there, or computed by the first."""
        if node.op == "placeholder" or node in self._after:
            return
        if _is_view(node) or _is_count(node):
            self._after.add(node)
            for operand in node.all_input_nodes:
                self._look(operand)
        else:
            self._roots[node] = None

    def _core(self) -> fx.GraphModule:
        new, made = fx.Graph(), {}
        within = needed(self._roots)
        for place, node in enumerate(self._placeholders):
            if node in within:
                made[node] = new.placeholder(node.name)
                self.kept.append(place)
        for node in self._source.graph.nodes:
            if node in within and node.op not in ("placeholder", "output"):
                made[node] = new.node_copy(node, made.__getitem__)
        for node, copied in made.items():
            copied.meta = {"example_value": node.meta.get("val")}
            if "stack_trace" in node.meta:
                copied.meta["stack_trace"] = node.meta["stack_trace"]
        new.output(tuple(made[root] for root in self._roots))
        return fx.GraphModule(self._source, new)

    def _finish(self) -> fx.GraphModule:
        """Takes the arguments of the graph, then what the kernel computed; returns the graph's outputs."""
        new, made = fx.Graph(), {}
        for node in (*self._placeholders, *self._roots):
            made[node] = new.placeholder(node.name)
        for root in self._roots:
            made[root] = new.call_function(laid_out, (made[root], _strides(root)))
        for node in self._source.graph.nodes:
            if node in self._after:
                made[node] = new.node_copy(node, made.__getitem__)
        for targets, values in _grouped(self._writes):
            given = ([made[node] for node in targets], [made[node] for node in values])
            new.call_function(torch.ops.aten._foreach_copy_.default, given)
        new.output(tuple(made[item] if isinstance(item, fx.Node) else item for item in self._outputs))
        return fx.GraphModule(nn.Module(), new)


def laid_out(tensor: torch.Tensor, stride: tuple[int, ...] | None) -> torch.Tensor:
    """The tensor with these strides from the start of its memory; ``None``: contiguous.

    Compiled code behind the kernel relies on it, and so does ``as_strided`` among the views.
    """
    steps = tensor.stride() if stride is None and tensor.is_contiguous() else stride
    if steps is None:
        return tensor.contiguous()
    return fresh(tensor, steps).copy_(tensor) if tensor.storage_offset() else with_strides(tensor, steps)


def _strides(node: fx.Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise Unsuitable("an output of it is no tensor")
    if not any(isinstance(step, torch.SymInt) for step in value.stride()):
        return value.stride()
    if not value.is_contiguous():
        raise Unsuitable("an output of a free size is not contiguous")
    return None


def _writes(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """The arguments that the graph writes at its end, each with its new value."""
    for node in graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        target, value = (*node.args, None, None)[:2]
        plain = node.target is torch.ops.aten.copy_.default and not node.users
        if not plain or not isinstance(target, fx.Node) or not isinstance(value, fx.Node):
            raise Unsuitable(f"it changes a tensor in place ({node.target})")
        if target.op != "placeholder":
            raise Unsuitable("it changes an input through a view")
        yield target, value


def _grouped(writes: Sequence[tuple[fx.Node, fx.Node]]) -> Iterator[tuple[list[fx.Node], list[fx.Node]]]:
    """Writes of one dtype together: one launch copies them all."""
    kinds: dict[Any, list[tuple[fx.Node, fx.Node]]] = {}
    for target, value in writes:
        kinds.setdefault(target.meta["val"].dtype, []).append((target, value))
    for pairs in kinds.values():
        yield [target for target, _ in pairs], [value for _, value in pairs]


def _is_view(node: fx.Node) -> bool:
    if node.op != "call_function":
        return False
    if target_name(node.target) == "_operator.getitem":
        return isinstance(node.args[0], fx.Node) and _is_view(node.args[0])
    schema = getattr(node.target, "_schema", None)
    if schema is None or schema.is_mutable:
        return False
    return any(argument.alias_info is not None for argument in schema.arguments)


def _is_count(node: fx.Node) -> bool:
    """Arithmetic on sizes, or on single integers of the arguments, which no kernel is worth."""
    if node.op != "call_function" or not _is_integer(node):
        return False
    return isinstance(node.meta["val"], torch.SymInt) or all(
        _is_integer(operand) and (operand.op == "placeholder" or _is_count(operand))
        for operand in node.all_input_nodes
    )


def _is_integer(node: fx.Node) -> bool:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return not value.dim() and not value.is_floating_point() and not value.is_complex()
    return isinstance(value, torch.SymInt)


def needed(roots: Sequence[fx.Node] | dict[fx.Node, None]) -> set[fx.Node]:
    """The nodes that others are computed from, and those others."""
    found: set[fx.Node] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return found
