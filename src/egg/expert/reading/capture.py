"""A task as a graph: traced without data, brought into normal form, its sizes named.

``capture`` is the whole way; ``capture_once`` is one size only, with plain numbers for sizes;
``capture_fixed`` adds how the program may be built and called at that size.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.dataless import Uncaptured
from egg.evaluator.task.dimensions import Rehearsal
from egg.evaluator.task.meta import on_meta
from egg.evaluator.task.program import Program
from egg.expert.graph import Graph, Node, Origin, Usage, Value
from egg.expert.nesting import form_of, is_named
from egg.expert.reading.formats import formats
from egg.expert.reading.generalise import generalised
from egg.expert.reading.memory import Tensor, chain_between, moved_bits
from egg.expert.reading.normal import RULES, Builder, Call, lower
from egg.expert.reading.normal.builder import dtype_name, extents, plain
from egg.expert.reading.normal.matrices import factors
from egg.expert.reading.points import Capture, Changes
from egg.expert.reading.rounds import without_rounds
from egg.expert.reading.trace import Trace, trace
from egg.expert.reading.unseen import unseen
from egg.expert.reading.usage import arguments_of, values_of, with_modes
from egg.expert.reading.variants import Variants

_RESHAPING = frozenset(["unsqueeze_", "squeeze_", "t_", "transpose_", "detach_", "swapdims_", "swapaxes_"])
"""In place, and yet of the shape alone."""
_ANCHORS = frozenset({"matmul", "conv", "norm", "recurrent", "gather", "attention"})
"""Nodes that bear the name of the layer they come from."""
_LONGEST_LABEL = 28


@unseen()
def capture(task: Task, precision: Precision = Precision.MATCH) -> Graph:
    """``task`` as a graph with named sizes; :class:`TaskError` where it cannot be traced."""
    return generalised(task, lambda variant, changes: _captured(variant, precision, changes))


@unseen()
def capture_once(task: Task, precision: Precision = Precision.MATCH) -> Graph:
    """``task`` at its own size, every size a plain number."""
    return _captured(task, precision, Changes()).graph


@unseen()
def capture_fixed(task: Task, precision: Precision = Precision.MATCH) -> Graph:
    """``task`` at its own size, with its usage: every size, argument and value is the one of the task."""
    variants = Variants(task, lambda variant, changes: _captured(variant, precision, changes))
    base = variants.base()
    usage = Usage(tuple(values_of(base, ())), tuple(arguments_of([base], (), ())))
    with Program.load(task) as program:
        rehearsal = Rehearsal(program)
        usage = with_modes(usage, variants, base, rehearsal.module)
        usage = replace(usage, outputs=formats(base.graph, rehearsal))
    return replace(base.graph, usage=usage)


def first_paths(task: Task) -> dict[str, str]:
    """By every path of a parameter or buffer: the first one, under which a module lists it."""
    with Program.load(task) as program:
        module = on_meta(program)
        found, first = dict[str, str](), dict[int, str]()
        every = (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        )
        for path, tensor in every:
            found[path] = first.setdefault(id(tensor), path)
        return found


def _captured(task: Task, precision: Precision, changes: Changes) -> Capture:
    with Program.load(task) as program:
        try:
            varied = changes.applied(program)
            traced = trace(varied, precision)
            graph = without_rounds(_Translation(traced).graph())
            given = {name: v for name, v in traced.given.arguments if not isinstance(v, torch.Tensor)}
            return Capture(graph, traced.numbers, varied.bound_arguments(), given, traced.defaults)
        except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            raise TaskError(
                f"task {task.name!r} cannot be traced without data: {error}",
                "its forward may not look at values",
            ) from error


class _Translation:
    """One trace, operator by operator, into nodes."""

    def __init__(self, traced: Trace) -> None:
        self._traced = traced
        self._builder = Builder()
        self._made: dict[fx.Node, Any] = {}
        """For each node of the trace its tensor, list of tensors, or plain value."""
        self._leaves: dict[int, Tensor] = {}
        self._arguments: list[str | None] = []
        self._originals: list[tuple[Value, Tensor]] = []

    def graph(self) -> Graph:
        placeholders = iter([n for n in self._traced.graph.graph.nodes if n.op == "placeholder"])
        for name, value in self._traced.given.arguments:
            if isinstance(value, torch.Tensor):
                leaf = self._leaf(name, name, value, Origin.INPUT)
                self._made[next(placeholders)] = leaf
                self._arguments.append(leaf.value.name)
            else:
                self._arguments.append(None)
        self._builder.factors = any(map(_factors, self._traced.graph.graph.nodes))
        output: Any = None
        for node in self._traced.graph.graph.nodes:
            if node.op == "get_attr":
                self._made[node] = self._attribute(_fetched(self._traced.graph, node.target))
            elif node.op == "call_function" and not is_named(node.target):
                self._made[node] = self._called(node)
            elif node.op == "output":
                output = node.args[0]
        results, rebound = output
        for path, new in zip(self._traced.rebound, rebound, strict=True):
            self._rebind(path, self._made[new])
        return self._finished(results)

    # -- leaves ------------------------------------------------------------------------------------

    def _leaf(self, name: str, path: str, tensor: torch.Tensor, origin: Origin) -> Tensor:
        value = Value(
            name, plain(tensor.shape), dtype_name(tensor.dtype), plain(tensor.stride()), origin, path
        )
        made = Tensor.fresh(self._builder.leaf(value))
        self._originals.append((made.value, made))
        return made

    def _attribute(self, tensor: torch.Tensor) -> Tensor:
        if id(tensor) not in self._leaves:
            origin, path = Origin.PARAMETER, self._traced.parameters.get(id(tensor))
            if path is None:
                origin, path = Origin.CONSTANT, self._traced.attributes.get(id(tensor))
            if path is None:
                raise Uncaptured("forward uses a tensor that belongs to no module")
            self._leaves[id(tensor)] = self._leaf(path.replace(".", "_"), path, tensor, origin)
        return self._leaves[id(tensor)]

    def _rebind(self, path: str, new: Tensor) -> None:
        """``self.hidden = ...`` in forward: the next call sees it, so it is a write."""
        (before,) = [k for k, p in self._traced.attributes.items() if p == path]
        if before not in self._leaves:
            return
        kept, value = self._leaves[before], new.read(self._builder)
        original = next(leaf for leaf, tensor in self._originals if tensor is kept)
        if value.shape != original.shape or value.dtype != original.dtype:
            raise Uncaptured(f"forward gives self.{path} a tensor of another form")
        self._originals = [(leaf, Tensor.fresh(value) if t is kept else t) for leaf, t in self._originals]

    # -- calls -------------------------------------------------------------------------------------

    def _called(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            return self._made[node.args[0]][node.args[1]]  # type: ignore[index]
        target: Any = node.target
        schema = getattr(target, "_schema", None)
        if getattr(target, "__name__", "").endswith("set_grad_enabled"):
            return None
        if schema is None:
            raise Uncaptured(f"forward calls {target}, which is no operator")
        given = _bound(schema, node.args, node.kwargs)
        held = {name: self._resolved(value) for name, value in given.items()}
        name, in_place = _base_name(schema)
        values = {key: self._read(value) for key, value in held.items()}
        made = node.meta.get("val")
        call = Call(name, values, _forms(made), target, self._label(values), _without_tensor(made))
        self._builder.label = ""
        start = len(self._builder.nodes)
        try:
            if in_place and isinstance(held.get("self"), Tensor):
                call = moved_bits(self._builder, call, held["self"])
            lowered = lower(self._builder, call)
        except (KeyError, IndexError, AttributeError, AssertionError, ZeroDivisionError) as error:
            raise Uncaptured(f"{name} cannot be read: {type(error).__name__}: {error}") from error
        self._name_anchor(start, call)
        if in_place:
            tensor, new = held["self"], self._checked(lowered, call, node)
            if not isinstance(tensor, Tensor) or not isinstance(new, Value):
                raise Uncaptured(f"{name} writes into several tensors at once")
            tensor.write(self._builder, new)
            return tensor
        if name == "batch_norm" and isinstance(lowered, list):
            lowered, *running = lowered
            for key, new in zip(("running_mean", "running_var"), running, strict=True):
                held[key].write(self._builder, new)
        checked = self._checked(lowered, call, node)
        if not isinstance(checked, list):
            return self._tensor(held, schema, checked)
        tensors: list[Any] = [self._tensor(held, schema, value) for value in checked]
        for place in call.empty:
            tensors.insert(place, None)
        return tensors

    def _tensor(self, held: dict[str, Any], schema: Any, value: Value) -> Tensor:
        """A view shares its operand's memory; everything else has its own."""
        source = held.get("self")
        aliases = any(r.alias_info is not None for r in schema.returns)
        if isinstance(source, Tensor) and (aliases or value.name == source.value.name):
            views = chain_between(self._builder, source.value, value)
            if (
                views is not None
                and (views or _shares(schema, source.value))
                and self._viewable(source, value, views)
            ):
                return source.viewed(value, views)
            maker = self._builder.producers.get(value.name)
            while maker is not None and maker.op == "view":
                maker = self._builder.producers.get(str(maker.inputs[0]))
            if views is None and aliases and maker is not None and _shows(maker):
                return Tensor.aliasing(value, source, schema.name.split("::")[1])
        return Tensor.fresh(value)

    def _viewable(self, source: Tensor, value: Value, views: tuple[Node, ...]) -> bool:
        """Whether PyTorch makes no copy: a reshape of what is not laid out for it does."""
        if not any(view.get("how") == "reshape" for view in views) or len(views) > 1:
            return True
        strides = [s.value for s in source.value.stride]
        try:
            torch.empty_strided(extents(source.value), strides, device="meta").view(extents(value))
        except RuntimeError:
            return False
        return True

    def _checked(self, lowered: Value | list[Value], call: Call, node: fx.Node) -> Value | list[Value]:
        """What a rule made must have the form that PyTorch computed, and gets PyTorch's strides.

        Not of attention, which lies otherwise on every device: as its query, as most of its kernels have it.
        Results of calls that stay PyTorch's have them where there are no gaps (a spectrum, whose frequencies
        are innermost): a file asks for that layout, and nothing is copied where the device has it, too.
        """
        made = lowered if isinstance(lowered, list) else [lowered]
        seen = _tensors(node.meta.get("val"))
        for place, (value, (shape, dtype), tensor) in enumerate(zip(made, call.results, seen, strict=True)):
            if extents(value) != shape or value.dtype != dtype:
                seen_as = f"{extents(value)} {value.dtype} instead of {shape} {dtype}"
                raise Uncaptured(f"{call.name} is not read rightly: {seen_as}")
            if value.origin is Origin.NODE and not _overlaps(tensor):
                maker = self._builder.producers[value.name]
                if (maker.op == "library" or call.name not in RULES) and not _is_dense(tensor):
                    continue
                query = self._builder.values[str(maker.inputs[0])] if maker.op == "attention" else None
                stride = tensor.stride() if query is None else _as_query(value, query)
                made[place] = self._builder.restrided(value, stride)
        return made if isinstance(lowered, list) else made[0]

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, fx.Node):
            return self._made[value]
        if isinstance(value, list | tuple):
            return [self._resolved(item) for item in value]
        return value

    def _read(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.read(self._builder)
        return [self._read(item) for item in value] if isinstance(value, list) else value

    def _label(self, arguments: dict[str, Any]) -> str:
        """The layer that a call belongs to: that of its first parameter."""
        flat = [v for a in arguments.values() for v in (a if isinstance(a, list) else [a])]
        for value in flat:
            if isinstance(value, Value) and value.origin is Origin.PARAMETER and "." in value.path:
                parts = value.path.split(".")[:-1]
                while len("_".join(parts)) > _LONGEST_LABEL and len(parts) > 1:
                    parts = parts[1:]
                return "_".join(parts)
        return ""

    def _name_anchor(self, start: int, call: Call) -> None:
        """Rename the node of a layer after it, unless another has the name."""
        if not call.label:
            return
        builder = self._builder
        for place in range(start, len(builder.nodes)):
            node = builder.nodes[place]
            if node.op in _ANCHORS:
                builder.nodes[place] = Node(node.op, node.inputs, node.outputs, node.attributes, call.label)
                return

    # -- the end -----------------------------------------------------------------------------------

    def _finished(self, results: Any) -> Graph:
        try:
            form, flat = form_of(_with_named(results), lambda item: isinstance(item, fx.Node))
        except ValueError as error:
            raise Uncaptured(f"forward returns something else than tensors: {error}") from error
        if not flat or any(isinstance(self._made[item], list) for item in flat):
            raise Uncaptured("forward returns something else than tensors")
        names = tuple(self._made[item].read(self._builder).name for item in flat)
        for leaf, tensor in self._originals:
            new = tensor.room.current
            if new.name != leaf.name:
                self._builder.nodes.append(Node("update", (leaf.name, new.name), (), {}, leaf.path))
        given = self._traced.given
        return Graph(
            dict(self._builder.values),
            tuple(self._builder.nodes),
            tuple(self._arguments),
            names,
            form,
            containers=given.containers,
            paths=given.paths if given.containers else {},
        )


def _with_named(results: Any) -> Any:
    """Results with named tuples, which the tracer writes down as calls of their classes."""
    if isinstance(results, fx.Node):
        called: Any = results.target
        return called(*map(_with_named, results.args)) if is_named(called) else results
    if isinstance(results, dict):
        return {key: _with_named(item) for key, item in results.items()}
    return type(results)(map(_with_named, results)) if type(results) in (list, tuple) else results


def _fetched(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _bound(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, with the schema's defaults."""
    given = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)}
    given |= kwargs
    return {
        a.name: given[a.name] if a.name in given else a.default_value if a.has_default_value() else None
        for a in schema.arguments
    }


def _base_name(schema: Any) -> tuple[str, bool]:
    """The operator's name without the mark of writing in place, and whether it does."""
    name = schema.name.split("::")[1]
    if name in _RESHAPING:
        return name.rstrip("_"), False
    first = schema.arguments[0] if schema.arguments else None
    writes = first is not None and first.alias_info is not None and first.alias_info.is_write
    if not writes:
        return name, False
    if name.startswith("__i"):
        return f"__{name[3:]}", True
    return name.rstrip("_"), True


def _shares(schema: Any, source: Value) -> bool:
    """A call that returned its operand as it was: ``clone`` copies, ``contiguous`` only if it must."""
    name = schema.name.split("::")[1]
    if name in ("clone", "_to_copy", "lift_fresh_copy", "dropout"):
        return name == "dropout"
    return source.contiguous if name in ("contiguous", "reshape") else True


def _shows(node: Node) -> bool:
    """Whether a node stands for a call that shows another tensor's memory, and yet is no view of ours: a
    diagonal, bits that are taken for fewer or for more numbers."""
    return node.op in ("library", "gather")


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements lie without gaps, in whatever order of its dimensions."""
    step = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= size
    return True


def _overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share memory in a way that no repetition does: windows, which are computed here."""
    reached = 0
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        if 0 < stride <= reached:
            return True
        reached += stride * (size - 1)
    return False


def _as_query(value: Value, query: Value) -> tuple[int, ...]:
    """Strides without gaps, dimensions in the order of the query's, the last one innermost."""
    order = sorted(range(value.rank - 1), key=lambda dim: (-query.stride[dim].value, dim))
    shape, stride, step = extents(value), [1] * value.rank, extents(value)[-1]
    for dim in reversed(order):
        stride[dim], step = step, step * shape[dim]
    return tuple(stride)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [item for item in value or () if isinstance(item, torch.Tensor)]
        if isinstance(value, list | tuple)
        else []
    )


def _without_tensor(value: Any) -> tuple[int, ...]:
    """The places of what a call returns that hold none: a gradient that is not asked for."""
    items = value if isinstance(value, list | tuple) else ()
    return tuple(place for place, item in enumerate(items) if item is None)


def _forms(value: Any) -> tuple[tuple[tuple[int, ...], str], ...]:
    return tuple((tuple(t.shape), dtype_name(t.dtype)) for t in _tensors(value))


def _factors(node: fx.Node) -> bool:
    """Whether a call factors matrices of a few rows."""
    schema = getattr(node.target, "_schema", None)
    operands = [found for n in node.all_input_nodes for found in _tensors(n.meta.get("val"))]
    return schema is not None and factors(_base_name(schema)[0], [tuple(t.shape) for t in operands])
