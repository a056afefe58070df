"""From what ``torch.compile`` generated for a program to a kernel file of it.

The program's own constructor, guard, domain and replay are those of every file of the built-in team
(:mod:`egg.expert.writing`). A file is put together from parts, and here a part is one launch or one library
call of the generated host code, with the graph reduced to what such a file needs to know: the forms of
arguments, weights and variables at the one size that was compiled. A call of another size is refused by the
file's guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

from egg.core.compiled import CompiledGraph
from egg.core.errors import EggError
from egg.core.source import Task
from egg.expert.compiled.bindings import bound
from egg.expert.compiled.folded import Folded, check_unchanged, folded_of
from egg.expert.compiled.host import HostReader
from egg.expert.compiled.kernels import Kernel
from egg.expert.compiled.launches import launch_constants, launch_lines
from egg.expert.compiled.module import module_of
from egg.expert.compiled.steps import ITEM, LAY, LAY_TEXT, HostCode, Step
from egg.expert.compiled.steps import Launch as Given
from egg.expert.compiled.views import Held
from egg.expert.cost import Machine
from egg.expert.emit.names import words
from egg.expert.graph import BYTES, Graph, Node, Value
from egg.expert.nesting import form_of
from egg.expert.parts import Group, Launch, Part, Unfit, spelled
from egg.expert.reading.capture import capture_fixed, first_paths
from egg.expert.sizes import Size
from egg.expert.writing.heading import Parts
from egg.expert.writing.replay import LAUNCH, LIBRARY, REACHED, REPLAY, SHORTEST, Estimate, decided_by
from egg.expert.writing.replay_results import copied_results
from egg.expert.writing.write import write_file
from egg.hardware.gpus import Gpu

PATTERN = "compiled"
"""What groups of generated code have for a pattern."""


@dataclass(frozen=True)
class CompiledFile:
    """A kernel file made of generated code."""

    source: str
    kernels: tuple[str, ...]
    library_calls: tuple[str, ...]
    replays: bool


@dataclass(frozen=True)
class Refusal:
    """Generated code that no file can be made of."""

    reason: str


def compiled_file(
    task: Task,
    compiled: CompiledGraph,
    gpu: Gpu,
    *,
    replay: bool | None = None,
    sweep: bool = False,
    graph: Graph | None = None,
) -> CompiledFile | Refusal:
    """The kernel file that ``compiled`` makes of ``task``.

    ``replay`` decides about a CUDA graph where the estimate is not to; with ``sweep`` the blocks and warps of
    kernels are listed to be tuned. ``graph`` is the program as :func:`capture_fixed` has it, where known.
    """
    try:
        known = graph if graph is not None else capture_fixed(task)
        return _written(task, known, compiled, gpu, replay, sweep)
    except (Unfit, EggError) as error:
        return Refusal(str(error))
    except RecursionError:
        return Refusal("the generated code is nested too deeply")


def _written(
    task: Task, known: Graph, compiled: CompiledGraph, gpu: Gpu, replay: bool | None, sweep: bool
) -> CompiledFile:
    module = module_of(compiled)
    paths = cache(lambda: first_paths(task))
    values = bound(known, compiled.arguments, module.arguments, paths)
    frame = replace(known, values=_leaves(known, values), nodes=(), results=())
    texts = {name: spelled(frame, value.name) for name, value in values.items()}
    held = {
        name: Held(
            texts[name], torch.empty_strided(form.shape, form.stride, dtype=form.dtype, device="meta"), None
        )
        for name, form in module.arguments
    }

    def launched(name: str, given: Given) -> tuple[list[str], list[str]]:
        kernel = module.kernels[name]
        lines = launch_lines(kernel, given)
        pairs = zip(kernel.parameters, given.texts, strict=True)
        return lines, [text for parameter, text in pairs if parameter in kernel.written]

    folded = folded_of(module.call, compiled.folded)
    reader = HostReader(held, _device(frame), launched, frozenset(module.kernels), folded)
    host = reader.read(module.call)
    check_unchanged(host, folded.values())
    if clash := set(host.tensors) & {*frame.values}:
        raise Unfit(f"the program has names that generated code gives too: {', '.join(sorted(clash))}")
    named = {text: values[name].name for name, text in texts.items()}
    graph, groups = _graph(known, frame, host, compiled.returns, named, module.kernels)
    parts = [
        (group, _part(step, module.kernels, tuple(folded.values()), sweep))
        for group, step in zip(groups, host.steps, strict=True)
    ]
    decision = decided_by(_estimated(graph, host, parts, gpu), graph, parts, replay)
    title = (f"{task.name}, as torch.compile generated it, with its kernels and launches written out.",)
    source = write_file(task, graph, parts, title, decision)
    kernels = tuple(dict.fromkeys(module.kernels[step.kernel].name for step in host.steps if step.kernel))
    calls = tuple(step.call for step in host.steps if step.call not in ("", ITEM))
    return CompiledFile(source, kernels, calls, decision.replays and REPLAY in source)


# -- the graph ----------------------------------------------------------------------------------------


def _leaves(known: Graph, values: Mapping[str, Value]) -> dict[str, Value]:
    """Arguments of ``forward``, those that the compiled graph does not read included, and its weights."""
    inputs = {name: known.value(name) for name in known.arguments if name is not None}
    return {**inputs, **{value.name: value for value in values.values()}}


def _device(frame: Graph) -> str:
    first = next((name for name in frame.arguments if name is not None), None) or next(
        iter(frame.values), None
    )
    if first is None:
        raise Unfit("a program without any tensor runs nowhere")
    return f"{spelled(frame, first)}.device"


def _graph(
    known: Graph,
    frame: Graph,
    host: HostCode,
    returns: Any,
    leaves: Mapping[str, str],
    kernels: Mapping[str, Kernel],
) -> tuple[Graph, list[Group]]:
    """A graph with a node for each step, and the steps as its groups."""
    values = dict(frame.values)
    for name, tensor in host.tensors.items():
        shape, stride = (tuple(Size(n) for n in row) for row in (tensor.shape, tensor.stride()))
        values[name] = Value(name, shape, str(tensor.dtype).removeprefix("torch."), stride)
    nodes, groups = list[Node](), list[Group]()
    for number, step in enumerate(host.steps):
        reads = tuple(leaves.get(name, name) for name in step.reads)
        node = Node(
            "fused" if step.kernel else "library" if step.call not in ("", ITEM) else "view",
            reads,
            step.makes,
            {"target": f"torch.{step.call}"} if step.call else {},
            step.call,
        )
        nodes.append(node)
        name = kernels[step.kernel].name if step.kernel else step.call or f"views_{number}"
        groups.append(Group(name, (node,), PATTERN))
    form, results = form_of(_returned(returns, host, leaves, frame), lambda item: isinstance(item, _Leaf))
    updates = tuple(Node("update", (name, name), ()) for name in _updated(known, frame, host, leaves))
    graph = replace(
        known,
        values=values,
        nodes=(*nodes, *updates),
        results=tuple(leaf.name for leaf in results),
        form=form,
        symbols={},
        exact={},
        within=(),
        fixed={},
    )
    return graph, groups


def _updated(known: Graph, frame: Graph, host: HostCode, leaves: Mapping[str, str]) -> list[str]:
    """Arguments and tensors at ``self`` that the program changes; the compiled graph must change them too."""
    roots = (_root(text, leaves) for step in host.steps for text in step.writes)
    changed = {leaves[root] for root in roots if root}
    wanted = [known.value(str(node.inputs[0])) for node in known if node.op == "update"]
    for value in wanted:
        if value.name not in changed:
            raise Unfit(f"forward changes {value.path}, and the compiled graph leaves that to Python")
    inputs = [name for name in changed if name in known.arguments]
    if gaps := [name for name in inputs if not frame.value(name).contiguous]:
        raise Unfit(f"the graph writes into {gaps[0]}, which is not contiguous")
    return sorted(changed)


def _root(text: str, leaves: Mapping[str, str]) -> str:
    """The argument that an operand is, or is a view of: a view is spelled with it in front."""
    return next((leaf for leaf in leaves if text == leaf or text.startswith(f"{leaf}.")), "")


@dataclass(frozen=True)
class _Leaf:
    name: str


def _returned(returns: Any, host: HostCode, leaves: Mapping[str, str], frame: Graph) -> Any:
    """The structure of ``forward``'s result with names of values for leaves."""
    match returns:
        case {"output": int(place)} if place < len(host.outputs):
            name = host.outputs[place]
            if name is None:
                raise Unfit(f"output {place} of the graph is no tensor")
            return _Leaf(leaves.get(name, name))
        case {"input": str(name)}:
            if name not in frame.values:
                raise Unfit(f"forward returns its argument {name}, which is no tensor")
            return _Leaf(name)
        case {"tuple": list(items)}:
            return tuple(_returned(item, host, leaves, frame) for item in items)
        case {"list": list(items)}:
            return [_returned(item, host, leaves, frame) for item in items]
        case {"dict": dict(items)}:
            return {key: _returned(item, host, leaves, frame) for key, item in items.items()}
    raise Unfit(f"forward returns {returns!r}, which is not known")


