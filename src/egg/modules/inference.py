"""A graph that infers: kernels for the layers that repeat in it or for the whole, Inductor elsewhere.

The first process that meets a large graph searches it for layers, reads each kind of them as a task, and the
store keeps what it found (:mod:`egg.modules.outlines`). Later processes find it there by a hash, and read no
more than they need: nothing where the verdict on the whole graph is a form without kernels, the layers that
have a kernel otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from egg.modules.counts import Call
from egg.modules.dynamo import MOST_WHOLE, Program, read
from egg.modules.fake_run import NoMemory, Unsuitable
from egg.modules.fallback import Fallback
from egg.modules.lookup import Graph, Lookup, counting, store_errors
from egg.modules.outlines import outline_name
from egg.modules.replayable import Inputs
from egg.modules.whole import Kernels, Whole, replay_inputs
from egg.store import Kind, Outline

if TYPE_CHECKING:
    from egg.modules.regions import Region


@dataclass(frozen=True)
class Layers:
    """Layers that one task stands for."""

    row: Graph
    regions: Sequence[Region] = ()
    """None where no kernel answers them."""
    program: Program | None = None


class Inference:
    """Compiles one graph of Dynamo that infers."""

    def __init__(
        self, graph: fx.GraphModule, inputs: Sequence[Any], lookup: Lookup, fallback: Fallback
    ) -> None:
        self._graph, self._inputs, self._lookup, self._fallback = graph, inputs, lookup, fallback
        self._name = ""

    def compiled(self) -> Call:
        answering = None
        with self._lookup.named(Graph("left")):
            answering = self._remembered()
        return answering() if answering is not None else self._searched()

    # -- what an earlier process found -------------------------------------------------------------

    def _remembered(self) -> Callable[[], Call] | None:
        """What makes the answer to the graph, where the store has its outline. Nothing is compiled here."""
        calls = sum(node.op in ("call_function", "call_method") for node in self._graph.graph.nodes)
        if calls <= MOST_WHOLE:
            return None
        chosen = self._lookup.chosen
        replays = chosen.replay and self._fallback.replays
        self._name = outline_name(self._graph, self._inputs, [chosen.library_calls, str(replays)])
        outline = self._lookup.store.outline(self._name) if self._name else None
        rows = self._lookup.outlined(outline) if outline is not None else None
        if outline is None or rows is None:
            return None
        replay = self._replay(outline)
        if not outline.layered:
            (row,) = rows
            if row.route == "kernel":
                return self._one_task
            self._lookup.count(rows)
            return partial(self._without_kernel, row, replay)
        whole = self._whole(_layers_row(outline.kinds), rows, replay)
        kinds = [Layers(row) for row in rows]
        if whole.with_kernels:
            kinds = [self._cut(row, kind) for row, kind in zip(rows, outline.kinds, strict=True)]
        self._lookup.rows.append(whole.rows[0])
        self._lookup.count(rows)
        return partial(self._assembled, whole, kinds)

    def _cut(self, row: Graph, kind: Kind) -> Layers:
        """The layers of a kind, read where a kernel answers them.

        Raises :class:`Unsuitable` where they are not those of the entry.
        """
        if row.route != "kernel":
            return Layers(row)
        from egg.modules.regions import layers_at

        regions = layers_at(self._graph, kind.spans)
        program = self._read(regions[0])
        if self._lookup.key(program) != row.key:
            raise Unsuitable("another layer begins and ends there")
        return Layers(row, regions, program)

    def _replay(self, outline: Outline) -> Inputs:
        known = Inputs(outline.fixed, outline.written, outline.obstacle)
        return replay_inputs(self._graph, self._inputs, self._lookup, self._fallback, known)

    # -- the search --------------------------------------------------------------------------------

    def _searched(self) -> Call:
        regions = self._regions()
        if not regions:
            return self._one_task()
        kinds: dict[str, list[Region]] = {}
        for region in regions:
            kinds.setdefault(region.text, []).append(region)
        row = Graph("layers", f"{len(regions)} layers of {len(kinds)} kinds")
        self._lookup.rows.append(row)
        replay = replay_inputs(self._graph, self._inputs, self._lookup, self._fallback)
        found = [self._looked_up(kind) for kind in kinds.values()]
        rows = [layers.row for layers in found]
        self._outline(rows, list(kinds.values()), replay)
        return self._assembled(self._whole(row, rows, replay), found)

    def _regions(self) -> tuple[Region, ...]:
        """The layers that repeat; a graph that cannot be searched is one task."""
        with self._lookup.named(Graph("left")):
            from egg.modules.regions import layers

            return layers(self._graph)
        return ()

    def _looked_up(self, kind: Sequence[Region]) -> Layers:
        first = kind[0]
        values = partial(_values, self._graph, first, self._inputs)
        row, program = self._lookup.look_up(partial(self._read, first), len(kind), values)
        return Layers(row, kind, program)

    def _read(self, region: Region) -> Program:
        placeholders = self._graph.graph.find_nodes(op="placeholder")
        given = dict(zip(placeholders, self._inputs, strict=True))
        return read(region.module, region.examples(given), later=True)

    def _outline(self, rows: Sequence[Graph], kinds: Sequence[Sequence[Region]], replay: Inputs) -> None:
        """Keep what was found, where a later process would find the same."""
        if not self._name or not all(row.settled for row in rows):
            return
        from egg.modules.regions import spans_of

        spans = [spans_of(self._graph, kind) for kind in kinds] or [()]
        found = [
            Kind(row.key, "" if row.key else row.reason, places)
            for row, places in zip(rows, spans, strict=True)
        ]
        outline = Outline(bool(kinds), tuple(found), replay.fixed, replay.written, replay.obstacle)
        with store_errors(self._lookup.notice):
            self._lookup.store.outlined(self._name, outline)

    # -- what answers the graph --------------------------------------------------------------------

    def _one_task(self) -> Call:
        """The graph as one task."""
        found, program = self._lookup.look_up(lambda: read(self._graph, self._inputs))
        call = None
        if program is not None:
            call = self._lookup.kernel(found, program, self._fallback.later(self._graph))
        if call is not None:
            return call
        replay = replay_inputs(self._graph, self._inputs, self._lookup, self._fallback)
        self._outline([found], [], replay)
        return self._without_kernel(found, replay)

    def _without_kernel(self, row: Graph, replay: Inputs) -> Call:
        if row.route != "rejected":
            return counting(self._fallback.now(self._graph, self._inputs), [row])
        return Whole(
            self._graph, self._inputs, [row.key], [], [row], replay, self._lookup, self._fallback
        ).call

    def _whole(self, whole: Graph, rows: Sequence[Graph], replay: Inputs) -> Whole:
        keys = [row.key for row in rows if row.route in ("kernel", "rejected")]
        available = [row.key for row in rows if row.route == "kernel"]
        plain = [whole, *(row for row in rows if row.route != "kernel")]
        return Whole(self._graph, self._inputs, keys, available, plain, replay, self._lookup, self._fallback)

    def _assembled(self, whole: Whole, kinds: Sequence[Layers]) -> Call:
        """Kernels for the layers that have one, within the graph as it is; none where it does without."""
        if not whole.keys and any(row.route == "recorded" for row in whole.rows):
            return counting(self._fallback.now(self._graph, self._inputs), whole.rows)
        if not whole.with_kernels:
            return whole.call
        kernels = self._kernels(kinds, direct=not whole.replay.obstacle)
        unloaded = [layers.row for layers in kinds if layers.program and layers.row not in kernels.rows]
        plain = [*whole.rows, *unloaded]
        return replace(whole, available=list(kernels.table), rows=plain, kernels=kernels).call

    def _kernels(self, kinds: Sequence[Layers], *, direct: bool) -> Kernels:
        """Load the kernels; the row of one that does not load takes another route."""
        from egg.modules.layer_calls import Layer

        table: dict[str, Layer] = {}
        placed: dict[Region, str] = {}
        rows: list[Graph] = []
        for layers in kinds:
            if layers.program is None:
                continue
            first, row = layers.regions[0], layers.row
            call = self._lookup.kernel(row, layers.program, first.module.forward, direct=direct)
            if call is not None:
                rows.append(row)
                table[row.key] = Layer.of(first, call)
                placed |= dict.fromkeys(layers.regions, row.key)
        return Kernels(placed, table, rows)


def _layers_row(kinds: Sequence[Kind]) -> Graph:
    return Graph("layers", f"{sum(len(kind.spans) for kind in kinds)} layers of {len(kinds)} kinds")


def _values(graph: fx.GraphModule, layer: Region, inputs: Sequence[Any]) -> list[Any]:
    """What goes into a layer at a call of the graph."""
    from egg.modules.probing import Probe

    try:
        (found,) = Probe(graph, [layer]).values(inputs)
    except torch.OutOfMemoryError:
        raise NoMemory("there is no memory to compute what goes into it") from None
    return found
