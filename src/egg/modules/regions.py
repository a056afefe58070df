"""Layers that repeat in a graph: each is a task of its own, and one kernel answers for all of them.

A whole model is too large for one task, and most of it is the same layer many times over.

- :func:`layers`: Dynamo marks every node with the modules whose calls it belongs to. The outermost calls
  whose nodes lie next to each other and whose graph occurs at least twice, with the same text and the same
  forms of inputs, are layers; the embedding, the head and whatever occurs once are left to the fallback.
- :func:`functional_layers`: graphs of AOTAutograd do not keep modules together, so their layers are blocks of
  equal operators (:mod:`egg.modules.repeats`). A block begins where the fewest values are handed on.

A layer that writes into a tensor that it is given (a decoder's cache) is cut at the writes
(:mod:`egg.modules.cuts`): what stands before and behind them are regions without side effects, each a task,
and the writes stay in the graph around them, done by the fallback at their place. So a kernel that fails
leaves no tensor half written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx

from egg.modules.cuts import left_out, pieces, value_of, written_arguments
from egg.modules.dynamo import MOST_WHOLE, role_of
from egg.modules.fake_run import Unsuitable
from egg.modules.graph_text import graph_text, target_name
from egg.modules.repeats import Run, runs

LEAST_NODES = 4
"""A layer of fewer calls is left to the fallback, which fuses it with its neighbours."""
LEAST_BLOCK = 10
"""Calls of a layer that is found by its operators: fewer may be alike by chance."""


@dataclass(frozen=True)
class Region:
    """Adjacent nodes of a graph, as a graph of their own."""

    nodes: tuple[fx.Node, ...]
    around: fx.GraphModule
    """What they are a part of; it holds their constants."""
    graph: fx.Graph
    arguments: tuple[fx.Node, ...]
    """The nodes that its placeholders stand for, in order."""
    outputs: tuple[fx.Node, ...]
    text: str
    """Equal for regions that one kernel answers."""
    left_out: frozenset[fx.Node] = frozenset()
    """Nodes that the graph around it computes, from arguments and outputs."""

    @cached_property
    def module(self) -> fx.GraphModule:
        """What computes the region. Python code is written for it, so it is made for one region of a kind."""
        return fx.GraphModule(self.around, self.graph)

    def examples(self, given: Mapping[fx.Node, Any]) -> list[Any]:
        """Of its placeholders: what the program passed, and fake tensors for what the graph computes."""
        return [given.get(node, value_of(node)) for node in self.arguments]


def layers(graph: fx.GraphModule) -> tuple[Region, ...]:
    """The layers that repeat, in the order of the graph; none in a small graph, or one with free sizes."""
    calls = _calls(graph)
    if not _layered(graph, calls):
        return ()
    return _Cutting(graph, calls).repeated(_spans(calls))


def layers_at(graph: fx.GraphModule, spans: Iterable[Sequence[int]]) -> tuple[Region, ...]:
    """The layers of :func:`layers` that begin and end at these places among the calls.

    Raises :class:`Unsuitable` where there is none: the places are those of another graph.
    """
    calls = _calls(graph)
    cutting = _Cutting(graph, calls)
    found = [cutting.cut(tuple(calls[start:stop]), apart=True) for start, stop in spans]
    if None in found:
        raise Unsuitable("no layer begins and ends there")
    return tuple(region for region in found if region is not None)


def spans_of(graph: fx.GraphModule, regions: Iterable[Region]) -> tuple[tuple[int, int], ...]:
    """Where layers begin and end among the calls of the graph."""
    places = {node: place for place, node in enumerate(_calls(graph))}
    return tuple((places[region.nodes[0]], places[region.nodes[-1]] + 1) for region in regions)


def functional_layers(graph: fx.GraphModule) -> tuple[Region, ...]:
    """As :func:`layers`, of a forward or backward graph of AOTAutograd."""
    calls = _calls(graph)
    if not _layered(graph, calls):
        return ()
    found = runs([_symbol(node) for node in calls], LEAST_BLOCK)
    return _Cutting(graph, calls).repeated(span for run in found for span in _blocks(calls, run))


def _calls(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op in ("call_function", "call_method")]


def _layered(graph: fx.GraphModule, calls: Sequence[fx.Node]) -> bool:
    return len(calls) > MOST_WHOLE and not any(
        isinstance(value_of(node), torch.SymInt) for node in graph.graph.nodes
    )


class _Cutting:
    """Cuts regions out of one graph."""

    def __init__(self, graph: fx.GraphModule, calls: Sequence[fx.Node]) -> None:
        self._graph = graph
        self._order = {node: place for place, node in enumerate(calls)}
        self._written = written_arguments(graph)

    def repeated(self, spans: Iterable[tuple[fx.Node, ...]]) -> tuple[Region, ...]:
        """Disjoint regions that occur at least twice, of spans in the order of preference."""
        found = [region for span in spans if (region := self.cut(span)) is not None]
        times = Counter(region.text for region in found)
        kinds: dict[str, list[Region]] = {}
        taken: set[fx.Node] = set()
        for region in found:
            if times[region.text] > 1 and taken.isdisjoint(region.nodes):
                kinds.setdefault(region.text, []).append(region)
                taken.update(region.nodes)
        refined = (region for kind in kinds.values() for region in self._refined(kind))
        return tuple(sorted(refined, key=lambda region: self._order[region.nodes[0]]))

    def _refined(self, kind: Sequence[Region]) -> Iterator[Region]:
        """What kernels may answer of regions of one kind, cut the same way in each."""
        for piece in pieces(kind[0].module):
            if len(piece) < LEAST_NODES:
                continue
            for region in kind:
                cut = self.cut(region.nodes[piece.start : piece.stop], apart=True)
                if cut is not None:
                    yield cut

    def cut(self, nodes: tuple[fx.Node, ...], *, apart: bool = False) -> Region | None:
        """A region; ``None`` where something else than tensors leaves it or enters it.

        ``apart``: nodes that hand on a view or a count are left out of it.
        """
        beside, inner, outputs = left_out(nodes) if apart else (frozenset(), nodes, _leaving(nodes))
        inside = set(inner)
        arguments = list(dict.fromkeys(a for node in inner for a in node.all_input_nodes if a not in inside))
        values: list[Any] = [value_of(node) for node in (*arguments, *outputs)]
        if not outputs or not all(isinstance(value, torch.Tensor) for value in values):
            return None
        new = fx.Graph()
        made: dict[fx.Node, fx.Node] = {}
        for place, node in enumerate(arguments):
            made[node] = new.placeholder(f"given{place}")
            known = node.op == "placeholder" and node not in self._written
            made[node].meta = dict(node.meta) if known else {}
            made[node].meta["example_value"] = made[node].meta["val"] = values[place]
        for node in inner:
            made[node] = new.node_copy(node, made.__getitem__)
            made[node].meta["example_value"] = value_of(node)
        new.output(tuple(made[node] for node in outputs))
        forms = [
            f"{role_of(made[node], value)} {value.dtype} {tuple(value.shape)} {value.stride()}"
            for node, value in zip(arguments, values, strict=False)
        ]
        text = "\n".join([graph_text(new), *forms])
        return Region(nodes, self._graph, new, tuple(arguments), outputs, text, beside)


def _spans(calls: Sequence[fx.Node]) -> Iterator[tuple[fx.Node, ...]]:
    """The nodes of each call of a module that lie next to each other, the outermost calls first."""
    members: dict[tuple[str, ...], list[int]] = {}
    for place, node in enumerate(calls):
        stack = tuple(node.meta.get("nn_module_stack") or ())
        for depth in range(1, len(stack) + 1):
            members.setdefault(stack[:depth], []).append(place)
    for path in sorted(members, key=len):
        places = members[path]
        if len(places) >= LEAST_NODES and places[-1] - places[0] + 1 == len(places):
            yield tuple(calls[places[0] : places[-1] + 1])


def _blocks(calls: Sequence[fx.Node], run: Run) -> Iterator[tuple[fx.Node, ...]]:
    """The blocks of a run, begun where the fewest values are handed on from one to the next."""
    place = {node: index for index, node in enumerate(calls)}

    def handed_on(offset: int) -> tuple[int, int]:
        border = run.start + offset + run.period
        before = [n for n in calls[run.start : border] if any(place.get(u, 0) >= border for u in n.users)]
        split = sum(not isinstance(value_of(node), torch.Tensor) for node in before)
        return len(before) + len(calls) * split, -len(run.blocks(offset))

    offset = min(range(run.period), key=handed_on)
    for begin, end in run.blocks(offset):
        yield tuple(calls[begin:end])


def _symbol(node: fx.Node) -> str:
    """An operator with its constants and the form of its result."""
    value = value_of(node)
    form = f"{value.dtype} {tuple(value.shape)} {value.stride()}" if isinstance(value, torch.Tensor) else ""
    constants = [str(item) for item in (*node.args, *node.kwargs.items()) if not _holds_nodes(item)]
    return f"{target_name(node.target)} {constants} {form}"


def _holds_nodes(item: Any) -> bool:
    if isinstance(item, list | tuple):
        return any(map(_holds_nodes, item))
    return isinstance(item, fx.Node)


def _leaving(nodes: Sequence[fx.Node]) -> tuple[fx.Node, ...]:
    inside = set(nodes)
    return tuple(node for node in nodes if any(user not in inside for user in node.users))
