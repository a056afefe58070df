"""``torch.compile(model, backend="egg")``: verified kernels where the store has them, Inductor elsewhere.

Every graph that Dynamo captures takes one of these routes, and is counted under it with the reason:

- ``kernel``: the store has a verified kernel that is faster than torch's own; calls outside of its domain go
  to the fallback.
- ``recorded``: the store had no kernel for it. It goes to the fallback unchanged, and the store has it for
  ``egg tune``.
- ``rejected``: tuning found no kernel for it that is faster. On a GPU its first calls decide whether it is
  faster operator by operator, or as a CUDA graph.
- ``training``: something in it requires a gradient, and the fallback is one that derives the backward by
  itself. Otherwise the forward and the backward graph of AOTAutograd each take one of these routes
  (:mod:`egg.modules.training`).
- ``layers``: a large graph in which layers repeat. Each kind of layer is recorded, or answered by its kernel,
  under a row of its own; the rest of the graph goes to the fallback. On a GPU the first calls of the whole
  graph decide in which form it is fastest: with the kernels or without, compiled by Inductor or operator by
  operator, as a CUDA graph or not (:mod:`egg.modules.trial`).
- ``left``: no kernel could stand for it (:class:`egg.modules.fake_run.Unsuitable`), or the store cannot be
  used.

Nothing here compiles a kernel or waits for a tuning, unless ``options={"tune": True}`` asks for one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import fx

from egg.modules.counts import Call
from egg.modules.fallback import Fallback
from egg.modules.inference import Inference
from egg.modules.lookup import Graph, Lookup, Options, counting
from egg.store import Store, store_folder

log = logging.getLogger("egg")


class Backend:
    """The backend of one process: a callable for Dynamo, and what became of every graph."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self._noticed: set[str] = set()

    def __call__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Call:
        chosen, others = Options.split(options)
        fallback = Fallback(chosen.fallback, mode, others, self._notice)
        store = Store(store_folder(chosen.store, os.environ), self._notice)
        lookup = Lookup(store, chosen, self.graphs, self._notice)
        if torch.is_grad_enabled() and any(_needs_gradient(value) for value in inputs):
            return self._trained(graph, inputs, lookup, fallback)
        return Inference(graph, inputs, lookup, fallback).compiled()

    def stats(self) -> list[dict[str, Any]]:
        """One row for each graph: its route, why, its key, and how its calls were answered."""
        return [asdict(graph) for graph in self.graphs]

    def reset(self) -> None:
        """Forget what was counted; graphs that are compiled go on as they are."""
        self.graphs.clear()
        self._noticed.clear()

    # -- routes ------------------------------------------------------------------------------------

    def _trained(
        self, graph: fx.GraphModule, inputs: Sequence[Any], lookup: Lookup, fallback: Fallback
    ) -> Call:
        if fallback.has_parts:
            from egg.modules.training import Training

            return Training(lookup, fallback).compiled(graph, inputs)
        self.graphs.append(Graph("training", f"{fallback.name} compiles forward and backward as one"))
        return counting(fallback.now(graph, inputs), self.graphs[-1:])

    def _notice(self, text: str) -> None:
        """Say a thing once."""
        if text not in self._noticed:
            self._noticed.add(text)
            log.warning("%s", text)


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


backend = Backend()
"""What the entry point ``egg`` of ``torch_dynamo_backends`` names."""
