"""Forward and backward of a graph that trains: each is looked up, recorded, tuned and answered by itself.

``torch.compile`` trains through AOTAutograd: it traces forward and backward together, a partitioner decides
what is kept between them and what is computed again, and each of the two graphs is compiled. All of that
stays Inductor's own (``compile_fx``), with its decompositions, passes and partitioner. Here the last step is
taken over, ``inner_compile``: a graph with a kernel in the store runs on it, any other is compiled by
Inductor as before. The two graphs meet in the tensors that are kept, so one may run on a kernel and the other
not.

The values of what is kept, and of the gradients that come in, are not known while a graph is compiled. So a
graph that is not in the store yet is recorded at its first call, when they are.

AOTAutograd keeps what it compiled in a cache, which has to be off while kernels are looked up: what it keeps
was compiled without them. So the store remembers which graphs came out of one that trains. Where none of them
has a kernel, the next process hands the whole to Inductor, with its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from egg import __version__
from egg.modules.aot import read_functional
from egg.modules.arithmetic import precision_here
from egg.modules.counts import Call
from egg.modules.fallback import Fallback, boxed, unboxed
from egg.modules.graph_text import graph_text
from egg.modules.lookup import Graph, Lookup, counting, store_errors
from egg.modules.regions import Region, functional_layers
from egg.modules.training_layers import LayeredPart, look_up
from egg.store import Part, Step, assembly_name, package_version

FORWARD, BACKWARD = "forward", "backward"
_KINDS = ("cpu", "cuda")
CUDA_GRAPHS = "Inductor replays it as a CUDA graph, with the other graphs of the step"


class Training:
    """Compiles one graph of Dynamo that trains."""

    def __init__(self, lookup: Lookup, fallback: Fallback) -> None:
        self._lookup, self._fallback = lookup, fallback
        self._replayed: bool | None = None
        """Whether Inductor means to replay the graphs as CUDA graphs."""
        self._name = ""
        self._seen: list[Graph] = []

    def compiled(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Call:
        rows = None
        with self._lookup.named(Graph("left")):
            self._name = self._named(graph, inputs)
            step = self._lookup.store.step(self._name)
            rows = self._lookup.without_kernels(step) if step is not None else None
        if rows is not None:
            return counting(self._fallback.now(graph, inputs), rows)
        return self._fallback.trained(graph, inputs, self._inner)

    def _named(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> str:
        """A hash of all that decides which graphs AOTAutograd makes of this one, and where they are looked
        up."""
        fallback, chosen = self._fallback, self._lookup.chosen
        casts = [f"{torch.is_autocast_enabled(kind)} {torch.get_autocast_dtype(kind)}" for kind in _KINDS]
        terms = [str(torch.__version__), package_version("triton"), __version__, precision_here().value]
        terms += [*casts, fallback.name, str(fallback.mode), repr(sorted(fallback.options.items()))]
        return assembly_name(graph_text(graph.graph), [*map(_form, inputs), *terms, chosen.library_calls])

    def _remember(self, found: Graph) -> None:
        """Keep which graphs came out, once the last of them, the backward, is there."""
        self._seen.append(found)
        if self._name and found.part == BACKWARD:
            parts = tuple(
                Part(row.part, row.key if row.route != "left" else "", row.reason) for row in self._seen
            )
            with store_errors(self._lookup.notice):
                self._lookup.store.stepped(self._name, Step(parts))

    def _inner(self, graph: fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Call:
        """One graph of AOTAutograd: a kernel, or what Inductor makes of it. Called by Inductor."""
        part = BACKWARD if how.get("is_backward") else FORWARD
        if self._replayed is None:
            self._replayed = bool(how.get("cudagraphs"))
        if self._replayed:
            found = Graph("left", CUDA_GRAPHS, part=part)
            self._lookup.rows.append(found)
            self._remember(found)
            return Answer(self._fallback.part(graph, inputs, **how), found)
        regions = self._regions(graph)
        if regions:
            layers = look_up(regions, part, self._lookup)
            for row in layers.rows:
                self._remember(row)
            return LayeredPart(graph, inputs, layers, self._lookup, self._fallback, how)
        found, program, record = self._lookup.look_up_functional(lambda: read_functional(graph), part)
        self._remember(found)
        if program is not None and record is None:
            call = self._lookup.kernel(found, program, self._later(graph))
            if call is not None:
                return boxed(call)
        compiled = self._fallback.part(graph, inputs, **how)
        if program is None or record is None:
            return Answer(compiled, found)

        def first(args: Sequence[Any]) -> Call | None:
            call = self._lookup.kernel(found, program, unboxed(compiled)) if record(args) else None
            return boxed(call) if call is not None else None

        return Answer(compiled, found, first)

    def _regions(self, graph: fx.GraphModule) -> tuple[Region, ...]:
        """The layers that repeat; a graph that cannot be searched is one task."""
        with self._lookup.named(Graph("left")):
            return functional_layers(graph)
        return ()

    def _later(self, graph: fx.GraphModule) -> Call:
        """The graph for calls that its kernel refuses."""
        run = self._fallback.later(graph)

        def call(*args: Any) -> Any:
            with torch.no_grad():
                return run(*args)

        return call


class Answer:
    """Answers the calls of a graph by what was compiled for it and counts them; the first may be recorded."""

    def __init__(
        self,
        compiled: Call,
        found: Graph,
        first: Callable[[Sequence[Any]], Call | None] | None = None,
    ) -> None:
        self._compiled, self._counts, self._first = compiled, found.counts, first
        self._kernel: Call | None = None
        self._boxed_call = True  # of the object itself: PyTorch's wrappers copy its attributes

    def __call__(self, args: list[Any]) -> Any:
        if self._first is not None:
            first, self._first = self._first, None
            self._kernel = first(args)
        if self._kernel is not None:
            return self._kernel(args)
        self._counts.fallback += 1
        return self._compiled(args)


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    form = f"{value.dtype} {tuple(value.shape)} {value.stride()} {value.device.type} {value.requires_grad}"
    on_gpu = value.device.type == "cuda"
    return f"{form} {torch.cuda.get_device_name(value.device)}" if on_gpu else form
