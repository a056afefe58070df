"""The methods of a ``ModelNew`` that replays its launches as a CUDA graph.

A graph holds addresses, not values. Callers hand over inputs in the same few places again and again, and
PyTorch's allocator gives results the same few places (:mod:`egg.expert.writing.replay_results`). So a graph
is recorded for places of inputs and results that come a second time. Weights are read in place, and all
graphs are made anew when one of them lies elsewhere (:mod:`egg.expert.writing.replay_weights`). What a graph
has no address for is part of what it is found by: shapes and strides, numbers among the arguments, numbers at
``self``.

Places that are new, or more than are kept, are served in one of two ways (:class:`Elsewhere`): the launches
are made one by one, or, where that takes longer than copies, inputs are copied to where one graph reads them
and its results are copied out. The first call with given shapes makes the launches one by one, which compiles
every kernel; a recording runs nothing. So every call runs every kernel once: statistics and counters move as
they would without a graph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from egg.expert.graph import Graph
from egg.expert.nesting import PLAIN, places, whole_text
from egg.expert.reading.held import input_values
from egg.expert.writing.constructor import Constructor
from egg.expert.writing.domain import follows_inputs
from egg.expert.writing.layout import laid_out
from egg.expert.writing.parameters import Parameters
from egg.expert.writing.replay import Elsewhere
from egg.expert.writing.replay_results import Placed, computed, handed_back, with_argument
from egg.expert.writing.replay_weights import addresses_method

OWN_NAMES = ("launches", "recording", "addresses", "recorded_for", "recorded", "missed",
             "copying", "copied", "filled")  # fmt: skip
"""Attributes of the class; a task that has one of them itself is not replayed."""
SIGNATURES, GRAPHS, MISSES = 16, 32, 256
"""Signatures of calls that are kept, graphs of each, and calls without a graph until its graphs are dropped:
a caller who has moved on."""
FEW_MISSES = 8
"""Calls without a graph from which on copies are thought to pay."""


def unfit(built: Constructor) -> str | None:
    """What keeps the methods out of the task's class."""
    if taken := re.search(rf"\b({'|'.join(OWN_NAMES)})\b", built.model):
        return f"the task has a name {taken[0]} of its own"
    return None


@dataclass(frozen=True)
class _Call:
    """How ``forward`` hands its arguments on."""

    arguments: tuple[str, ...]
    """All of them, in order."""
    whole: tuple[str, ...]
    """The same, ``*rest`` as it came."""
    tensors: tuple[str, ...]
    """Every tensor among them, or in them."""
    numbers: tuple[str, ...]
    """What decides about the launches beside tensors."""

    @classmethod
    def of(cls, graph: Graph, header: str) -> _Call:
        given = Parameters.of(graph, header)
        free = [value.name for value in graph.usage.values if value.free]
        attributes = [text for text in graph.symbols.values() if re.fullmatch(r"self(\.[A-Za-z_]\w*)+", text)]
        tensors = tuple(value.path for value in input_values(graph))
        return cls(given.names, given.whole, tensors, tuple(dict.fromkeys((*free, *attributes))))


def replaying(
    graph: Graph, guard: Sequence[str], launches: Placed, header: str, seen: str, elsewhere: Elsewhere
) -> list[str]:
    """The class's attributes and methods; ``seen``: what the guard calls the signature of a call."""
    call = _Call.of(graph, header)
    if call.arguments[: len(call.tensors)] != call.tensors:
        elsewhere = Elsewhere.LAUNCHED
    plain = _launches_header(Parameters.of(graph, header), header, launches.into)
    copying, mixed = elsewhere is Elsewhere.COPIED, len(launches.written) < len(computed(graph))
    kept = ["recorded_for", *["copying"] * copying]
    return [
        *(f"    {name} = None" for name in kept),
        "    recorded = {}",
        "    missed = 0",
        "",
        *laid_out(header, 4),
        *_DOCSTRING.split("\n"),
        *guard,
        *_forward(graph, call, launches, seen, copying),
        "",
        *_RECORDING.replace("BODY", _filled(graph, launches)).split("\n"),
        "",
        *(_FILLING.format(into=launches.into, row=_row(graph, "made")).split("\n") if mixed else []),
        *(_copying(graph, launches).split("\n") if copying else []),
        *addresses_method(graph),
        "",
        *laid_out(plain, 4),
        *launches.lines,
    ]


def _launches_header(given: Parameters, header: str, into: str) -> str:
    """That of ``forward`` with memory for results, under another name. Where ``forward`` unpacks arguments,
    or has some by keyword alone, all of them come by position."""
    if not given.plain:
        return f"def launches(self, {', '.join((*given.names, f'{into}=None'))}):"
    return re.sub(r"\bforward\b", "launches", with_argument(header, f"{into}=None"), count=1)


_DOCSTRING = '''\
        """The launches: one by one at first, then recorded as a CUDA graph and replayed.

        A graph is for these shapes, for inputs and results in these places, and for weights that stay
        where they are (new values count). Results are new tensors in every call.
        Graphs cannot be copied: to copy the module, load its state_dict into a new one.
        """'''


# -- forward -------------------------------------------------------------------------------------------


