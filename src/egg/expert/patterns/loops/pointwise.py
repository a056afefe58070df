"""The loops of groups without reductions: flat, by rows, or tiled for a transpose.

Where everything is laid out alike, one flat index is best: its addresses are the index itself. Where an
operand has one value per channel, a program takes (a block of) one channel's run, and the operand is a
scalar of it. Where an operand is contiguous along another dimension than the result, both get a side of a
square tile, so that reads and writes each have their contiguous run along the lanes and the exchange
happens in registers. So it is where a result is a view of another in another order (a dispatch tensor, and
its transpose for a product): the tile computes each element once and stores it twice.
"""

from __future__ import annotations

from dataclasses import replace

from egg.expert.emit.reader import address
from egg.expert.graph import Graph, Value
from egg.expert.index import Expr, Index, Negative, loop_index
from egg.expert.parts import Group, Unfit
from egg.expert.patterns.loops.domain import Anchored, Domain, Split, spread_from
from egg.expert.patterns.loops.triton.reader import LoopBody, LoopReader
from egg.expert.patterns.loops.triton.writer import Writer
from egg.expert.patterns.loops.work import Plan, Work, gone_over_for, stored
from egg.expert.sizes import ONE, product

SHORT = 128
"""A run shorter than this is not worth a row of its own."""
GATHERED = 16
"""Nor is one of gathered rows shorter than this; of longer ones an index is loaded once for many columns."""
SIDE = 16
"""A transposed dimension shorter than this is not worth a tile."""

Met = tuple[list[tuple[Value, Expr]], list[Expr]]
"""How a kernel meets memory: its loads, and the indices that places of neighbours are computed from."""


def pointwise_domain(graph: Graph, group: Group) -> Domain:
    """Chosen by trying: the kernel is written for each candidate, and its addresses are looked at."""
    names = [gone_over_for(group, name) for name in stored(graph, group)]
    main = graph.value(names[0])
    if any(graph.value(name).elements != main.elements for name in names):
        raise Unfit("results of different sizes")
    dims = _by_stride(main)
    square = _transposing(graph, group, names, dims)
    if square is not None:
        return _stored_together(graph, group, names, square)
    best = _stored_together(graph, group, names, _domain(main, dims, 0))
    cost = _cost(_met(graph, group, best), best)
    least = GATHERED if any(node.op == "gather" for node in group.nodes) else SHORT
    for cut in range(1, len(dims)):
        run = product(main.shape[d] for d in dims[cut:])
        if cost == 0 or run.value < least:
            break
        domain = _stored_together(graph, group, names, _domain(main, dims, cut))
        found = _cost(_met(graph, group, domain), domain)
        if found < cost:
            best, cost = domain, found
    return best


def only_views(graph: Graph, group: Group) -> bool:
    """Whether every result lies in memory already: views alone, whose strides are those of what they view."""
    if any(node.op != "view" for node in group.nodes):
        return False
    for name in group.writes(graph):
        value = graph.value(name)
        index = tuple(loop_index(f"d{dim}", size) for dim, size in enumerate(value.shape))
        reader = LoopReader(graph, group.nodes, LoopBody(), {})
        reader.read(name, index)
        ((_, at),) = reader.loads
        if not (at - address(value, index)).is_constant:
            return False
    return True


def _by_stride(value: Value) -> list[int]:
    """Dimensions as they lie in memory, the slowest first."""
    return sorted(range(value.rank), key=lambda dim: (-value.stride[dim].value, dim))


def _domain(main: Value, dims: list[int], cut: int) -> Domain:
    split = Split(main.shape, tuple(dims[:cut]), tuple(dims[cut:]))
    return Domain(split, cut, ("outer", "row", "col" if cut else "at"))


