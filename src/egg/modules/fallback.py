"""What answers a graph that has no kernel: Inductor as ``torch.compile`` calls it, or another backend.

Inductor is asked at once for a graph without a kernel, in Dynamo's own context. For one with a kernel it is
asked at the first call that needs it, so a program whose kernels are known does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from egg.core.errors import UsageError

INDUCTOR, EAGER = "inductor", "eager"


@dataclass(frozen=True)
class Fallback:
    """Another backend, with what the caller of ``torch.compile`` gave for it."""

    name: str
    mode: str | None
    options: Mapping[str, Any]
    notice: Callable[[str], None]

    def now(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The graph compiled; called by Dynamo within a backend."""
        if self.name == INDUCTOR:
            return self._inductor(graph, list(inputs))
        if self.mode is not None or self.options:
            given = ", ".join([*(["mode"] if self.mode is not None else []), *self.options])
            raise UsageError(f"the fallback {self.name} takes no {given}", "leave it out")
        from torch._dynamo.backends.registry import lookup_backend

        return lookup_backend(self.name)(graph, list(inputs))

    def later(self, graph: fx.GraphModule) -> Callable[..., Any]:
        """The graph, compiled when it is first called."""
        if self.name == EAGER:
            return graph.forward
        return torch.compile(graph, backend=self.now)

    def _inductor(self, graph: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        from torch._inductor import exc

        wrapped: Any = torch._TorchCompileInductorWrapper(self.mode or "default", dict(self.options), None)
        unable = tuple(
            found for name in ("InvalidCxxCompiler", "TritonMissing") if (found := getattr(exc, name, None))
        )
        try:
            return wrapped(graph, inputs)
        except Exception as error:
            cause = getattr(error, "inner_exception", error)
            if not isinstance(cause, unable):
                raise
            self.notice(f"Inductor cannot run here ({type(cause).__name__}): graphs run eagerly")
            return graph.forward
