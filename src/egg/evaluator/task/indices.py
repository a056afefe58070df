"""Indices are looked at before PyTorch uses them on a GPU.

On a CPU an index beyond its table raises. On a GPU an assertion on the device fails, and the process that
made the call cannot use the GPU again: the judge itself must not end so. Calls with other sizes, with numbers
that are none, or with rounding that tips a comparison may have such indices, so the reference runs under
:class:`IndicesInRange`, which raises as a CPU does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Range = tuple[torch.Tensor, int, int]
"""An index, the smallest value it may hold, and the first that is too large."""

ALONG = frozenset(
    str.split("""
    index_select gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_add
    index_add_ index_copy index_copy_ index_fill index_fill_ index_reduce index_reduce_
    """)
)
"""Operators whose arguments are a table, a dimension of it, and an index along that."""
ENTRIES = frozenset(
    ["index", "index_put", "index_put_", "_unsafe_index", "_unsafe_index_put", "_index_put_impl_"]
)
"""Operators that take one index for each leading dimension; negative ones count from the end."""


def _along(args: Sequence[Any]) -> Iterator[Range]:
    table, dim, index = args[:3]
    yield index, 0, table.shape[dim] if table.dim() else 1


def _entries(args: Sequence[Any]) -> Iterator[Range]:
    table, indices = args[:2]
    for at, index in enumerate(indices):
        if index is not None and index.dtype not in (torch.bool, torch.uint8):
            yield index, -table.shape[at], table.shape[at]


def _embedding(args: Sequence[Any]) -> Iterator[Range]:
    yield args[1], 0, args[0].shape[0]


def _classes(args: Sequence[Any]) -> Iterator[Range]:
    """Of a loss by class, where the classes are the scores' second dimension."""
    scores, target, _, _, ignored = args[:5]
    chosen = target[target != ignored]
    yield chosen, 0, scores.shape[1 if scores.dim() > 1 else 0]


def _take(args: Sequence[Any]) -> Iterator[Range]:
    yield args[1], -args[0].numel(), args[0].numel()


RANGES: Mapping[str, Callable[[Sequence[Any]], Iterator[Range]]] = {
    **dict.fromkeys(ALONG, _along),
    **dict.fromkeys(ENTRIES, _entries),
    "embedding": _embedding,
    "_embedding_bag": _embedding,
    "_embedding_bag_forward_only": _embedding,
    "nll_loss_forward": _classes,
    "nll_loss2d_forward": _classes,
    "take": _take,
}


class IndicesInRange(TorchDispatchMode):
    """Raises ``IndexError`` where an operator would read or write beyond a table."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.rpartition("::")[2]
        for index, least, end in RANGES[name](args) if name in RANGES else ():
            check(name, index, least, end)
        return func(*args, **(kwargs or {}))


def check(name: str, index: torch.Tensor, least: int, end: int) -> None:
    """Of values that are there: a tensor without them (fake, meta) has no index to look at."""
    if type(index) is not torch.Tensor or index.device.type == "meta" or not index.numel():
        return
    low, high = (int(bound) for bound in index.aminmax())
    if low < least or high >= end:
        raise IndexError(f"{name}: indices from {low} to {high}, the table has {end} entries")


def in_range() -> AbstractContextManager[Any]:
    """Where there is a GPU; elsewhere PyTorch raises by itself."""
    return IndicesInRange() if torch.cuda.is_available() else nullcontext()