def _met(graph: Graph, group: Group, domain: Domain) -> Met:
    work = Work(graph, group, domain, Anchored())
    kernel = Writer(work, Plan("pointwise", 1, 1024, 4), "trial", "blocks")
    for name in work.writes:
        kernel.store(name)
    plain = {name: at for name, at in work.writes.items() if name not in work.scatters}
    lent = [(graph.value(name), at) for name, at in plain.items() if graph.value(name).lent]
    loads = [*kernel.reader.loads, *((value, address(value, at)) for value, at in lent)]
    return loads, kernel.reader.counted


def _cost(met: Met, domain: Domain) -> int:
    """Loads, scatters, and stores into parts of tensors, whose address is neither fixed nor a plain step; and
    places that every element computes for itself."""
    loads, counted = met
    cost = sum(domain.names[2] in at.symbols() for at in counted)
    for _, at in loads:
        stride = at.stride_of(domain.names[2])
        cost += 2 if stride is None else int(stride.number != 0 and stride != ONE)
    return cost


def _transposing(graph: Graph, group: Group, results: list[str], dims: list[int]) -> Domain | None:
    """A square tile, where a large operand or another result is contiguous along another dimension than the
    first result."""
    main = graph.value(results[0])
    if len(dims) < 2 or main.shape[dims[-1]].value < SIDE:
        return None
    reader = LoopReader(graph, group.nodes, LoopBody(), {})
    names = [f"d{dim}" for dim in range(main.rank)]
    index = tuple(loop_index(n, s) for n, s in zip(names, main.shape, strict=True))
    reader.read(main.name, index)
    last = dims[-1]
    for value, at in (*reader.loads, *_beside(graph, group, results, index)):
        if value.elements.value * 4 < main.elements.value:
            continue
        step = at.stride_of(names[last])
        if step is None or step == ONE or step.number == 0:
            continue
        for dim in dims[:-1]:
            if at.stride_of(names[dim]) != ONE:
                continue
            rows, columns = (_run(main, at, names, dims, side) for side in (dim, last))
            together = len(rows) + len(columns)
            if len({*rows, *columns}) < together or together == len(dims):
                rows, columns = (dim,), (last,)  # a loop around tiles instead of quotients inside of them
            if product(main.shape[d] for d in rows).value >= SIDE:
                rest = tuple(d for d in dims if d not in (*rows, *columns))
                split = Split(main.shape, (*rest, *rows), columns)
                return Domain(split, len(rows), ("outer", "row", "col"), square=True)
    return None


def _beside(graph: Graph, group: Group, results: list[str], index: Index) -> list[tuple[Value, Expr]]:
    """The other results that have an element for each of the first's, with its address there."""
    try:
        found = spread_from(graph, group.nodes, {results[0]: index})
    except (Unfit, Negative):  # a view between them has no inverse that can be written
        return []
    return [
        (value, address(value, found[value.name]))
        for value in map(graph.value, results[1:])
        if value.name in found
    ]


def _stored_together(graph: Graph, group: Group, results: list[str], domain: Domain) -> Domain:
    """With all results stored from the first one's tile, where its sides are contiguous in each of them: the
    last alone, unless the tile is square."""
    if len(results) == 1:
        return domain
    met = _beside(graph, group, results, domain.index(domain.main))
    sides = domain.names[1:] if domain.square else domain.names[2:]
    along = all(any(at.stride_of(side) == ONE for side in sides) for _, at in met)
    return replace(domain, turned=along and len(met) == len(results) - 1)


def _run(main: Value, at: Expr, names: list[str], dims: list[int], dim: int) -> tuple[int, ...]:
    """A dimension, and those before it that go on where it ends, in the operand and in the result: rows and
    columns of an image are one side of the tile, whatever the image's width."""
    run = [dim]
    for before in reversed(dims[: dims.index(dim)]):
        size, step = main.shape[run[0]], at.stride_of(names[run[0]])
        goes_on = step is not None and at.stride_of(names[before]) == step * size
        if not goes_on or main.stride[before] != main.stride[run[0]] * size:
            break
        run.insert(0, before)
    return tuple(run)
