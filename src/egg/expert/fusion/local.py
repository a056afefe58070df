"""A group in a graph of its own, so that equal groups become equal text.

A network repeats its blocks: the convolutions of two blocks differ in the names of their values and sizes and
in nothing that matters to a kernel. So every group is written in a small graph that holds only what the group
touches. Two groups whose graphs are equal up to names (:func:`signature`) are written once; the names in that
graph say the role of a value (``x``, ``weight``, ``out_height``) where the program's own names differ from
block to block, and the program's own names where there is nothing to share. :func:`Local.called` then puts
the names of the program back into the lines of ``forward``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from egg.expert.emit.names import numbered
from egg.expert.emit.words import RESERVED, of_kernels
from egg.expert.graph import HELD, Graph, Node, Origin, Value
from egg.expert.parts import Group, Part, spelled
from egg.expert.sizes import Size, Symbol

ROLES: Mapping[int, tuple[str, ...]] = {
    1: ("width",),
    2: ("rows", "width"),
    3: ("batch", "rows", "width"),
    4: ("batch", "channels", "height", "width"),
    5: ("batch", "channels", "depth", "height", "width"),
}
"""What a dimension is called by the rank of its tensor."""
PLACES = ("weight", "weight", "bias", "running_mean", "running_var")
"""What a parameter is by its place among a node's operands."""


@dataclass(frozen=True)
class Names:
    """What the values and sizes of a group are called in its own graph, by their names in the program."""

    values: Mapping[str, str]
    sizes: Mapping[str, str]
    labels: bool
    """Whether what the author called the operators is kept."""


@dataclass(frozen=True)
class Local:
    """A group with the graph it is written in."""

    graph: Graph
    group: Group
    spelled: Mapping[str, str]
    """How ``forward`` really spells what the lines of the group call by a name of the group's graph."""
    avoided: frozenset[str]
    """Names of the program's values and sizes, which no helping variable of the lines may take."""

    def called(self, part: Part) -> Part:
        """The part with the program's names in its lines."""
        text = "\n".join(part.call)
        made = set(re.findall(r"^(\w+)(?= = )", text, re.MULTILINE)) - self.spelled.keys()
        names = {
            **self.spelled,
            **{name: numbered(name, self.avoided) for name in made & self.avoided},
        }
        call = _NAME.sub(lambda found: names.get(found[0], found[0]), text)
        sizes = dict.fromkeys(self.spelled.get(name, name) for name in part.sizes)
        counts = tuple(_NAME.sub(lambda found: names.get(found[0], found[0]), text) for text in part.counts)
        sizes = tuple(size for size in sizes if size.isidentifier())
        return replace(part, call=tuple(call.split("\n")), sizes=sizes, counts=counts)


_NAME = re.compile(r"(?<![\w.\"'])(?:self\.)?[A-Za-z_]\w*\b(?!=(?!=))")
"""A name that stands for itself, a value at ``self`` included; no keyword of a call."""


# -- what a group touches ------------------------------------------------------------------------------


