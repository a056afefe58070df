"""The graph that Dynamo hands to a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def recorded(function: Callable[..., Any], *inputs: Any) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """The graph of ``function`` at ``inputs`` and the tensors that its placeholders were filled with."""
    found: list[tuple[fx.GraphModule, list[torch.Tensor]]] = []

    def backend(graph: fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        found.append((graph, examples))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    (only,) = found
    return only
