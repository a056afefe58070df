"""Groups that do the same share their text: one kernel, one set of constants, called with other arguments.

Groups that are equal up to names form a class, written once (:mod:`egg.expert.fusion.local`), whose groups
have one name: what is decided about it from outside holds for all of them. Groups that differ in more,
such as their number of channels, are written each, but with the same names for the same roles; where two
kernels then come out alike, one definition serves both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from egg.expert.emit.host import Host
from egg.expert.emit.names import numbered, renamed_functions
from egg.expert.emit.triton.plain_sizes import with_caller_sizes, with_runtime_sizes
from egg.expert.emit.triton.tile_addresses import with_tile_addresses
from egg.expert.fusion import shape_families
from egg.expert.fusion.local import (
    Local,
    Names,
    family,
    local,
    own_names,
    role_names,
    signature,
    symbols_of,
    word_of,
)
from egg.expert.fusion.purpose import group_name
from egg.expert.fusion.runtime_sizes import MOST, is_free, is_leading, specialization_tells
from egg.expert.graph import Graph, Node
from egg.expert.parts import REACH, Group, Part, Unfit
from egg.expert.pattern import Patterns
from egg.expert.reading.held import held_sizes
from egg.expert.sizes import Size, Symbol

OFTEN = 4
"""Groups that look alike from which on their lines become a function."""

Members = Sequence[tuple[tuple[Node, ...], str]]
"""Groups as nodes and the pattern that writes them."""
WriteOne = Callable[[Graph, Group], Part]


def written(
    graph: Graph, members: Members, write: WriteOne, patterns: Patterns
) -> tuple[tuple[Group, ...], tuple[Part, ...]]:
    """Names and text for every group, shared where they can be."""
    return _Writing(graph, members, write, patterns).all()


class _Writing:
    def __init__(self, graph: Graph, members: Members, write: WriteOne, patterns: Patterns) -> None:
        self._graph = graph
        self._patterns = patterns
        self._members = members
        self._write = write
        self._taken: set[str] = set()
        self._earlier: dict[Any, str] = {}
        """Names of classes by their family and by what their parts define."""
        self._known: dict[str, tuple[str, str]] = {}
        """Name and text of a kernel by what it does: its text without name and docstring."""

        self._helper_texts: dict[tuple[str, str], str] = {}
        """Texts of helpers by their name and what they do: the first docstring serves all."""
        self._often = Counter((pattern, _form(nodes)) for nodes, pattern in members)
        """How many groups look alike, whatever their sizes."""
        self._called_with: dict[str, dict[str, set[Any]]] = {}
        """By kernel and size: the values at the program's own size."""
        self._chosen: dict[str, dict[str, bool]] = {}
        """By kernel: sizes that the caller chooses, and whether they are leading ones."""
        self._held = {graph.symbols[name] for name in held_sizes(graph) if name in graph.symbols}
        """How sizes are found that the constructor decides."""
        self._held_in: dict[int, tuple[Graph, frozenset[str]]] = {}
        """Sizes of a graph that the constructor decides; the graph is kept, so its id stays its own."""
        self._family_members: dict[int, shape_families.Member] = {}
        """By group: itself in the graph of its family, where there is one."""

    def all(self) -> tuple[tuple[Group, ...], tuple[Part, ...]]:
        names, classes = self._names(), self._classes()
        self._family_members = self._families(names, classes)
        groups: dict[int, Group] = {}
        parts: dict[int, Part] = {}
        for places in classes:
            for place, name, part in self._class_parts(places, names):
                nodes, pattern = self._members[place]
                groups[place] = Group(name, nodes, pattern)
                parts[place] = part
        order = range(len(self._members))
        return tuple(groups[place] for place in order), self._with_runtime_sizes(
            [parts[place] for place in order]
        )

    def _with_runtime_sizes(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Kernels take sizes as plain arguments that the caller chooses, or that have too many values, and
        load from tiles of addresses where their masks are tiles."""
        texts: dict[str, str] = {}
        for kernel, text in {name: text for part in parts for name, text in part.kernels.items()}.items():
            many = [size for size, values in self._called_with.get(kernel, {}).items() if len(values) > MOST]
            sized = with_caller_sizes(with_runtime_sizes(text, many), self._chosen.get(kernel, {}))
            texts[kernel] = with_tile_addresses(sized)
        return tuple(replace(p, kernels={name: texts[name] for name in p.kernels}) for p in parts)

    def _note(self, part: Part, graph: Graph, group: Group) -> None:
        """Which sizes the kernels of a part are called with; of huge tensors none, they need 64 bits."""
        if any(value.elements.value >= REACH for value in graph.values.values()):
            return
        for kernel in part.kernels:
            sizes = self._called_with.setdefault(kernel, {})
            chosen = self._chosen.setdefault(kernel, {})
            for name, symbol in symbols_of(graph, group.nodes).items():
                sizes.setdefault(name, set()).add(symbol.values[0])
                if (leading := self._leading(graph, group, name, symbol.values[0])) is not None:
                    chosen[name] = chosen.get(name, True) and leading

    def _held_sizes(self, graph: Graph) -> frozenset[str]:
        """Found once a graph: each of its kernels asks for each of its sizes."""
        if id(graph) not in self._held_in:
            self._held_in[id(graph)] = graph, held_sizes(graph)
        return self._held_in[id(graph)][1]

    def _leading(self, graph: Graph, group: Group, name: str, value: int) -> bool | None:
        """Whether a size that the caller chooses is a leading one; ``None`` for any that kernels are to know,
        see :mod:`egg.expert.fusion.runtime_sizes`."""
        found = graph.symbols.get(name, "")
        if not is_free(found) or found in self._held or name in self._held_sizes(graph):
            return None
        products = (node for node in group.nodes if node.op == "matmul")
        inner = (size for node in products for size in (graph.result(node).shape[-1], _depth(graph, node)))
        if any(symbol.name == name for size in inner for symbol in size.factors):
            return None
        return True if is_leading(found) else False if specialization_tells(value) else None

    def _classes(self) -> list[list[int]]:
        """Places of groups that are equal up to names; the first of each will be written."""
        found: dict[Any, list[int]] = {}
        for place, (nodes, pattern) in enumerate(self._members):
            key = (
                place
                if self._patterns[pattern].fallback
                else (pattern, signature(self._graph, nodes, exact=False))
            )
            found.setdefault(key, []).append(place)
        return list(found.values())

    def _names(self) -> dict[int, Names]:
        """By group: its own names where it is alone of its kind, else those of its family."""
        families: dict[Any, list[int]] = {}
        for place, (nodes, pattern) in enumerate(self._members):
            if not self._patterns[pattern].fallback:
                families.setdefault((pattern, family(self._graph, nodes)), []).append(place)
        found: dict[int, Names] = {}
        for places in families.values():
            nodes = [self._members[place][0] for place in places]
            if len(places) == 1:
                found[places[0]] = own_names(self._graph, nodes[0])
            else:
                found.update(zip(places, role_names(self._graph, nodes), strict=True))
        return found

    def _families(
        self, names: Mapping[int, Names], classes: list[list[int]]
    ) -> dict[int, shape_families.Member]:
        """Groups that differ in numbers alone, where there are enough of them, in one graph for each kind."""
        kinds: dict[Any, list[list[int]]] = {}
        for places in classes:
            nodes, pattern = self._members[places[0]]
            if self._patterns[pattern].shares_sizes and not _moving_starts(
                [self._members[p][0] for p in places]
            ):
                kind = (
                    pattern,
                    family(self._graph, nodes),
                    shape_families.same_but_for_sizes(self._graph, nodes),
                )
                kinds.setdefault(kind, []).append(places)
        counts = [len(s.values) for value in self._graph.values.values() for s in value.shape]
        found: dict[int, shape_families.Member] = {}
        for together in kinds.values():
            if len(together) < shape_families.FEWEST:
                continue
            leaders = [places[0] for places in together]
            groups = [Group(group_name(n), n, p) for n, p in (self._members[place] for place in leaders)]
            own = shape_families.members(
                self._graph, groups, [names[p] for p in leaders], max(counts, default=1)
            )
            found.update(zip(leaders, own or (), strict=False))
        return found

    def _numbered(self, stem: str) -> str:
        """Two classes that do the same differ by a number in their names."""
        name = numbered(stem, self._taken)
        self._taken.add(name)
        return name

    # -- one class ---------------------------------------------------------------------------------

    def _class_parts(self, places: list[int], names: Mapping[int, Names]) -> list[tuple[int, str, Part]]:
        """Place, name and part of each group of a class."""
        first = places[0]
        nodes, pattern = self._members[first]
        stem = group_name(nodes)
        if self._patterns[pattern].fallback:
            name = self._numbered(stem)
            return [(first, name, self._write(self._graph, Group(name, nodes, pattern)))]
        starts = _moving_starts([self._members[place][0] for place in places])
        leader = local(self._graph, Group(stem, nodes, pattern), names[first])
        if found := self._as_member(places, names):
            return found
        try:
            name, part = self._named(*_lifted(leader, starts), shared=not names[first].labels)
        except Unfit:
            if not starts:
                raise
            return [each for place in places for each in self._class_parts([place], names)]
        part = self._shared(part)
        self._note(part, leader.graph, leader.group)
        return [(place, name, self._called(part, first, place, names, starts)) for place in places]

    def _as_member(self, places: list[int], names: Mapping[int, Names]) -> list[tuple[int, str, Part]]:
        """The groups of a class in the graph of their family; none where that cannot be written."""
        own = self._family_members.get(places[0])
        if own is None:
            return []
        try:
            name, part = self._named(own.graph, own.group, shared=True)
        except Unfit:
            return []
        part = self._shared(part)
        self._note(part, own.graph, own.group)
        found = []
        for place in places:
            nodes, pattern = self._members[place]
            here = local(self._graph, Group("", nodes, pattern), names[place])
            sizes = _sizes_of(names[places[0]], names[place], own.sizes)
            found.append((place, name, replace(here, spelled={**here.spelled, **sizes}).called(part)))
        return found

    def _named(self, graph: Graph, group: Group, shared: bool) -> tuple[str, Part]:
        """The part under the name of an earlier one of its kind where it comes out the same, else its own.

        To be compared, all parts are written under the name that they would like to have.
        """
        part = self._functional(graph, group)
        kind = group.pattern, family(graph, group.nodes), group.name, _definitions(part)
        name = self._earlier.get(kind) if shared else None
        if name is None:
            name = self._numbered(group.name)
            self._earlier.setdefault(kind, name)
        return name, part if name == group.name else self._functional(graph, replace(group, name=name))

    def _functional(self, graph: Graph, group: Group) -> Part:
        """The part, with its lines in a function where many groups would have the same."""
        part = self._write(graph, group)
        if self._often[group.pattern, _form(group.nodes)] < OFTEN or part.helpers or len(part.call) < 2:
            return part
        host = Host(graph, group)
        if host.name in part.kernels or not group.writes(graph):
            return part
        made = host.function(part.call, f"{part.summary.rstrip('.')}.", {})
        own = {"helpers": {made.name: made.text}, "functions": (made.name,)}
        return replace(part, call=(made.call,), sizes=made.sizes, **own)

    def _called(
        self, part: Part, first: int, place: int, names: Mapping[int, Names], starts: _Starts
    ) -> Part:
        """The part of a class's first group on the values and sizes of another."""
        nodes, pattern = self._members[place]
        lead, own = names[first], names[place]
        sizes = dict(zip(own.sizes, lead.sizes.values(), strict=True))
        values = dict(zip(own.values, lead.values.values(), strict=True))
        here = local(self._graph, Group("", nodes, pattern), Names(values, sizes, lead.labels))
        begins = {name: str(nodes[at]["starts"][dim]) for (at, dim), name in _start_names(starts).items()}
        return replace(here, spelled={**here.spelled, **begins}).called(part)

    # -- kernels -----------------------------------------------------------------------------------

    def _shared(self, part: Part) -> Part:
        """With the kernels of an earlier part in the place of those that are the same."""
        names: dict[str, str] = {}
        kernels: dict[str, str] = {}
        for name, text in part.kernels.items():
            earlier, known = self._known.setdefault(_essence(name, text), (name, text))
            kernels[earlier] = known
            if earlier != name:
                names[name] = earlier
        if names:
            part = replace(renamed_part(replace(part, kernels={}), names), kernels=kernels)
        helpers = {n: self._helper_texts.setdefault((n, _essence(n, t)), t) for n, t in part.helpers.items()}
        return replace(part, helpers=helpers)


def _depth(graph: Graph, product: Node) -> Size:
    """The summed dimension of a product."""
    return graph.value(str(product.inputs[0])).shape[-1]


_DOCSTRING = re.compile(r'"""(?:[^"]|"(?!""))*"""')


def _essence(name: str, text: str) -> str:
    """A kernel without its name and docstring."""
    return re.sub(rf"\b{name}\b", "", _DOCSTRING.sub("", text, count=1))


def _form(nodes: Sequence[Node]) -> tuple[str, ...]:
    return tuple(word_of(node) for node in nodes)


def _sizes_of(lead: Names, own: Names, sizes: Mapping[str, str]) -> dict[str, str]:
    """How the program spells sizes for a group of a class, from how it spells them for the first."""
    renamed = dict(zip(lead.sizes, own.sizes, strict=True))
    return {
        name: re.sub(r"[A-Za-z_]\w*", lambda found: renamed.get(found[0], found[0]), text)
        for name, text in sizes.items()
    }


def _definitions(part: Part) -> Any:
    """What a part defines, for comparison; how it is called does not count."""
    texts = {name: _essence(name, text) for name, text in {**part.kernels, **part.helpers}.items()}
    return tuple(sorted(texts.items())), part.constants


def renamed_part(part: Part, names: dict[str, str]) -> Part:
    """The part with other names for functions that it defines, calls or launches."""

    def each(texts: Mapping[str, str]) -> dict[str, str]:
        return {names.get(name, name): renamed_functions(text, names) for name, text in texts.items()}

    call = renamed_functions("\n".join(part.call), names).split("\n")
    launches = (replace(launch, kernel=names.get(launch.kernel, launch.kernel)) for launch in part.launches)
    return replace(
        part,
        kernels=each(part.kernels),
        helpers=each(part.helpers),
        functions=tuple(names.get(name, name) for name in part.functions),
        call=tuple(call),
        launches=tuple(launches),
    )


# -- slices that begin elsewhere ----------------------------------------------------------------------

_Starts = Mapping[tuple[int, int], tuple[int, int]]
"""By node and dimension: the first and the last place where the groups of a class begin to read."""


def _moving_starts(groups: Sequence[Sequence[Node]]) -> dict[tuple[int, int], tuple[int, int]]:
    """Steps of an unrolled loop read the same tensor at another place each: the place becomes an argument."""
    found: dict[tuple[int, int], tuple[int, int]] = {}
    for at, nodes in enumerate(zip(*groups, strict=True)):
        if nodes[0].op == "view" and nodes[0]["how"] == "slice":
            for dim, starts in enumerate(zip(*(node["starts"] for node in nodes), strict=True)):
                if all(isinstance(start, int) for start in starts) and len(set(starts)) > 1:
                    found[at, dim] = min(starts), max(starts)
    return found


def _start_names(starts: _Starts) -> dict[tuple[int, int], str]:
    return {key: f"start_{number}" for number, key in enumerate(starts, 1)}


def _lifted(leader: Local, starts: _Starts) -> tuple[Graph, Group]:
    """The leader's graph with a named size for every start that differs; its values span all of them."""
    if not starts:
        return leader.graph, leader.group
    graph, names = leader.graph, _start_names(starts)
    if not set(names.values()).isdisjoint((*graph.values, *graph.symbols)):
        raise Unfit("the names for where slices begin are taken")
    count = max((len(size.values) for value in graph.values.values() for size in value.shape), default=1)
    nodes = list(leader.group.nodes)
    for (at, dim), (least, most) in starts.items():
        moved = list(nodes[at]["starts"])
        moved[dim] = Size(1, (Symbol(names[at, dim], (most, *[least] * max(1, count - 1))),))
        nodes[at] = replace(nodes[at], attributes={**nodes[at].attributes, "starts": tuple(moved)})
    symbols = {**graph.symbols, **{name: name for name in names.values()}}
    group = Group(leader.group.name, tuple(nodes), leader.group.pattern)
    return replace(graph, nodes=tuple(nodes), symbols=symbols), group