def _forward(graph: Graph, call: _Call, launches: Placed, seen: str, copying: bool) -> list[str]:
    """Behind the guard. The arguments' own names come first and once: they may be any of those used here."""
    given, tensors = (_tuple_text(names) for names in (call.arguments, call.tensors))
    apart = given != tensors
    tensor = "tensors" if apart else "inputs"
    strides = () if follows_inputs(graph) else (f"{name}.stride()" for name in call.tensors)
    signature = (seen, *call.numbers, *strides)
    whole = len(launches.written) == len(computed(graph))
    stride = "t.stride()" if whole else "torch.empty_like(t).stride()"
    before = [
        f"if not {call.tensors[0]}.is_cuda or torch.cuda.is_current_stream_capturing():",
        f"    return self.launches({', '.join(call.whole)})",
        f"signature = {signature[0] if len(signature) == 1 else _tuple_text(signature)}",
        f"inputs, tensors = {given}, {tensors}" if apart else f"inputs = {given}",
        f"if self.recorded_for != self.addresses() or len(self.recorded) > {SIGNATURES}:",
        "    self.recorded_for, self.recorded = None, {}",
        *(["    self.copying = {}"] if copying else []),
        "known = self.recorded.get(signature)",
        "if known is None:",
        "    results = self.launches(*inputs)  # compiles the kernels",
        "    self.recorded_for = self.addresses()",
        f"    row = {_row(graph, 'results')}",
        f"    forms = [(t.shape, {stride}, t.dtype, t.device) for t in row]",
        "    self.recorded[signature] = forms, {}",
        "    return results",
        "forms, graphs = known",
    ]
    behind = [
        f"places = tuple([t.data_ptr() for t in (*{tensor}, *results)])",
        "graph = graphs.get(places)",
        "if graph is None:",
        "    graph = self.recording(graphs, places, inputs, results)",
        "if graph is None:",
        f"    {'self.copied(signature, inputs, results)' if copying else _filled(graph, launches)}",
        "else:",
        "    graph.replay()",
        f"return {_whole(graph, 'results')}",
    ]
    return [*laid_out("\n".join(before), 8), *_RESULTS.split("\n"), *laid_out("\n".join(behind), 8)]


_RESULTS = """\
        results = [
            torch.empty_strided(shape, stride, dtype=dtype, device=device)
            for shape, stride, dtype, device in forms
        ]"""


def _tuple_text(names: Sequence[str]) -> str:
    return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


def _row(graph: Graph, results: str) -> str:
    """The results that are computed in a row, of what ``launches`` returned."""
    if graph.form == "tensor":
        return f"[{results}]"
    if graph.form in PLAIN and not handed_back(graph):
        return results
    where = places(graph.form, len(graph.results))
    return _tuple_text([f"{results}{where[order]}" for order in computed(graph)])


def _whole(graph: Graph, results: str) -> str:
    """The results in their form, of a list of those that are computed; the others are arguments."""
    if not handed_back(graph) and graph.form in ("list", "tuple"):
        return results if graph.form == "list" else f"tuple({results})"
    texts = [graph.value(str(name)).path for name in graph.results]
    for at, order in enumerate(computed(graph)):
        texts[order] = f"{results}[{at}]"
    return whole_text(graph.form, texts)


# -- recording -----------------------------------------------------------------------------------------


def _filled(graph: Graph, launches: Placed) -> str:
    """The launches, with results in memory that is there."""
    if len(launches.written) < len(computed(graph)):
        return "self.filled(inputs, results)"
    return f"self.launches(*inputs, {launches.into}=results)"


_FILLING = '''\
    def filled(self, inputs, results):
        """The launches, with their results in these tensors."""
        made = self.launches(*inputs, {into}=results)
        for result, own in zip(results, {row}):
            if own is not result:
                result.copy_(own)
'''
_RECORDING = f'''\
    def recording(self, graphs, places, inputs, results):
        """A graph of the launches that reads and writes these places; nothing runs.

        ``None`` for places that are new, or more than are kept. Most callers come with the same ones again,
        and results lie where earlier ones lay that were let go.
        """
        kept = [graph for graph in graphs.values() if graph is not None]
        if places not in graphs or len(kept) >= {GRAPHS}:
            self.missed += 1
            if self.missed > {MISSES}:  # the caller has moved on
                graphs.clear()
                self.missed = 0
            graphs[places] = None
            return None
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=kept[0].pool() if kept else None):
            BODY
        graphs[places], self.missed = graph, 0
        return graph'''


def _copying(graph: Graph, launches: Placed) -> str:
    return _COPYING.format(
        count=len(graph.arguments), few=FEW_MISSES, filled=_filled(graph, launches), row=_row(graph, "made")
    )


_COPYING = '''\
    def copied(self, signature, inputs, results):
        """The launches, for places that have no graph: one graph reads copies, and its results are copied."""
        if self.missed < {few} or any(t.data_ptr() % 16 for t in inputs[:{count}]):
            {filled}  # the graph's own memory is aligned: other kernels
            return
        if signature not in self.copying:
            graph, fixed = torch.cuda.CUDAGraph(), [torch.empty_like(t) for t in inputs[:{count}]]
            with torch.cuda.graph(graph):
                made = self.launches(*fixed)
            self.copying[signature] = graph, fixed, {row}
        graph, fixed, made = self.copying[signature]
        for own, given in zip(fixed, inputs):
            own.copy_(given)
        graph.replay()
        for result, own in zip(results, made):
            result.copy_(own)
'''
