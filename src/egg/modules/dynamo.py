"""A graph that Dynamo hands to a backend, read as a task: what is computed from what, and under which key.

Dynamo's graph takes parameters, buffers, tensors and sizes in the order in which the program met them, and
names them after the program. :func:`read` rebuilds it with tensors alone as placeholders, under names that
depend on their positions, so the same layer has the same text wherever it stands in a model. A size that was
a placeholder is asked of a tensor that has it.

Not every graph may be answered by a kernel. The rebuilt graph runs once on fake tensors (by
:attr:`Program.traffic`), which shows what the text does not: inputs that are changed in place, outputs that
share memory with inputs or with each other, random numbers. Such a graph is :class:`Unsuitable`, with the
reason.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor

from egg.modules.fake_run import Unsuitable, example_values, fake_mode, run_fake
from egg.modules.graph_text import graph_text, target_name, values_text
from egg.modules.slots import MOST_LISTED, Role, Slot

_STATE = ("torch.amp.", "torch._C._functorch.", "torch._functorch.", "torch.autograd.")
"""Where the functions are that open and close autocast, ``vmap`` and the like in Dynamo's graphs."""
IN_PLACE: Mapping[Any, str] = {
    operator.iadd: "add_", operator.isub: "sub_", operator.imul: "mul_", operator.itruediv: "div_",
    operator.ifloordiv: "floor_divide_", operator.imod: "remainder_", operator.ipow: "pow_",
    operator.iand: "__iand__", operator.ior: "__ior__", operator.ixor: "__ixor__",
}  # fmt: skip
MOST_WHOLE = 40
"""A graph of at most so many calls is one task, and is not searched for layers."""
MOST_CALLS = 400
"""A graph of more calls is no task: tuning it would not come to an end."""
_LETTERS: Mapping[Role, str] = {"input": "x", "parameter": "p", "buffer": "b", "constant": "c"}


@dataclass(frozen=True)
class Held:
    """A tensor that the task's ``Model`` holds: its name there, and where a call finds it."""

    name: str
    role: Role
    place: int | None = None
    """Among the arguments of the graph; ``None`` for a tensor of the graph itself."""
    tensor: torch.Tensor | None = None


@dataclass(frozen=True)
class Result:
    """One output of the graph: of the kernel, an argument as it is, or a plain value."""

    place: int | None = None
    argument: int | None = None
    value: Any = None


@dataclass(frozen=True)
class Program:
    """A graph of Dynamo in the form of a task."""

    graph: fx.GraphModule
    """Its placeholders are tensors: inputs, and what ``Model`` holds, in the order of Dynamo's graph."""
    roles: tuple[Role, ...]
    names: tuple[str, ...]
    examples: tuple[torch.Tensor, ...]
    """Of the placeholders, in their order."""
    inputs: tuple[int, ...]
    """The places of the inputs among the arguments of Dynamo's graph."""
    held: tuple[Held, ...]
    results: tuple[Result, ...]
    finish: Callable[..., Any] | None = None
    """Makes the outputs of the graph out of its arguments, followed by those of the kernel; without it they
    are ``results``."""

    @cached_property
    def traffic(self) -> int:
        """Bytes that the nodes read and write, each by itself.

        The graph runs on fake tensors for it, which shows that it changes no input, draws no random number
        and returns tensors in memory of their own; otherwise raises :class:`Unsuitable`. A graph that the
        store has an entry for did so before.
        """
        return run_fake(self.graph, self.device)

    @property
    def device(self) -> torch.device:
        return self.examples[0].device

    @cached_property
    def text(self) -> str:
        return graph_text(self.graph.graph)

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """One line for each placeholder: role, dtype, shape and strides, with symbols in their order."""
        symbols: dict[str, str] = {}
        rows = zip(self.roles, example_values(self.graph), self.examples, strict=True)
        return tuple(_form(role, value, example, symbols) for role, value, example in rows)

    def plain(self, *args: Any) -> list[Any]:
        """The outputs as the program wrote them; ``args`` are those of Dynamo's graph, sizes left out."""
        constants = [held.tensor for held in self.held if held.place is None]
        made = self.graph(*args, *constants)
        return [
            made[r.place] if r.place is not None else args[r.argument] if r.argument is not None else r.value
            for r in self.results
        ]

    def task(self, args: Sequence[Any] | None = None) -> str:
        """The source of the task; raises :class:`egg.core.errors.TaskError` for what no text stands for.

        ``args`` are those of a call, in the place of examples that have no values.
        """
        examples = list(self.examples)
        if args is not None:
            given = (args[place] for place in self.inputs)
            examples = [next(given) if r == "input" else e for r, e in zip(self.roles, examples, strict=True)]
        from egg.modules.printing import task_source

        rows = zip(self.names, self.roles, examples, strict=True)
        return task_source(self.graph, [Slot.of(name, role, example) for name, role, example in rows])


