"""Recording torch.compile: the code that it generates for a reference, and what each launch of it takes.

The reference is compiled once more, by a Dynamo backend of ours that hands the graph on to Inductor and notes
where every argument comes from and which tensors come out. Inductor's module is then among those that it has
loaded; the module's autotuners hold the configurations that they chose.

A program of several graphs, code for a CPU, and a result that is not made of the graph's outputs and the
arguments of ``forward`` are not recorded: the reason is the record then. The reference is the task's code, so
this runs in the oracle's process, as the baselines do.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import nn

from egg.core.compiled import MOST_NUMBERS, NUMBERS, CompiledGraph, FoldedConstant, LaunchChoice

WARMING = 3
"""Calls until every kernel is compiled and its autotuner has chosen."""
MOST_CHARACTERS = 500_000
AUTOTUNER = "Autotuner"
FROZEN = "_frozen_param"
"""How the names of weights begin that Inductor took for constants: their numbers are not the program's."""
ON_CPU = "there is no GPU here: Inductor writes C++ for a CPU, not kernels"
_TAIL = re.compile(r"^if __name__ ==", re.MULTILINE)
_COMMENT = re.compile(
    r"^# (kernel path:.*|Source node to ATen node mapping:|Graph fragment:|  .*)\n", re.MULTILINE
)
_UNPACKED = re.compile(r"^\s+([\w, ]+?),? = args$", re.MULTILINE)

Compile = Callable[[torch.fx.GraphModule, Sequence[Any]], Any]


class NotRecorded(Exception):
    """Why a program cannot be recorded, in words."""


