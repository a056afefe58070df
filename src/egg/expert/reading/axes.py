"""What a graph knows of an axis that was varied: whether its sizes are its own, and its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from egg.evaluator.task.dimensions import Axis, Place
from egg.expert.graph import Graph, Origin, Value
from egg.expert.sizes import Size


def is_batch(axis: Axis) -> bool:
    """A dimension of 1 is a column or is repeated, and belongs to the structure, unless it is a batch."""
    return all(place.dim == 0 for place in axis.places)


def is_separate(graph: Graph, axis: Axis) -> bool:
    """Whether the graph knows an axis by sizes that nothing else has a part in."""
    own = {symbol for place in axis.places for symbol in symbols_at(graph, place)}
    if not all(symbols_at(graph, place) for place in axis.places):
        return False
    places = set(axis.places)
    foreign = {
        symbol
        for path, name in graph.places
        if name is not None
        for dim, size in enumerate(graph.value(name).shape)
        if Place(path, dim) not in places
        for symbol in size.factors
    }
    foreign |= {
        symbol
        for value in graph.values.values()
        if value.origin in (Origin.PARAMETER, Origin.CONSTANT)
        for size in value.shape
        for symbol in size.factors
    }
    return own.isdisjoint(foreign)


def has_both_parities(graph: Graph, axis: Axis) -> bool:
    """Whether an axis was captured at odd and at even sizes, where it has both: what rounds a size to an even
    one (twice the result of a stride of two) passes for that size at even ones."""
    values = {value % 2 for place in axis.places for value in size_at(graph, place).values}
    return len(values) == 2 or axis.step % 2 == 0


def symbols_at(graph: Graph, place: Place) -> tuple[Any, ...]:
    return size_at(graph, place).factors


def size_at(graph: Graph, place: Place) -> Size:
    name = dict(graph.places)[place.path]
    assert name is not None
    return graph.value(name).shape[place.dim]


def still_fixed(graph: Graph, fixed: Mapping[str, int]) -> dict[str, int]:
    """Integers of the source that the graph takes for constants: those that some leaf shows as a number."""
    shown = {size.number for v in _leaves(graph) for size in v.shape if not size.factors}
    return {name: value for name, value in fixed.items() if value in shown or not _shown_at_all(graph, value)}


def _shown_at_all(graph: Graph, value: int) -> bool:
    return any(size.value == value for v in _leaves(graph) for size in v.shape)


def _leaves(graph: Graph) -> Iterator[Value]:
    return (v for v in graph.values.values() if v.origin is not Origin.NODE)