def read(
    graph: fx.GraphModule, inputs: Sequence[Any], *, functional: bool = False, later: bool = False
) -> Program:
    """Dynamo's graph and its example inputs as a program; raises :class:`Unsuitable` for what its nodes show.

    A ``functional`` graph has the casts of autocast in it, and its task is written from the values of a call;
    that of one whose values come ``later``, too.
    """
    calls = sum(node.op in ("call_function", "call_method") for node in graph.graph.nodes)
    if calls > MOST_CALLS:
        raise Unsuitable(f"it has {calls} calls, more than one task holds, and no layers that repeat")
    found = list(_placeholders(graph, inputs))
    if not functional and not later:
        _check_unseen(found)
    tensors = [place for place in found if place.role is not None]
    devices = {place.example.device for place in tensors}
    if not any(place.role == "input" for place in tensors):
        raise Unsuitable("the graph takes no tensor")
    if len(devices) > 1:
        raise Unsuitable("its tensors are on several devices")
    device = next(iter(devices))
    if not functional and torch.is_autocast_enabled(device.type):
        raise Unsuitable("autocast is enabled around it")
    rebuilt = _Rebuilt(graph, found)
    return Program(
        rebuilt.module,
        tuple(rebuilt.roles),
        tuple(rebuilt.names),
        tuple(rebuilt.examples),
        tuple(place.index for place in tensors if place.role == "input"),
        tuple(rebuilt.held),
        rebuilt.results,
    )


@dataclass(frozen=True)
class _Placeholder:
    index: int
    node: fx.Node
    role: Role | None
    """``None`` for a size."""
    example: Any


def _placeholders(graph: fx.GraphModule, inputs: Sequence[Any]) -> Iterator[_Placeholder]:
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for index, (node, example) in enumerate(zip(nodes, inputs, strict=True)):
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymInt):
            yield _Placeholder(index, node, None, example)
        elif not isinstance(value, FakeTensor) or type(example) not in (
            torch.Tensor,
            nn.Parameter,
            FakeTensor,
        ):
            raise Unsuitable(f"it takes a {type(example).__name__}")
        elif example.layout is not torch.strided or example.is_conj() or example.is_neg():
            raise Unsuitable("it takes a tensor that is not strided, or has a lazy conjugate or sign")
        else:
            yield _Placeholder(index, node, role_of(node, example), example)


def _check_unseen(found: Sequence[_Placeholder]) -> None:
    """Integers may be indices: a task cannot draw them without having seen some."""
    for place in found:
        example = place.example
        if isinstance(example, FakeTensor) and not (
            example.is_floating_point() or example.dtype == torch.bool
        ):
            raise Unsuitable("it takes integers that the graph around it computes")


def role_of(node: fx.Node, example: torch.Tensor) -> Role:
    """What a placeholder of Dynamo's graph holds; a static input that is no parameter is a buffer."""
    if isinstance(example, nn.Parameter):
        return "parameter"
    return "buffer" if "_dynamo_static_input_type" in node.meta.get("tensor_dict", {}) else "input"


