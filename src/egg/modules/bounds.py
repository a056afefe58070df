"""How large the integers among a graph's inputs may be: below the size of what they index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

_PASSING = frozenset(
    {"view", "reshape", "flatten", "unsqueeze", "squeeze", "to", "_to_copy", "expand", "contiguous", "clone",
     "transpose", "permute", "slice", "select", "long", "int", "detach", "alias", "expand_as"}
)  # fmt: skip
"""Operators behind which integers are still those of the operand."""


def index_bounds(module: fx.GraphModule) -> dict[str, int]:
    """By placeholder the number that its values must stay below; the least where several apply."""
    found: dict[str, int] = {}
    for inner in (m for m in module.modules() if isinstance(m, fx.GraphModule)):
        for node in inner.graph.nodes:
            for index, bound in _indices(node):
                source = _source(index)
                if source is not None:
                    found[source] = min(bound, found.get(source, bound))
    return found


def _indices(node: fx.Node) -> Iterator[tuple[Any, int]]:
    schema = getattr(node.target, "_schema", None)
    if schema is None or not node.args:
        return
    name = schema.name.split("::")[1]
    args: Any = node.args
    match name:
        case "embedding" | "embedding_bag":
            yield args[1], _size(args[0], 0)
        case "index_select" | "gather" | "scatter" | "scatter_add" | "index_add" | "index_copy":
            yield args[2], _size(args[0], int(args[1]))
        case "take_along_dim":
            yield args[1], _size(args[0], int(args[2]) if len(args) > 2 else 0)
        case "cross_entropy_loss" | "nll_loss" | "nll_loss_nd" | "nll_loss2d":
            yield args[1], _size(args[0], 1 if _rank(args[0]) > 1 else 0)
        case "one_hot" if len(args) > 1:
            yield args[0], int(args[1])
        case "index" | "index_put" | "index_put_":
            for dim, index in enumerate(args[1]):
                if index is not None:
                    yield index, _size(args[0], dim)


def _source(index: Any) -> str | None:
    """The placeholder that an index comes from, through operators that leave its values alone."""
    while isinstance(index, fx.Node):
        if index.op == "placeholder":
            return index.name
        schema = getattr(index.target, "_schema", None)
        if schema is None or schema.name.split("::")[1] not in _PASSING:
            return None
        index = next(iter(index.args), None)
    return None


def _size(node: Any, dim: int) -> int:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor) or not value.dim():
        return 1
    size: Any = value.shape[dim]
    return int(size.node.hint) if isinstance(size, torch.SymInt) and size.node.has_hint() else int(size)


def _rank(node: Any) -> int:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dim() if isinstance(value, torch.Tensor) else 0
