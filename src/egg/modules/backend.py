"""``torch.compile(model, backend="egg")``: verified kernels where the store has them, Inductor elsewhere.

Every graph that Dynamo captures takes one of these routes, and is counted under it with the reason:

- ``kernel``: the store has a verified kernel that is faster than torch's own; calls outside of its domain go
  to the fallback.
- ``recorded``: the store had no kernel for it. It goes to the fallback unchanged, and the store has it for
  ``egg tune``.
- ``rejected``: tuning found no kernel for it that is faster. On a GPU its first calls decide whether it is
  faster as a CUDA graph.
- ``training``: something in it requires a gradient, and the fallback is one that derives the backward by
  itself. Otherwise the forward and the backward graph of AOTAutograd each take one of these routes
  (:mod:`egg.modules.training`).
- ``layers``: a large graph in which layers repeat. Each kind of layer is recorded, or answered by its kernel,
  under a row of its own; the rest of the graph goes to the fallback. On a GPU the first calls of the whole
  graph decide whether it is faster with the kernels than without, and as a CUDA graph
  (:mod:`egg.modules.trial`).
- ``left``: no kernel could stand for it (:class:`egg.modules.fake_run.Unsuitable`), or the store cannot be
  used.

Nothing here compiles a kernel or waits for a tuning, unless ``options={"tune": True}`` asks for one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import fx

from egg.modules.dynamo import read
from egg.modules.fake_run import Unsuitable
from egg.modules.fallback import Fallback
from egg.modules.graph_text import graph_text
from egg.modules.layer_calls import Layer, replaced
from egg.modules.lookup import Graph, Lookup, Options, counting, store_errors
from egg.modules.probing import Probe
from egg.modules.regions import Region, layers
from egg.modules.stored_kernel import Call
from egg.modules.training import Training
from egg.modules.trial import FORMS, Form, Trial, owned
from egg.store import Assembly, Store, assembly_name, store_folder

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
        regions = self._regions(graph)
        if regions:
            return self._layered(graph, inputs, regions, lookup, fallback)
        found, program = lookup.look_up(lambda: read(graph, inputs))
        call = lookup.kernel(found, program, fallback.later(graph)) if program is not None else None
        if call is None and found.route == "rejected":
            whole = Whole(graph, inputs, {}, {}, [found.key], [found])
            return self._assembled(whole, lookup, fallback)
        return call or counting(fallback.now(graph, inputs), [found])

    def stats(self) -> list[dict[str, Any]]:
        """One row for each graph: its route, why, its key, and how its calls were answered."""
        return [asdict(graph) for graph in self.graphs]

    def reset(self) -> None:
        """Forget what was counted; graphs that are compiled go on as they are."""
        self.graphs.clear()
        self._noticed.clear()

    # -- routes ------------------------------------------------------------------------------------

    def _regions(self, graph: fx.GraphModule) -> tuple[Region, ...]:
        try:
            return layers(graph)
        except Exception as error:  # as below: the graph is looked at as a whole
            self._notice(f"internal error: {type(error).__name__}: {error}; please report it")
            return ()

    def _trained(
        self, graph: fx.GraphModule, inputs: Sequence[Any], lookup: Lookup, fallback: Fallback
    ) -> Call:
        if fallback.has_parts:
            return Training(lookup, fallback).compiled(graph, inputs)
        self.graphs.append(Graph("training", f"{fallback.name} compiles forward and backward as one"))
        return counting(fallback.now(graph, inputs), self.graphs[-1:])

    def _layered(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        regions: Sequence[Region],
        lookup: Lookup,
        fallback: Fallback,
    ) -> Call:
        """A graph whose layers repeat: kernels for those that have one, within the graph as it is."""
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        given = dict(zip(placeholders, inputs, strict=True))
        kinds: dict[str, list[Region]] = {}
        for region in regions:
            kinds.setdefault(region.text, []).append(region)
        whole = Graph("layers", f"{len(regions)} layers of {len(kinds)} kinds")
        self.graphs.append(whole)
        table: dict[str, Layer] = {}
        placed: dict[Region, str] = {}
        plain, keys = [whole], []
        for kind in kinds.values():
            first = kind[0]
            reading = partial(read, first.module, first.examples(given), later=True)
            found, program = lookup.look_up(reading, len(kind), partial(_values, graph, first, inputs))
            keys += [found.key] if found.route in ("kernel", "rejected") else []
            call = lookup.kernel(found, program, first.module.forward) if program is not None else None
            if call is None or program is None:
                plain.append(found)
                continue
            table[found.key] = Layer.of(first, call)
            placed |= dict.fromkeys(kind, found.key)
        if not keys:
            return counting(fallback.now(graph, inputs), plain)
        return self._assembled(Whole(graph, inputs, placed, table, keys, plain), lookup, fallback)

    def _assembled(self, whole: Whole, lookup: Lookup, fallback: Fallback) -> Call:
        """A graph that was tuned, in the form that was found fastest; the first calls find that out."""
        store, row = lookup.store, whole.rows[0]
        replays = lookup.chosen.replay and fallback.replays and whole.fixed
        forms = [form for form in whole.forms if replays or not form.replayed]
        name = assembly_name(graph_text(whole.graph), sorted(whole.keys))
        known = store.assembly(name)
        if known is not None and (known.replayed is not None or not replays):
            form = Form(known.faster and bool(whole.table), bool(known.replayed) and replays)
            row.reason += _verdict(form, known.ratio)
            return counting(whole.compiled(form, fallback), whole.rows)
        if len(forms) == 1 or not any(_on_gpu(value) for value in whole.inputs):
            return counting(whole.compiled(Form(kernels=bool(whole.table)), fallback), whole.rows)

        def decided(form: Form, ratio: float) -> None:
            row.reason += _verdict(form, ratio)
            tried = form.replayed if replays else None
            with store_errors(self._notice):
                store.assembled(name, Assembly(form.kernels, ratio, tuple(sorted(whole.table)), tried))

        trial = Trial({form: whole.compiled(form, fallback) for form in forms}, decided)
        return counting(trial, whole.rows)

    def _notice(self, text: str) -> None:
        """Say a thing once."""
        if text not in self._noticed:
            self._noticed.add(text)
            log.warning("%s", text)


@dataclass(frozen=True)
class Whole:
    """A graph of Dynamo, and the kernels of the store for layers of it."""

    graph: fx.GraphModule
    inputs: Sequence[Any]
    placed: Mapping[Region, str]
    """The key of the kernel for every layer that has one."""
    table: Mapping[str, Layer]
    keys: Sequence[str]
    """Of all entries that were tuned."""
    rows: Sequence[Graph]
    """Of what the fallback answers."""

    @property
    def fixed(self) -> bool:
        """Whether all its sizes are known."""
        return not any(isinstance(value, torch.SymInt) for value in self.inputs)

    @property
    def forms(self) -> list[Form]:
        return [form for form in FORMS if self.table or not form.kernels]

    def compiled(self, form: Form, fallback: Fallback) -> Call:
        if form.replayed:
            return owned(fallback.replayed(self.graph, self.inputs))
        graph = replaced(self.graph, list(self.placed.items()), self.table) if form.kernels else self.graph
        return fallback.now(graph, self.inputs)


def _values(graph: fx.GraphModule, layer: Region, inputs: Sequence[Any]) -> list[Any]:
    """What goes into a layer at a call of the graph."""
    try:
        (found,) = Probe(graph, [layer]).values(inputs)
    except torch.OutOfMemoryError:
        raise Unsuitable("there is no memory to compute what goes into it") from None
    return found


def _verdict(form: Form, ratio: float) -> str:
    return f"; {form}: {ratio:.2f}x of Inductor's"


def _on_gpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_cuda


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


backend = Backend()
"""What the entry point ``egg`` of ``torch_dynamo_backends`` names."""
