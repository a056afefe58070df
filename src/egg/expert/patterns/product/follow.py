"""Where the values behind a product lie in its tile, and what of them needs more than one element at a time.

The tile of a product holds ``rows x columns`` of the result. Pointwise operators, casts, residuals and views
that keep every element stay in place: each later value has an index in terms of row and column. Reductions,
norms and softmax over the columns are *row operations*: they need whole rows, or whole groups of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from egg.expert.emit.reader import beyond_view
from egg.expert.graph import Node
from egg.expert.index import Expr, Index, flat
from egg.expert.parts import Unfit
from egg.expert.patterns.product.problem import Problem
from egg.expert.sizes import ONE, Size, aligned, as_size, product

IN_PLACE = frozenset({"pointwise", "where", "triangle"})
REDUCTIONS = frozenset({"sum", "mean", "max", "min", "logsumexp", "norm", "var"})
SPREAD = frozenset({"sum", "mean", "max", "min", "logsumexp", "norm"})
"""Reductions that can be put together from parts of a row."""
LONG = frozenset({"gelu", "gelu_tanh", "erf", "tanh", "silu", "sigmoid", "softplus", "mish", "exp"})
"""Functions of many instructions, which need registers of their own."""


@dataclass(frozen=True)
class RowOperation:
    """A node that needs all of a row, or a group of its columns."""

    node: Node
    groups: Size | None = None
    """How many groups a row has; ``None``: the whole row is one."""
    trivial: bool = False
    """Over dimensions of one place only: the value is what it was."""


@dataclass(frozen=True)
class Followed:
    """Where every value behind the product lies, and the operations in order."""

    places: Mapping[str, Index]
    operations: tuple[RowOperation, ...]
    column: Expr

    @property
    def needs_rows(self) -> bool:
        return any(operation.groups is None and not operation.trivial for operation in self.operations)

    def row_shaped(self, name: str) -> bool:
        """Whether a value is the same along the columns."""
        inside = frozenset().union(*(at.symbols() for at in self.places[name]))
        return not (self.column.symbols() & inside)


def long_function(node: Node) -> bool:
    return node.op == "pointwise" and node["fn"] in LONG


def crowds(problem: Problem) -> bool:
    """Whether what follows needs registers beside the accumulators: for another tile, for long functions."""
    behind = problem.group.nodes[problem.group.nodes.index(problem.node) + 1 :]
    made = {name for node in problem.group.nodes for name in node.outputs}
    given = {str(name) for node in behind for name in node.inputs if isinstance(name, str)} - made
    full = problem.result.elements.value
    tiles = any(problem.graph.value(name).elements.value >= full for name in given)
    return tiles or any(map(long_function, behind))


def follow(problem: Problem, anchor: Index, column: Expr) -> Followed:
    """Walk from the product, whose result has the index ``anchor``, through all that follows in the group."""
    graph, places = problem.graph, {problem.result.name: anchor}
    operations: list[RowOperation] = []
    for node in problem.group.nodes:
        inside = [name for name in node.inputs if name in places]
        if not inside or node is problem.node:
            continue
        first = str(inside[0])
        match node.op:
            case op if op in IN_PLACE:
                places[node.output] = _in_place(problem, node, places)
            case "view":
                places[node.output] = beyond_view(graph, node, places[first])
            case "reduce":
                operation = _reduction(problem, node, places[first], column)
                operations.append(operation)
                places[node.output] = _reduced(node, places[first])
            case "softmax":
                at = places[first]
                if not _covers(problem, first, (node["dim"] % len(at),), at, column):
                    raise Unfit("a softmax across rows of the product")
                operations.append(RowOperation(node))
                places[node.output] = at
            case "norm":
                _only_x(node, places)
                operations.append(_norm(problem, node, places[first], column))
                places[node.output] = places[first]
            case op:
                raise Unfit(f"{op} behind a product")
    return Followed(places, tuple(operations), column)


def _in_place(problem: Problem, node: Node, places: Mapping[str, Index]) -> Index:
    shape = problem.graph.result(node).shape
    for name in node.inputs:
        if name in places and problem.graph.value(str(name)).shape == shape:
            return places[str(name)]
    for name in node.inputs:
        if name in places and problem.graph.value(str(name)).elements == product(shape):
            at = places[str(name)]
            return (Expr(),) * (len(shape) - len(at)) + at
    raise Unfit("a result of the product is repeated along another dimension")


def _covers(problem: Problem, name: str, dims: tuple[int, ...], at: Index, column: Expr) -> bool:
    """Whether these dimensions are exactly the columns of the product."""
    shape = problem.graph.value(name).shape
    symbols = column.symbols()
    inside = frozenset().union(*(at[dim].symbols() for dim in dims))
    outside = frozenset().union(*(e.symbols() for dim, e in enumerate(at) if dim not in dims))
    size = product(shape[dim] for dim in dims)
    return inside <= symbols and not (outside & symbols) and size == problem.columns


def _dims(node: Node, rank: int) -> tuple[int, ...]:
    dims = node.get("dims")
    return tuple(range(rank)) if not dims else tuple(dim % rank for dim in dims)


def _reduction(problem: Problem, node: Node, at: Index, column: Expr) -> RowOperation:
    name, dims = str(node.inputs[0]), _dims(node, len(at))
    if node["fn"] not in REDUCTIONS:
        raise Unfit(f"{node['fn']} behind a product")
    if not problem.graph.value(name).floating:
        raise Unfit("a reduction of whole numbers behind a product")
    if node["fn"] == "norm" and node.get("order", 2) not in (1, 2, 1.0, 2.0):
        raise Unfit("a norm of that order behind a product")
    shape = problem.graph.value(name).shape
    if all(shape[dim] == ONE for dim in dims) and node["fn"] in ("sum", "mean", "max", "min", "logsumexp"):
        return RowOperation(node, trivial=True)
    if not _covers(problem, name, dims, at, column):
        raise Unfit("a reduction across rows of the product")
    return RowOperation(node)


def _reduced(node: Node, at: Index) -> Index:
    dims = _dims(node, len(at))
    if node.get("keepdim"):
        return tuple(Expr() if dim in dims else e for dim, e in enumerate(at))
    return tuple(e for dim, e in enumerate(at) if dim not in dims)


def _only_x(node: Node, places: Mapping[str, Index]) -> None:
    if any(name in places for name in node.inputs[1:]):
        raise Unfit("a norm whose weights come from the product")


def _norm(problem: Problem, node: Node, at: Index, column: Expr) -> RowOperation:
    name, kind = str(node.inputs[0]), node["kind"]
    if kind in ("layer", "rms"):
        if not _covers(problem, name, _dims(node, len(at)), at, column):
            raise Unfit(f"a {kind} norm across rows of the product")
        return RowOperation(node)
    shape = problem.graph.value(name).shape
    if kind == "batch":
        if node.get("training"):
            raise Unfit("batch statistics are over the rows of the product")
        return RowOperation(node, trivial=True)
    if len(at) < 2 or flat(at[1:], shape[1:]) != column or column.symbols() & at[0].symbols():
        raise Unfit(f"a {kind} norm whose groups are not runs of columns")
    groups = as_size(node["groups"]) if kind == "group" else shape[1]
    if groups == ONE:
        return RowOperation(node)
    if any(n % g for n, g in aligned(problem.columns.values, groups.values)):
        raise Unfit("groups of columns that do not come out even")
    return RowOperation(node, groups)