class _Rebuilt:
    """The graph once more, with tensors alone as placeholders; those that the graph holds come last."""

    def __init__(self, graph: fx.GraphModule, found: Sequence[_Placeholder]) -> None:
        self._source = graph
        self._new = fx.Graph()
        self._made: dict[fx.Node, Any] = {}
        self.roles: list[Role] = []
        self.names: list[str] = []
        self.examples: list[torch.Tensor] = []
        self.held: list[Held] = []
        self._arguments = {place.node: place.index for place in found}
        for place in found:
            if place.role is not None:
                self._made[place.node] = self._placeholder(place.role, place.example, place.node.meta)
                if place.role != "input":
                    self.held.append(Held(self.names[-1], place.role, place.index))
        for node in graph.graph.nodes:
            if node.op == "get_attr":
                self._constant(node)
        for place in found:
            if place.role is None and place.node.users:
                self._made[place.node] = self._asked(place.node, found)
        for node in graph.graph.nodes:
            if node.op in ("call_function", "call_method"):
                self._called(node)
            elif node.op == "call_module":
                raise Unsuitable(f"it calls the module {node.target}")
        self.results = self._results()
        self.module = fx.GraphModule(nn.Module(), self._new)

    def _placeholder(self, role: Role, example: torch.Tensor, meta: Mapping[str, Any]) -> fx.Node:
        name = f"{_LETTERS[role]}{self.roles.count(role)}"
        self.roles.append(role)
        self.names.append(name)
        self.examples.append(example)
        node = self._new.placeholder(name)
        node.meta = {"val": meta["example_value"], "example_value": meta["example_value"]}
        return node

    def _constant(self, node: fx.Node) -> None:
        found: Any = self._source
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            raise Unsuitable(f"it calls the graph {node.target} within it")
        mode = fake_mode(self._source)
        meta = {"example_value": mode.from_tensor(found, static_shapes=True)}
        self._made[node] = self._placeholder("constant", found, meta)
        self.held.append(Held(self.names[-1], "constant", None, found))

    def _asked(self, node: fx.Node, found: Sequence[_Placeholder]) -> fx.Node:
        """A size or a stride, asked of the first tensor that has it."""
        wanted = node.meta["example_value"].node.expr
        tensors = [place.node for place in found if place.role is not None]
        for method, tensor in product(("size", "stride"), tensors):
            for axis, size in enumerate(getattr(tensor.meta["example_value"], method)()):
                if isinstance(size, torch.SymInt) and size.node.expr == wanted:
                    asked = self._new.call_method(method, (self._made[tensor], axis))
                    asked.meta = {"example_value": node.meta["example_value"]}
                    return asked
        raise Unsuitable("it takes a number that is the size of none of its tensors")

    def _called(self, node: fx.Node) -> None:
        if _idle(node):
            return
        name = target_name(node.target)
        if name.startswith(_STATE):
            raise Unsuitable(f"it calls {name}, which changes the state of PyTorch")
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise Unsuitable(f"it calls {node.target.__name__}, which holds graphs of its own")
        copied = self._new.node_copy(node, lambda old: self._made[old])
        value = node.meta.get("example_value")
        copied.meta = {k: v for k, v in node.meta.items() if k in ("example_value", "stack_trace")}
        copied.meta["val"] = value
        method = IN_PLACE.get(node.target) if node.op == "call_function" else None
        if method is not None and isinstance(value, torch.Tensor):
            copied.op, copied.target = "call_method", method
        self._made[node] = copied

    def _results(self) -> tuple[Result, ...]:
        given: Any = next(node for node in self._source.graph.nodes if node.op == "output").args[0]
        outputs: list[fx.Node] = []
        results: list[Result] = []
        for item in given if isinstance(given, list | tuple) else (given,):
            if not isinstance(item, fx.Node):
                if isinstance(item, list | tuple | dict | slice):
                    raise Unsuitable("an output of it is nested")
                results.append(Result(value=item))
            elif item in self._arguments:
                results.append(Result(argument=self._arguments[item]))
            else:
                new = self._made[item]
                if not isinstance(item.meta.get("example_value"), torch.Tensor):
                    raise Unsuitable("an output of it is no tensor")
                if new not in outputs:
                    outputs.append(new)
                results.append(Result(place=outputs.index(new)))
        if not outputs:
            raise Unsuitable("it computes no tensor")
        self._new.output(tuple(outputs))
        return tuple(results)


def _idle(node: fx.Node) -> bool:
    """A call without effect here: it switches off autocast, which is off, or sets the grad mode, where
    nothing requires a gradient."""
    name = target_name(node.target)
    if name == "torch.amp.autocast_mode._exit_autocast":
        opened = node.args[0]
        return isinstance(opened, fx.Node) and _idle(opened)
    if name == "torch.amp.autocast_mode._enter_autocast":
        return len(node.args) > 2 and node.args[2] is False
    return name == "torch._C._set_grad_enabled"


def _form(role: Role, value: torch.Tensor, example: torch.Tensor, symbols: dict[str, str]) -> str:
    shape, stride = ([_size(n, symbols) for n in sizes] for sizes in (value.shape, value.stride()))
    form = f"{role} {str(value.dtype).removeprefix('torch.')} {' x '.join(shape)} by {' x '.join(stride)}"
    if role == "constant" and example.numel() <= MOST_LISTED:
        return f"{form} {values_text(example)}"
    return form


def _size(size: Any, symbols: dict[str, str]) -> str:
    """A size for the key: a number, or arithmetic on symbols that are named in the order they appear."""
    if not isinstance(size, torch.SymInt):
        return str(size)
    expression: Any = size.node.expr
    for symbol in sorted(expression.free_symbols, key=str):
        symbols.setdefault(str(symbol), f"s{len(symbols)}")
    return str(expression.xreplace({s: type(s)(symbols[str(s)]) for s in expression.free_symbols}))