class GraphNotes:
    """A Dynamo backend that compiles by ``compile`` and notes arguments and outputs of every graph."""

    def __init__(self, compile: Compile) -> None:
        self._compile = compile
        self.graphs = 0
        self.arguments: tuple[str, ...] = ()
        self.outputs: list[Any] = []
        """Of the last call."""

    def __call__(self, graph: torch.fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        self.graphs += 1
        self.arguments = tuple(_source(node) for node in graph.graph.nodes if node.op == "placeholder")
        compiled = self._compile(graph, examples)

        def call(*arguments: Any) -> Any:
            outputs = compiled(*arguments)
            self.outputs = list(outputs)
            return outputs

        return call


def recorded(
    module: nn.Module, inputs: list[Any], device: torch.device
) -> tuple[CompiledGraph, ModuleType, Callable[[], Any]]:
    """The graph, the module that Inductor made of it, and one more call of the compiled program."""
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.compile_fx import compile_fx

    if device.type != "cuda":
        raise NotRecorded(ON_CPU)
    notes = GraphNotes(compile_fx)
    before = len(PyCodeCache.modules)
    program = torch.compile(module, backend=notes, dynamic=False)
    result = None
    for _ in range(WARMING):
        result = program(*inputs)
    torch.cuda.synchronize(device)
    wrapper = _wrapper(PyCodeCache.modules[before:], notes)
    text = slim(_text(wrapper))
    check_text(text, len(notes.arguments))
    returns = returned(result, notes.outputs, named_inputs(module, inputs))
    names = vars(wrapper)
    graph = CompiledGraph(notes.arguments, text, chosen(names), returns, folded(names, text))
    return graph, wrapper, lambda: program(*inputs)


def _source(node: torch.fx.Node) -> str:
    """Where Dynamo found an argument of the graph; empty where it does not say. The name of a source is a
    method in some versions of PyTorch."""
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", None)
    found = name() if callable(name) else name
    return found if isinstance(found, str) else ""


def _wrapper(loaded: Sequence[ModuleType], notes: GraphNotes) -> ModuleType:
    """The one module that calls kernels, of those that Inductor loaded meanwhile."""
    if notes.graphs != 1:
        raise NotRecorded(f"torch.compile splits the program into {notes.graphs} graphs")
    if not all(notes.arguments):
        raise NotRecorded("Dynamo does not say where an argument of the graph comes from")
    found = [module for module in loaded if hasattr(module, "call")]
    if len(found) != 1:
        raise NotRecorded(f"Inductor made {len(found)} modules of one graph")
    return found[0]


def _text(module: ModuleType) -> str:
    assert module.__file__ is not None
    with open(module.__file__, encoding="utf-8") as file:
        return file.read()


def slim(text: str) -> str:
    """The module without its main block, and without paths and copies of the graph in comments.

    The function that makes arguments for a benchmark stays: it states their dtypes.
    """
    tail = _TAIL.search(text)
    return _COMMENT.sub("", text[: tail.start()] if tail else text).rstrip() + "\n"


def check_text(text: str, arguments: int) -> None:
    """Raise for a module that is not Triton code with as many arguments as Dynamo's graph has."""
    if len(text) > MOST_CHARACTERS:
        raise NotRecorded(f"the generated module has {len(text)} characters")
    if "async_compile.cpp" in text:
        raise NotRecorded("Inductor computes a part of the program in C++ on the CPU")
    unpacked = _UNPACKED.search(text)
    found = len(unpacked[1].split(",")) if unpacked else 0
    if found != arguments:
        raise NotRecorded(f"Inductor's code takes {found} arguments, Dynamo's graph {arguments}")


def chosen(names: Mapping[str, Any]) -> dict[str, LaunchChoice]:
    """What the autotuners among a module's names launch with."""
    found: dict[str, LaunchChoice] = {}
    for name, value in names.items():
        if type(value).__name__.endswith(AUTOTUNER) and value.launchers:
            config = value.launchers[0].config
            constants = {str(key): int(number) for key, number in config.kwargs.items()}
            found[name] = LaunchChoice(constants, int(config.num_warps), int(config.num_stages))
    return found


def folded(names: Mapping[str, Any], text: str) -> dict[str, FoldedConstant]:
    """The tensors among a module's names that ``call`` reads, where they are small and of plain numbers.

    Inductor folds what ``torch.tensor([...])`` makes in ``forward`` into its module, on every device that
    reads it. One that is left out here is still in the text, where a reader finds that it is not known.
    """
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    calls = (node for function in functions if function.name == "call" for node in ast.walk(function))
    read = dict.fromkeys(node.id for node in calls if isinstance(node, ast.Name))
    found: dict[str, FoldedConstant] = {}
    for name in read:
        value = names.get(name)
        if isinstance(value, torch.Tensor) and not name.startswith(FROZEN):
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype in NUMBERS and value.numel() <= MOST_NUMBERS and value.is_contiguous():
                numbers = value.detach().cpu().flatten().tolist()
                written = " ".join(repr(NUMBERS[dtype](number)) for number in numbers)
                found[name] = FoldedConstant(dtype, tuple(value.shape), written)
    return found


def named_inputs(module: nn.Module, inputs: list[Any]) -> dict[str, Any]:
    """The arguments of ``forward`` by name."""
    return dict(inspect.signature(module.forward).bind(*inputs).arguments)


def returned(result: Any, outputs: Sequence[Any], inputs: Mapping[str, Any]) -> Any:
    """How ``result`` is made of tensors of the graph and of arguments, found by identity."""
    if isinstance(result, torch.Tensor):
        for place, output in enumerate(outputs):
            if output is result:
                return {"output": place}
        for name, given in inputs.items():
            if given is result:
                return {"input": name}
        raise NotRecorded("a tensor of the result is neither an output of the graph nor an argument")
    if type(result) is tuple or type(result) is list:
        return {type(result).__name__: [returned(part, outputs, inputs) for part in result]}
    if type(result) is dict and all(isinstance(key, str) for key in result):
        return {"dict": {key: returned(part, outputs, inputs) for key, part in result.items()}}
    raise NotRecorded(f"the result holds a {type(result).__name__}, which the graph does not compute")