# -- parts --------------------------------------------------------------------------------------------


def _part(step: Step, kernels: Mapping[str, Kernel], folded: tuple[Folded, ...], sweep: bool) -> Part:
    known = {LAY: LAY_TEXT, **{item.function: item.text for item in folded}}
    mentioned = words("\n".join(step.lines))
    helpers = {name: text for name, text in known.items() if name in mentioned}
    if not step.kernel:
        return Part(kernels={}, call=step.lines, summary=step.call, helpers=helpers)
    kernel = kernels[step.kernel]
    constants = launch_constants(kernel)
    if not sweep:
        constants = tuple(replace(constant, choices=()) for constant in constants)
    return Part(
        kernels={kernel.name: kernel.text, **kernel.functions},
        call=step.lines,
        constants=constants,
        helpers=helpers,
        summary=kernel.words,
        launches=(Launch(kernel.name),),
    )


# -- replay -------------------------------------------------------------------------------------------


def _estimated(graph: Graph, host: HostCode, parts: Parts, gpu: Gpu) -> Estimate:
    """Seconds of the host and of the GPU: bytes that each step touches, operations of library calls."""
    machine, device = Machine.of(gpu), 0.0
    for step, node in zip(host.steps, graph.nodes, strict=False):
        if node.op == "view":
            continue
        names = dict.fromkeys(name for name in (*node.inputs, *node.outputs) if name is not None)
        moved = sum(_bytes(graph.value(name)) for name in names)
        half = any(graph.value(name).dtype in ("float16", "bfloat16") for name in names)
        rate = machine.rate(f"library product, {'half' if half else 'fp32'}")
        device += max(SHORTEST, moved / machine.memory, step.operations / rate)
    launches = sum(bool(step.kernel) for step in host.steps)
    calls = sum(node.op == "library" for node in graph.nodes)
    handed = [_bytes(graph.value(name)) for name in copied_results(graph, parts)]
    copies = sum(2 * size / (REACHED * gpu.bandwidth) + SHORTEST for size in handed)
    return Estimate(launches + calls, launches * LAUNCH + calls * LIBRARY, device, copies)


def _bytes(value: Value) -> int:
    return value.elements.value * BYTES.get(value.dtype, 4)
