"""Layers of a forward or backward graph of AOTAutograd: recorded once, answered by one kernel for all.

What goes into a layer is computed by the graph around it, so its values do not follow from a call's
arguments alone. The first call of a graph with layers that the store does not have computes them once more,
eagerly, up to the first layer of each kind (:mod:`egg.modules.probing`); tasks are written from them.

On a GPU the first calls decide whether the graph is faster with the kernels than without
(:mod:`egg.modules.trial`). The other graph of the step relies on the strides of what is kept between them, so
both forms must return the same ones; otherwise the graph stays as Inductor compiles it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext

from egg.modules.aot import read_functional
from egg.modules.counts import Call
from egg.modules.fallback import Fallback, unboxed
from egg.modules.graph_text import graph_text
from egg.modules.layer_calls import Layer, replaced
from egg.modules.lookup import Graph, Lookup, store_errors
from egg.modules.probing import Probe
from egg.modules.regions import Region
from egg.modules.trial import KERNELS, PLAIN, Trial, Verdict
from egg.store import Assembly, assembly_name

Record = Callable[[Sequence[Any]], bool]


@dataclass
class Found:
    """What the store has for the layers of one graph."""

    whole: Graph
    rows: list[Graph]
    """Of the kinds of layers."""
    plain: list[Graph] = field(default_factory=list)
    """Rows of what no kernel answers."""
    table: dict[str, Layer] = field(default_factory=dict)
    placed: list[tuple[Region, str]] = field(default_factory=list)
    waiting: list[tuple[Region, Record]] = field(default_factory=list)
    """Layers that are not in the store yet, with what records them."""


def look_up(regions: Sequence[Region], part: str, lookup: Lookup) -> Found:
    """Look up every kind of layer."""
    kinds: dict[str, list[Region]] = {}
    for region in regions:
        kinds.setdefault(region.text, []).append(region)
    found = Found(Graph("layers", f"{len(regions)} layers of {len(kinds)} kinds", part=part), [])
    lookup.rows.append(found.whole)
    found.plain.append(found.whole)
    for kind in kinds.values():
        first = kind[0]
        row, program, record = lookup.look_up_functional(
            partial(read_functional, first.module), part, len(kind)
        )
        found.rows.append(row)
        call = None
        if program is not None and record is None:
            call = lookup.kernel(row, program, first.module.forward)
        if call is not None:
            found.table[row.key] = Layer.of(first, call)
            found.placed += [(region, row.key) for region in kind]
            continue
        found.plain.append(row)
        if record is not None:
            found.waiting.append((first, record))
    return found


class LayeredPart:
    """Answers the calls of a graph with layers; its arguments are given as a list, which the call empties."""

    def __init__(
        self,
        graph: fx.GraphModule,
        inputs: Sequence[Any],
        found: Found,
        lookup: Lookup,
        fallback: Fallback,
        how: dict[str, Any],
    ) -> None:
        self._found, self._lookup = found, lookup
        self._probe = Probe(graph, [region for region, _ in found.waiting]) if found.waiting else None
        self._chosen: Call | None = None
        self._trial: Trial | None = None
        self._boxed_call = True  # of the object itself: PyTorch's wrappers copy its attributes
        self._choose(graph, inputs, fallback, how)

    def __call__(self, args: list[Any]) -> Any:
        if self._probe is not None:
            self._record(args)
        for row in self._found.plain:
            row.counts.fallback += row.places
        if self._chosen is not None:
            return self._chosen(args)
        given = tuple(args)
        args.clear()
        assert self._trial is not None
        return self._trial(*given)

    def _choose(
        self, graph: fx.GraphModule, inputs: Sequence[Any], fallback: Fallback, how: dict[str, Any]
    ) -> None:
        """Compile the form that the store knows to be faster, or both."""
        found, store = self._found, self._lookup.store
        if not found.table:
            self._chosen = fallback.part(graph, inputs, **how)
            return
        name = assembly_name(graph_text(graph.graph), sorted(found.table))
        known = store.assembly(name)
        with_kernels = replaced(graph, found.placed, found.table)
        if known is not None or not any(isinstance(v, torch.Tensor) and v.is_cuda for v in inputs):
            kernels = known is None or known.faster
            self._chosen = fallback.part(with_kernels if kernels else graph, inputs, **how)
            return
        other, strides = _compiled(fallback, with_kernels, inputs, how)
        plain, usual = _compiled(fallback, graph, inputs, how)
        if strides != usual:
            found.whole.reason += "; with kernels what is kept would have other strides"
            self._chosen = plain
            return
        boxed = {PLAIN: plain, KERNELS: other}

        def decided(verdict: Verdict) -> None:
            form, ratio = verdict.form, verdict.ratio
            found.whole.reason += f"; {form}: {ratio:.2f}x of Inductor's"
            self._chosen = boxed[form]
            with store_errors(self._lookup.notice):
                store.assembled(name, Assembly(form.kernels, ratio, tuple(sorted(found.table))))

        self._trial = Trial({form: unboxed(call) for form, call in boxed.items()}, decided)

    def _record(self, args: Sequence[Any]) -> None:
        """Write the tasks of the layers that the store does not have, from the values of this call."""
        assert self._probe is not None
        taken, self._probe = self._probe, None
        try:
            values = taken.values(args)
        except torch.OutOfMemoryError:
            self._lookup.notice("there was no memory to look at the values inside a graph that trains")
            return
        for (_, record), found in zip(self._found.waiting, values, strict=True):
            record(found)


def _compiled(
    fallback: Fallback, graph: fx.GraphModule, inputs: Sequence[Any], how: dict[str, Any]
) -> tuple[Call, Any]:
    """The graph compiled, and the strides of its results as Inductor reports them to AOTAutograd."""
    context = TracingContext.try_get()
    reported = context.output_strides if context is not None else None
    if reported is not None:
        reported.clear()
    return fallback.part(graph, inputs, **how), list(reported or ())
