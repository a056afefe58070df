"""Named sizes as small and as large as a caller may make them, beside those of the captures.

Index arithmetic drops a mask, a quotient or a piece of a concatenation where that is right at every known
size (:mod:`egg.expert.index`). Captures change a size by a little, so one may always have been smaller than
another and yet not be so in the next call. Therefore each size that the caller chooses is taken to both its
ends in turn, the others staying as they were, and what follows from it by a formula follows it there.

Nothing is captured anew: these are further columns of numbers in the same graph. The first column is still
that of the program's own sizes, at which all choices are taken that only matter for speed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from egg.expert.fusion.runtime_sizes import is_free
from egg.expert.fusion.shape_families import each_size
from egg.expert.graph import Graph
from egg.expert.reading.held import held_sizes
from egg.expert.sizes import Size, Symbol

LARGE = 2**20 + 7
"""Larger than whatever it may be compared with, and no multiple of anything."""
MOST = 12
"""Sizes that are taken to their ends."""


def widened(graph: Graph) -> Graph:
    """The graph with columns for both ends of every size that the caller chooses."""
    symbols = _symbols(graph)
    free = [name for name, text in graph.symbols.items() if name in symbols and _is_root(graph, text)]
    held = held_sizes(graph)
    ends = [
        column
        for name in [name for name in free if is_free(graph.symbols[name]) and name not in held][:MOST]
        for column in _ends(graph, symbols, name)
    ]
    if not ends:
        return graph
    wider = {
        name: Symbol(name, (*symbol.values, *(column[name] for column in ends)))
        for name, symbol in symbols.items()
    }

    def change(size: Size) -> Size:
        return Size(size.number, tuple(sorted(wider[symbol.name] for symbol in size.factors)))

    values = {
        name: replace(value, shape=tuple(map(change, value.shape)), stride=tuple(map(change, value.stride)))
        for name, value in graph.values.items()
    }
    nodes = tuple(replace(node, attributes=each_size(dict(node.attributes), change)) for node in graph.nodes)
    return replace(graph, values=values, nodes=nodes)


def _symbols(graph: Graph) -> dict[str, Symbol]:
    """Every named size that the graph mentions."""
    found: dict[str, Symbol] = {}

    def note(size: Size) -> Size:
        found.update((symbol.name, symbol) for symbol in size.factors)
        return size

    for value in graph.values.values():
        for size in (*value.shape, *value.stride):
            note(size)
    for node in graph.nodes:
        each_size(dict(node.attributes), note)
    return found


def _is_root(graph: Graph, text: str) -> bool:
    """Whether a size follows from no other one."""
    return "." in text or not any(name in text for name in graph.symbols)


def _ends(graph: Graph, symbols: Mapping[str, Symbol], name: str) -> Iterator[Mapping[str, Any]]:
    """The columns with a size at its smallest and at its largest."""
    least, own = max(1, graph.usage.least.get(name, 1)), min(symbols[name].values)
    smaller = [least, *(own // part for part in (8, 4, 2) if own // part > least)]
    for ways in (smaller, [LARGE]):
        columns = (_column(graph, symbols, name, value) for value in ways)
        yield from [column for column in columns if column is not None][:1]


def _column(graph: Graph, symbols: Mapping[str, Symbol], name: str, value: int) -> Mapping[str, Any] | None:
    """All sizes where one has a certain value; ``None`` where nothing would be left of another."""
    found: dict[str, Any] = {}
    for each, text in graph.symbols.items():
        if each == name:
            found[each] = value
        elif _is_root(graph, text):
            if each in symbols:
                found[each] = symbols[each].values[0]
        else:
            try:
                found[each] = eval(text, {"__builtins__": {"float": float, "max": max, "min": min}}, found)
            except (NameError, ZeroDivisionError):
                return None
    whole = (found.get(each) for each in symbols)
    sound = all(number is not None and (isinstance(number, float) or number != 0) for number in whole)
    kept = (
        all(
            found[each] > 0
            for each, symbol in symbols.items()
            if isinstance(found.get(each), int) and all(before > 0 for before in symbol.values)
        )
        if sound
        else False
    )
    return {each: found[each] for each in symbols} if kept else None
