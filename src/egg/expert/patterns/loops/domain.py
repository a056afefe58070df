"""What a kernel of the loops pattern iterates over: kept positions and reduced positions, both flat.

Every operator that needs a whole row at once (a reduction, a softmax, a norm, a scan: an *anchor*) splits
the dimensions of its operand into those it keeps and those it runs over. All anchors of a group must agree
on how many of each there are; then one tile [kept, reduced] serves them all, however their operands are
shaped: the positions are flat, and the index arithmetic undoes views in between.

Kept positions come in two loops. Where kept dimensions lie behind the reduced ones in memory (the mean over
a middle dimension, or over the rows of a transposed matrix) those are contiguous and must lie along the
lanes, so they become the tile's first axis and everything before them a scalar ``outer``: flattening both
would put a division into each address and hide from the compiler that neighbours are neighbours.

A selection makes shorter rows of the same number. Anchors that run over those have a domain of their own,
with the kept positions of the first: a second tile beside the tile of whole rows, in the same program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from egg.expert.emit.reader import beyond_view, is_fixed_norm, through_view
from egg.expert.graph import Graph, Node
from egg.expert.index import Expr, Index, flat, loop_index, unflat
from egg.expert.parts import Unfit
from egg.expert.sizes import ONE, Size, Symbol, as_size, product

ANCHORS = frozenset({"reduce", "softmax", "norm", "scan", "selection"})
SAME_SHAPE = frozenset({"pointwise", "where", "triangle"})
BIJECTIVE = frozenset({"reshape", "permute", "flip"})
PLACED = frozenset({"argmax", "argmin"})
"""Reductions whose result depends on the order that a row is gone over in."""
PICK = "pick"
"""The loop index along what a selection takes of a row."""
SHORT = 256
"""Elements of a row that is scattered, below which several share a tile."""
FEW, MANY = 128, 2**14
"""Elements that a program of a single outer position would have, up to which so many outer positions share
tiles: a hash grid sums 8 corners of 2 features at a million positions, and as many programs of 16 elements
take twenty times as long as the memory does."""


@dataclass(frozen=True)
class Split:
    """How a shape falls into kept and reduced dimensions. A group norm's channels are two dimensions here."""

    shape: tuple[Size, ...]
    kept_dims: tuple[int, ...]
    """In the order they are flattened in."""
    reduced_dims: tuple[int, ...]
    divided: tuple[int, Size, Size] | None = None
    """A dimension of the operand that counts as two: which, and the sizes of both."""
    behind: tuple[int, ...] = ()
    """Kept dimensions, the last of them, whose elements lie nearer together than those of reduced ones."""

    @property
    def kept(self) -> tuple[Size, ...]:
        return tuple(self.shape[dim] for dim in self.kept_dims)

    @property
    def reduced(self) -> tuple[Size, ...]:
        return tuple(self.shape[dim] for dim in self.reduced_dims)

    def index(self, kept: Index, reduced: Index) -> Index:
        """Into the operand."""
        found: dict[int, Expr] = {**dict(zip(self.kept_dims, kept, strict=True))}
        found.update(zip(self.reduced_dims, reduced, strict=True))
        places = [found[dim] for dim in range(len(self.shape))]
        if self.divided is not None:
            dim, _, part = self.divided
            places[dim : dim + 2] = [places[dim] * part + places[dim + 1]]
        return tuple(places)

    def kept_of(self, index: Index) -> Index:
        """The kept coordinates of an index into the operand."""
        places = list(index)
        if self.divided is not None:
            dim, _, part = self.divided
            places[dim : dim + 1] = [places[dim] // part, places[dim] % part]
        return tuple(places[dim] for dim in self.kept_dims)


def split_of(graph: Graph, node: Node) -> Split:
    """What an anchor keeps and what it runs over, dimensions of size 1 on the kept side."""
    value = graph.value(str(node.inputs[0]))
    shape, stride, rank = value.shape, value.stride, value.rank
    divided = None
    if node.op == "norm" and node["kind"] == "group":
        groups = as_size(node["groups"])
        part = shape[1].over(groups) or _quotient(shape[1], groups)
        divided = (1, groups, part)
        shape, stride = (shape[0], groups, part, *shape[2:]), (stride[0], stride[1] * part, *stride[1:])
        dims = tuple(sorted(range(2, len(shape)), key=lambda d: -stride[d].value))  # as they lie in memory
    elif node.op == "norm" and node["kind"] in ("batch", "instance") and not node.get("dims"):
        dims = tuple(d for d in range(rank) if d != 1 and (node["kind"] == "batch" or d > 1))
    elif "dims" in node.attributes:
        dims = tuple(sorted(d % rank for d in node["dims"])) or tuple(range(rank))
        if node.op == "reduce" and node["fn"] not in PLACED and all(stride[d].number for d in dims):
            dims = tuple(sorted(dims, key=lambda d: -stride[d].value))  # as they lie in memory
    elif "dim" in node.attributes:
        dims = (node["dim"] % rank,) if rank else ()
    else:
        raise Unfit(f"{node.op} does not say which dimensions it runs over")
    kept = tuple(d for d in range(len(shape)) if d not in dims)
    return Split(shape, kept, dims, divided, _behind(shape, stride, kept, dims))


def _behind(
    shape: tuple[Size, ...], stride: tuple[Size, ...], kept: tuple[int, ...], dims: tuple[int, ...]
) -> tuple[int, ...]:
    """Looked for from the last kept dimension on; one that is repeated in memory lies where it stands."""
    steps = [stride[dim].value for dim in dims if shape[dim] != ONE]
    found: list[int] = []
    for dim in reversed(kept):
        step = stride[dim].value
        near = all(dim > other for other in dims) if not step else all(step < other for other in steps)
        if shape[dim] != ONE and not near:
            break
        found.append(dim)
    return tuple(reversed(found))


def _quotient(whole: Size, parts: Size) -> Size:
    """Channels per group where the sizes have names that say nothing of each other."""
    most = max(len(whole.values), len(parts.values))
    pairs = zip(
        whole.values * (most // len(whole.values)), parts.values * (most // len(parts.values)), strict=True
    )
    return Size(1, (Symbol(f"({whole.code()} // {parts.code()})", tuple(a // b for a, b in pairs)),))


@dataclass(frozen=True)
class Domain:
    """The loops of a group's kernels."""

    main: Split
    inner: int
    """So many of the last kept dimensions run along the tile; those before them are the outer loop."""
    names: tuple[str, str, str] = ("outer", "row", "col")
    """Of the loop indices: the outer one, the kept one of the tile, the reduced one."""
    chosen: Domain | None = None
    """The loops over what a selection takes of each row, where that is less than all of it."""
    turned: bool = False
    """Without anchors: results that have an element for each of the first's are stored from its tile, each
    contiguous along one of the tile's sides. Otherwise every result is computed in its own order."""
    square: bool = False
    """Both sides of the tile are contiguous in a large operand or a result."""

    @cached_property
    def outer_size(self) -> Size:
        return product(self.main.kept[: len(self.main.kept) - self.inner])

    @cached_property
    def kept_size(self) -> Size:
        return product(self.main.kept[len(self.main.kept) - self.inner :])

    @cached_property
    def reduced_size(self) -> Size:
        return product(self.main.reduced)

    @property
    def outer(self) -> Expr:
        return loop_index(self.names[0], self.outer_size)

    @property
    def kept(self) -> Expr:
        return loop_index(self.names[1], self.kept_size)

    @property
    def reduced(self) -> Expr:
        return loop_index(self.names[2], self.reduced_size)

    @cached_property
    def kept_index(self) -> Index:
        """Coordinates of the kept dimensions."""
        cut = len(self.main.kept) - self.inner
        return (*unflat(self.outer, self.main.kept[:cut]), *unflat(self.kept, self.main.kept[cut:]))

    @cached_property
    def kept_flat(self) -> Expr:
        return flat(self.kept_index, self.main.kept)

    def kept_in(self, split: Split) -> Index:
        """The kept coordinates of another anchor."""
        if split.kept == self.main.kept:
            return self.kept_index
        return unflat(self.kept_flat, split.kept)

    def index(self, split: Split) -> Index:
        """Where an anchor's operand is at the tile's positions."""
        return split.index(self.kept_in(split), unflat(self.reduced, split.reduced))

    def holds(self, split: Split, index: Index) -> bool:
        """Whether an index into an anchor's operand lies in the row the program is at."""
        own = split.kept_of(index)
        return own == self.kept_in(split) or flat(own, split.kept) == self.kept_flat


def agree(first: Split, second: Split) -> bool:
    return product(first.kept) == product(second.kept) and product(first.reduced) == product(second.reduced)


@dataclass(frozen=True)
class Anchored:
    """A group's anchors, each with its split; the first decides the domain."""

    splits: Mapping[str, Split] = field(default_factory=dict)
    """By the name of the anchor's (first) result. A selection's is that of its operand."""
    chosen: Split | None = None
    """Of what selections make; ``None`` without one, and where it takes whole rows."""
    shorter: frozenset[str] = frozenset()
    """Those of the anchors that run over what was selected."""

    @property
    def first(self) -> Split:
        """The first that runs over whole rows."""
        return next(split for name, split in self.splits.items() if name not in self.shorter)

    def domain_of(self, anchor: str, domain: Domain) -> Domain:
        """The loops that an anchor runs over."""
        return domain.chosen if anchor in self.shorter and domain.chosen is not None else domain


def anchored(graph: Graph, nodes: Iterable[Node]) -> Anchored:
    """Find the anchors of a group; :class:`Unfit` where one tile cannot serve them all."""
    found = [(node, split_of(graph, node)) for node in nodes if is_anchor(node)]
    selections = [(node, split) for node, split in found if node.op == "selection"]
    chosen = [taken for node, split in selections if (taken := taken_of(graph, node, split)) is not None]
    main = (selections or found or [(None, Split((), (), ()))])[0][1]
    shorter: set[str] = set()
    for node, split in found:
        if agree(main, split):
            continue
        if node.op == "selection" or not chosen or not agree(chosen[0], split):
            raise Unfit(f"{node.label or node.op} runs over other positions than the reductions before it")
        shorter.add(node.outputs[0])
    if chosen and (len(chosen) < len(selections) or not all(agree(chosen[0], other) for other in chosen)):
        raise Unfit("selections take different numbers of elements")
    splits = {node.outputs[0]: split for node, split in found}
    return Anchored(splits, chosen[0] if chosen else None, frozenset(shorter))


def taken_of(graph: Graph, node: Node, split: Split) -> Split | None:
    """How the results of a selection fall into kept and taken dimensions; ``None`` where all is taken."""
    shape = graph.value(node.outputs[0]).shape
    return None if shape == split.shape else replace(split, shape=shape)


def is_anchor(node: Node) -> bool:
    """Whether an operator needs a whole row; a batch norm with running statistics does not."""
    return node.op in ANCHORS and not is_fixed_norm(node)


def domain_of(split: Split, scattered: bool = False, chosen: Split | None = None) -> Domain:
    """The loops of anchors that split like this: kept dimensions behind the reduced ones are the tile's.

    Where rows are gathered and scattered, neighbours in memory end with each of them anyhow: short rows share
    a tile then, instead of having a program each. So do those of many outer positions with few elements each.
    ``chosen``: of what a selection takes of the rows.
    """
    behind = product(split.shape[dim] for dim in split.behind)
    outer = product(split.shape[dim] for dim in split.kept_dims if dim not in split.behind)
    few = behind.value * product(split.reduced).value <= FEW and outer.value >= MANY
    together = behind == ONE or few or (scattered and behind.value < SHORT)
    inner = len(split.kept_dims if together else split.behind)
    names = ("outer", "row", "col") if behind == ONE else ("outer", "col", "row")
    taken = Domain(chosen, inner, (names[0], names[1], PICK)) if chosen is not None else None
    return Domain(split, inner, names, taken)


def places(graph: Graph, nodes: tuple[Node, ...], domain: Domain, anchors: Anchored) -> dict[str, Index]:
    """For each value that a tile (or a row's result) covers exactly: its index at the tile's positions.

    Seeds are the anchors' operands and results.
    """
    found: dict[str, Index] = {}
    for node in nodes:
        split = anchors.splits.get(node.outputs[0]) if node.outputs else None
        if split is None:
            continue
        own = anchors.domain_of(node.outputs[0], domain)
        for name in node.inputs[: 2 if node.op == "scan" else 1]:
            found.setdefault(str(name), own.index(split))
        if node.op == "selection":
            taken = taken_of(graph, node, split)
            for name in node.outputs:
                found[name] = domain.index(split) if taken is None else _chosen(domain).index(taken)
        elif node.op == "reduce":
            kept = own.kept_in(split)
            value = graph.result(node)
            spread = tuple(Expr() for _ in split.shape)
            if value.rank == len(split.shape):  # keepdim
                full = dict(zip(split.kept_dims, kept, strict=True))
                found[value.name] = tuple(full.get(dim, at) for dim, at in enumerate(spread))
            else:
                found[value.name] = kept
        else:
            found[node.outputs[0]] = own.index(split)
    return spread_from(graph, nodes, found)


def spread_from(graph: Graph, nodes: tuple[Node, ...], seeds: Mapping[str, Index]) -> dict[str, Index]:
    """The seeds, and all that has an element for each of theirs: by operators that keep shapes and views that
    keep elements, in both directions, until nothing new is found."""
    found = dict(seeds)
    waiting = [(node, _alike(graph, node)) for node in nodes]
    while True:
        before = len(found)
        for node, alike in waiting:
            _spread(graph, node, alike, found)
        if len(found) == before:
            return found
        waiting = [(node, alike) for node, alike in waiting if any(name not in found for name in alike)]


def _alike(graph: Graph, node: Node) -> list[str]:
    """Operands and result of an operator that have an element for each of the others'."""
    if node.op in SAME_SHAPE:
        shape = graph.result(node).shape
        return [n for n in (*node.inputs, node.output) if n is not None and graph.value(n).shape == shape]
    return [str(node.inputs[0]), node.output] if node.op == "view" and node["how"] in BIJECTIVE else []


def _chosen(domain: Domain) -> Domain:
    assert domain.chosen is not None, "a selection of part of a row has loops over that part"
    return domain.chosen


def _spread(graph: Graph, node: Node, alike: list[str], found: dict[str, Index]) -> None:
    known = [found[name] for name in alike if name in found]
    if not known or len(known) == len(alike):
        return
    if node.op in SAME_SHAPE:
        for name in alike:
            found.setdefault(name, known[0])
    elif node.output in found:
        found[alike[0]] = through_view(graph, node, known[0])
    else:
        found[node.output] = beyond_view(graph, node, known[0])


def place(graph: Graph, name: str, domain: Domain, known: Mapping[str, Index]) -> Index:
    """Where a result of the group is at the tile's positions, so that every element is met exactly once."""
    if name in known:
        return known[name]
    value = graph.value(name)
    if value.shape == domain.main.shape and domain.main.divided is None:
        return domain.index(domain.main)
    for other, index in known.items():
        if graph.value(other).shape == value.shape:
            return index
    whole = domain.outer_size * domain.kept_size * domain.reduced_size
    if value.elements == whole and domain.main.divided is None:
        return unflat(flat(domain.index(domain.main), domain.main.shape), value.shape)
    if value.elements == domain.outer_size * domain.kept_size:
        return unflat(domain.kept_flat, value.shape)
    if domain.chosen is not None and value.elements == product(domain.chosen.main.shape):
        return unflat(flat(domain.chosen.index(domain.chosen.main), domain.chosen.main.shape), value.shape)
    raise Unfit(f"{name} has other positions than the loop over the group")
