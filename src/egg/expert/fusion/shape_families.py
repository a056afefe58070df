"""Groups that differ in nothing but numbers, in one graph that has names for these numbers.

The blocks of a network often differ in their channels alone, which are plain numbers of its source. Written
each for itself, every block has kernels of its own, with other numbers in the same text. So the groups of a
family are taken for captures of one small program at several sizes, and its numbers are named as those of a
whole program are (:mod:`egg.expert.reading.generalise`): what is written then holds for every group of the
family at every captured size. Decisions are still taken for one group at a time, whose numbers come first in
the graph it is written in: tile sizes may differ, and the text of kernels does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from egg.expert.emit.names import numbered
from egg.expert.fusion.local import ROLES, Names, local
from egg.expert.graph import Graph, Node, Origin
from egg.expert.parts import Group
from egg.expert.reading.generalise import named_together
from egg.expert.reading.variants import SIZED, same_structure
from egg.expert.sizes import Size, Symbol

FEWEST = 5
"""Groups that differ, at least: below that every group is better off with numbers of its own."""
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Member:
    """A group in the graph of its family, its own numbers first."""

    graph: Graph
    group: Group
    sizes: Mapping[str, str]
    """How the program spells each named size of that graph for this group."""


def same_but_for_sizes(graph: Graph, nodes: Sequence[Node]) -> Any:
    """Equal for groups of a family that may be one program: what is no size is the same."""
    held: list[Any] = []
    for node in nodes:
        fixed = {key: repr(node.attributes[key]) for key in sorted(node.attributes.keys() - SIZED)}
        held.append((node.op, tuple(fixed.items())))
        for name in (*node.inputs, *node.outputs):
            if name is not None:
                value = graph.value(name)
                ones = tuple(all(v == 1 for v in size.values) for size in value.shape)
                held.append((value.dtype, value.origin is Origin.NODE, ones, value.contiguous, value.lent))
        if node.op == "conv":
            held.append(tuple(size.values for size in graph.value(str(node.inputs[1])).shape[2:]))
    return tuple(held)


def members(
    graph: Graph, groups: Sequence[Group], names: Sequence[Names], scenarios: int
) -> list[Member] | None:
    """The groups of a family in one graph; ``None`` where no rule is found for some number of theirs."""
    locals_ = [local(graph, group, named) for group, named in zip(groups, names, strict=True)]
    plain = [_at(one.graph, scenario) for one in locals_ for scenario in range(scenarios)]
    if not all(same_structure(plain[0], other) for other in plain):
        return None
    together = named_together(plain, _roles(graph, names, plain))
    if together is None:
        return None
    found = []
    for place, (one, named) in enumerate(zip(locals_, names, strict=True)):
        sizes = _spelled(graph, together, named)
        if sizes is None:
            return None
        order = [
            *range(place * scenarios, (place + 1) * scenarios),
            *range(place * scenarios),
            *range((place + 1) * scenarios, len(plain)),
        ]
        own = _mapped(together, _reordered(order))
        found.append(Member(own, Group(one.group.name, own.nodes, one.group.pattern), sizes))
    return found


def _at(graph: Graph, scenario: int) -> Graph:
    """With plain numbers: those of one captured size."""

    def number(size: Size) -> Any:
        return size.values[scenario if len(size.values) > 1 else 0]

    values = {
        name: replace(
            value,
            shape=tuple(Size(number(size)) for size in value.shape),
            stride=tuple(Size(number(size)) for size in value.stride),
        )
        for name, value in graph.values.items()
    }
    nodes = tuple(replace(n, attributes=each_size(dict(n.attributes), number)) for n in graph.nodes)
    return replace(graph, values=values, nodes=nodes, symbols={})


def each_size(thing: Any, change: Callable[[Size], Any]) -> Any:
    match thing:
        case Size():
            return change(thing)
        case dict():
            return {key: each_size(inner, change) for key, inner in thing.items()}
        case list() | tuple():
            return type(thing)(each_size(inner, change) for inner in thing)
    return thing


def _roles(graph: Graph, names: Sequence[Names], plain: Sequence[Graph]) -> dict[str, Row]:
    """What sizes would like to be called: as in the program where all groups agree, else by their role."""
    first = plain[0]
    weights = {str(node.inputs[1]) for node in first.nodes if node.op == "conv"}
    wanted: dict[str, Row] = {}
    for name, value in first.values.items():
        words = ROLES.get(value.rank, ())
        words = ("out_channels", "channels", *words[2:]) if name in weights else words
        if value.origin is Origin.NODE:
            words = tuple(f"out_{word}" for word in words)
        for dim in range(min(value.rank, len(words))):
            row = tuple(one.values[name].shape[dim].value for one in plain)
            if len(set(row)) == 1 or row in wanted.values():
                continue
            wanted[numbered(_agreed(graph, names, name, dim) or words[dim], wanted)] = row
    return wanted


def _agreed(graph: Graph, names: Sequence[Names], name: str, dim: int) -> str | None:
    """The program's own name of a dimension, where it is the same for all groups."""
    sizes = {_shape(graph, named, name)[dim] for named in names}
    return sizes.pop().code() if len(sizes) == 1 and all(_is_name(size) for size in sizes) else None


def _shape(graph: Graph, names: Names, name: str) -> tuple[Size, ...]:
    """Of what a group calls by the name."""
    return graph.value(next(own for own, role in names.values.items() if role == name)).shape


def _is_name(size: Size) -> bool:
    return size.number == 1 and len(size.factors) == 1


def _spelled(graph: Graph, together: Graph, names: Names) -> dict[str, str] | None:
    """By named size of the family's graph: how the program spells it for one group."""
    places: dict[str, tuple[str, int]] = {}
    for name, value in together.values.items():
        for dim, size in enumerate(value.shape):
            if _is_name(size):
                places.setdefault(size.factors[0].name, (name, dim))
    if not together.symbols.keys() <= places.keys():
        return None
    found = {}
    for symbol in together.symbols:
        name, dim = places[symbol]
        text = _shape(graph, names, name)[dim].code()
        found[symbol] = f"({text})" if " " in text else text
    return found


def _reordered(order: Sequence[int]) -> Callable[[Size], Size]:
    def change(size: Size) -> Size:
        symbols = (Symbol(s.name, tuple(s.values[at] for at in order)) for s in size.factors)
        return Size(size.number, tuple(sorted(symbols))) if size.factors else size

    return change


def _mapped(graph: Graph, change: Callable[[Size], Size]) -> Graph:
    values = {
        name: replace(value, shape=tuple(map(change, value.shape)), stride=tuple(map(change, value.stride)))
        for name, value in graph.values.items()
    }
    nodes = tuple(replace(n, attributes=each_size(dict(n.attributes), change)) for n in graph.nodes)
    return replace(graph, values=values, nodes=nodes)
