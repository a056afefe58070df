"""Forward and backward of a graph that trains: each is looked up, recorded, tuned and answered by itself.

``torch.compile`` trains through AOTAutograd: it traces forward and backward together, a partitioner decides
what is kept between them and what is computed again, and each of the two graphs is compiled. All of that
stays Inductor's own (``compile_fx``), with its decompositions, passes and partitioner. Here the last step is
taken over, ``inner_compile``: a graph with a kernel in the store runs on it, any other is compiled by
Inductor as before. The two graphs meet in the tensors that are kept, so one may run on a kernel and the other
not.

The values of what is kept, and of the gradients that come in, are not known while a graph is compiled. So a
graph that is not in the store yet is recorded at its first call, when they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from egg.modules.aot import read_functional
from egg.modules.fallback import Fallback, boxed, unboxed
from egg.modules.lookup import Desk, Graph
from egg.modules.stored_kernel import Call

CUDA_GRAPHS = "Inductor replays it as a CUDA graph, with the other graphs of the step"


class Training:
    """Compiles one graph of Dynamo that trains."""

    def __init__(self, desk: Desk, fallback: Fallback) -> None:
        self._desk, self._fallback = desk, fallback
        self._replayed: bool | None = None
        """Whether Inductor means to replay the graphs as CUDA graphs."""

    def compiled(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Call:
        return self._fallback.trained(graph, inputs, self._inner)

    def _inner(self, graph: fx.GraphModule, inputs: Sequence[Any], **how: Any) -> Call:
        """One graph of AOTAutograd: a kernel, or what Inductor makes of it. Called by Inductor."""
        part = "backward" if how.get("is_backward") else "forward"
        if self._replayed is None:
            self._replayed = bool(how.get("cudagraphs"))
        if self._replayed:
            found = Graph("left", CUDA_GRAPHS, part=part)
            self._desk.rows.append(found)
            return Answer(self._fallback.part(graph, inputs, **how), found)
        found, program, record = self._desk.look_up_functional(lambda: read_functional(graph), part)
        if program is not None and record is None:
            call = self._desk.kernel(found, program, self._later(graph))
            if call is not None:
                return boxed(call)
        compiled = self._fallback.part(graph, inputs, **how)
        if program is None or record is None:
            return Answer(compiled, found)

        def first(args: Sequence[Any]) -> Call | None:
            call = self._desk.kernel(found, program, unboxed(compiled)) if record(args) else None
            return boxed(call) if call is not None else None

        return Answer(compiled, found, first)

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