def touched(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """Values of a group, in the order they are met: what it reads, what it makes, where that is a part of."""
    met: dict[str, None] = {}
    for node in nodes:
        met.update(dict.fromkeys(name for name in node.inputs if name is not None))
        met.update(dict.fromkeys(node.outputs))
    rooms = (graph.value(name).room for node in nodes for name in node.outputs)
    met.update(dict.fromkeys(room for room in rooms if room in graph.values))
    made = {name for node in nodes for name in node.outputs}
    if all(name in made or graph.value(name).origin in HELD for name in met):
        # nothing but an argument says which device the results are on
        met.update(dict.fromkeys([name for name in graph.arguments if name is not None][:1]))
    return list(met)


def symbols_of(graph: Graph, nodes: Sequence[Node]) -> dict[str, Symbol]:
    """Named sizes of a group, in the order they are met."""
    found: dict[str, Symbol] = {}
    for name in touched(graph, nodes):
        value = graph.value(name)
        for size in (*value.shape, *value.stride):
            found.update((symbol.name, symbol) for symbol in size.factors)
    for node in nodes:
        for size in _sizes(node.attributes):
            found.update((symbol.name, symbol) for symbol in size.factors)
    return found


def _sizes(thing: Any) -> Iterator[Size]:
    if isinstance(thing, Size):
        yield thing
    elif isinstance(thing, Mapping):
        for key in sorted(thing):
            yield from _sizes(thing[key])
    elif isinstance(thing, list | tuple):
        for inner in thing:
            yield from _sizes(inner)
    elif is_dataclass(thing) and not isinstance(thing, type):
        for field in fields(thing):
            yield from _sizes(getattr(thing, field.name))


# -- when two groups are the same ----------------------------------------------------------------------


def signature(graph: Graph, nodes: Sequence[Node], *, exact: bool = True) -> tuple[Any, ...]:
    """Equal for groups that are the same up to names.

    Without ``exact`` where a slice begins does not count (only whether it begins at the start): enough to
    know whether a group can be written.
    """
    values = {name: place for place, name in enumerate(touched(graph, nodes))}
    symbols = symbols_of(graph, nodes)
    frozen = _Freezer({name: place for place, name in enumerate(symbols)}, exact)
    inside = {id(node) for node in nodes}
    made = {name for node in nodes for name in node.outputs}
    facts = []
    for name in values:
        value = graph.value(name)
        leaves = name in made and (
            name in graph.results or any(id(r) not in inside for r in graph.consumers[name])
        )
        kind = "made" if name in made else "held" if value.origin in HELD else "read"
        lent = kind == "made" and value.lent
        how = (kind, leaves, lent, value.padded, value.dtype)
        facts.append((*how, frozen.of(value.shape), frozen.of(value.stride)))
    steps = tuple(
        (
            node.op,
            tuple(None if name is None else values[name] for name in node.inputs),
            len(node.outputs),
            frozen.of(node.attributes),
        )
        for node in nodes
    )
    return tuple(facts), steps, tuple(symbol.values for symbol in symbols.values())


class _Freezer:
    """Attributes and shapes as something to compare, with sizes by the order they are met in."""

    def __init__(self, symbols: Mapping[str, int], exact: bool) -> None:
        self._symbols = symbols
        self._exact = exact

    def of(self, thing: Any) -> Any:
        match thing:
            case Size(number=number, factors=()):
                return number
            case Size(number=number, factors=factors):
                places = (self._symbols[symbol.name] for symbol in factors)
                return "size", number, tuple(sorted(places))
            case Mapping():
                return tuple((key, self._attribute(key, thing[key])) for key in sorted(thing))
            case list() | tuple():
                return tuple(self.of(inner) for inner in thing)
            case float():
                return repr(thing)
            case bool() | int() | str() | None:
                return type(thing).__name__, thing
        return repr(thing)

    def _attribute(self, key: str, thing: Any) -> Any:
        if key == "starts" and not self._exact:
            return tuple(start == 0 if isinstance(start, int) else self.of(start) for start in thing)
        return self.of(thing)


def family(graph: Graph, nodes: Sequence[Node]) -> tuple[Any, ...]:
    """Equal for groups whose values have the same roles, whatever their sizes."""
    values = {name: place for place, name in enumerate(touched(graph, nodes))}
    kinds = tuple((graph.value(name).rank, graph.value(name).origin in HELD) for name in values)
    steps = tuple(
        (word_of(node), tuple(None if n is None else values[n] for n in node.inputs), len(node.outputs))
        for node in nodes
    )
    return kinds, steps


def word_of(node: Node) -> str:
    """What a node does, as an identifier."""
    match node.op:
        case "pointwise" | "reduce":
            return str(node.get("fn") or node.op)
        case "norm":
            return f"{node.get('kind')}_norm"
        case "pool":
            return f"{node.get('fn')}_pool"
        case "scan":
            return "decaying_total" if node["fn"] == "decayed" else f"cumulative_{node['fn']}"
        case "selection":
            return "sort" if node["whole"] else "topk"
        case "scatter":
            return {"sum": "scatter_add"}.get(node["fn"], f"scatter_{node['fn']}")
    return node.op


# -- names ---------------------------------------------------------------------------------------------


def own_names(graph: Graph, nodes: Sequence[Node]) -> Names:
    """The program's names."""
    return Names(
        {name: name for name in touched(graph, nodes)},
        {name: name for name in symbols_of(graph, nodes)},
        labels=True,
    )


def role_names(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[Names]:
    """Names for each group of a family: those of the program where all agree, else by role."""
    taken = set(RESERVED)
    every = [touched(graph, nodes) for nodes in groups]
    values = [_role(graph, groups[0], column, taken) for column in zip(*every, strict=True)]
    columns = zip(*(symbols_of(graph, nodes) for nodes in groups), strict=False)
    agreed = {column[0] for column in columns if len(set(column)) == 1} - taken
    found = []
    for nodes, met in zip(groups, every, strict=True):
        sizes: dict[str, str] = {}
        used = taken | agreed
        words = of_kernels(node.op for node in nodes)
        for symbol, role in _size_roles(graph, nodes, met).items():
            role = f"{role}_size" if role in words else role
            sizes[symbol] = symbol if symbol in agreed else _distinct(role, used, "out_")
            used.add(sizes[symbol])
        found.append(Names(dict(zip(met, values, strict=True)), sizes, labels=False))
    return found


def _role(graph: Graph, nodes: Sequence[Node], column: Sequence[str], taken: set[str]) -> str:
    """What the value of one place is called in a family; ``column``: its names in all groups."""
    name = column[0]
    maker = next((node for node in nodes if name in node.outputs), None)
    if maker is not None:
        role = _distinct(word_of(maker), taken)
    elif graph.value(name).origin in HELD:
        reader = next((node for node in nodes if name in node.inputs), None)
        lasts = {graph.value(each).path.rsplit(".", 1)[-1] for each in column}
        place = reader.inputs.index(name) if reader is not None else 1
        last = lasts.pop() if len(lasts) == 1 else PLACES[min(place, len(PLACES) - 1)]
        owner = f"{word_of(reader)}_" if reader is not None else ""
        role = _distinct(last if last.isidentifier() else "weight", taken, owner)
    else:
        role = _distinct("x" if "x" not in taken else "other", taken)
    taken.add(role)
    return role


def _distinct(role: str, taken: set[str], prefix: str = "") -> str:
    for name in (role, prefix + role):
        if name not in taken:
            return name
    return numbered(role, taken, first=2)


def _size_roles(graph: Graph, nodes: Sequence[Node], met: Sequence[str]) -> dict[str, str]:
    """By symbol: what the dimension is called in which it is met first."""
    weights = {str(node.inputs[1]) for node in nodes if node.op == "conv"}
    roles: dict[str, str] = {}
    for name in met:
        shape = graph.value(name).shape
        words = ROLES.get(len(shape), ())
        words = ("out_channels", "channels", *words[2:]) if name in weights else words
        for place, size in enumerate(shape):
            for symbol in size.factors:
                roles.setdefault(symbol.name, words[place] if place < len(words) else "size")
    return {symbol: roles.get(symbol, "size") for symbol in symbols_of(graph, nodes)}


# -- the graph -----------------------------------------------------------------------------------------


def local(graph: Graph, group: Group, names: Names) -> Local:
    """The group in a graph that holds nothing else."""
    made = {name for node in group.nodes for name in node.outputs}
    size = _renamer(names.sizes)
    values: dict[str, Value] = {}
    spelling: dict[str, str] = {}
    for name, own in names.values.items():
        value = graph.value(name)
        renamed = replace(value, name=own, shape=size(value.shape), stride=size(value.stride))
        renamed = replace(renamed, room=names.values.get(value.room, ""))
        if name not in made:
            origin = value.origin if value.origin is not Origin.NODE else Origin.INPUT
            path = value.path if names.labels and origin in HELD else own
            renamed = replace(renamed, origin=origin, path=path, room="")
        values[own] = renamed
        before = spelled(Graph({own: renamed}, (), (), ()), own)
        spelling[before] = spelled(graph, name)
    nodes = tuple(
        replace(
            node,
            inputs=tuple(None if name is None else names.values[name] for name in node.inputs),
            outputs=tuple(names.values[name] for name in node.outputs),
            attributes=size(dict(node.attributes)),
            label=node.label if names.labels else "",
        )
        for node in group.nodes
    )
    arguments = tuple(name for name, value in values.items() if value.origin is Origin.INPUT)
    results = tuple(names.values[name] for name in group.writes(graph))
    ordered = [name for name in graph.symbols if name in names.sizes]
    if not names.labels:
        ordered = list(names.sizes)
    symbols = {names.sizes[name]: graph.symbols.get(name, name) for name in ordered}
    whole = Graph(values, nodes, arguments, results, "tuple", symbols)
    spelling |= {own: name for name, own in names.sizes.items()}
    own_group = Group(group.name, nodes, group.pattern)
    return Local(whole, own_group, spelling, frozenset({*graph.values, *graph.symbols}))


def _renamer(names: Mapping[str, str]) -> Callable[[Any], Any]:
    """Gives the sizes in shapes and attributes other names."""
    if all(name == own for name, own in names.items()):
        return lambda thing: thing

    def renamed(thing: Any) -> Any:
        match thing:
            case Size(number=number, factors=factors):
                symbols = (Symbol(names[symbol.name], symbol.values) for symbol in factors)
                return Size(number, tuple(sorted(symbols)))
            case dict():
                return {key: renamed(inner) for key, inner in thing.items()}
            case list() | tuple():
                return type(thing)(renamed(inner) for inner in thing)
        return thing

    return renamed
