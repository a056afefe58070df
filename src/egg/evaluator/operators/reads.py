"""Which elements an operator of PyTorch reads, and which it writes, by its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves, tree_map_only


class Reader(Protocol):
    """Is shown the tensors of every operator, those that it reads first."""

    def read(self, operator: str, tensor: torch.Tensor, *, written: bool = False) -> None: ...
    def write(self, tensor: torch.Tensor, covered: torch.Tensor | None = None) -> None: ...
    def asks(self, tensor: torch.Tensor) -> bool: ...


DRAWING = "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_"
DRAWN = frozenset(DRAWING.split())
"""Operators that fill their operand with random numbers. They are not run again."""


def show(
    reader: Reader, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, overwrites: bool
) -> None:
    """Show the operands of ``func``: an operand of which it makes a view is neither read nor written.

    What it writes it reads too, except where it ``overwrites`` it or it is an ``out=``. One that writes in
    place may write a part (``index_fill_``): which, is found where the reader asks for it.
    """
    operands = list(_operands(func._schema, args, kwargs))
    for tensor, argument in operands:
        alias = argument.alias_info
        if alias is None or (alias.is_write and not overwrites and not argument.is_out):
            reader.read(name, tensor, written=alias is not None)
    for tensor, argument in operands:
        if argument.alias_info is not None and argument.alias_info.is_write:
            whole = overwrites or argument.is_out or name in DRAWN or not reader.asks(tensor)
            reader.write(tensor, None if whole else _covered(func, args, kwargs, tensor))


def _covered(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], written: torch.Tensor
) -> torch.Tensor:
    """Where an operator leaves the same number whatever was there before: it runs twice more, on copies."""
    ends = []
    for before in _contents(written.dtype):
        copy = torch.full_like(written, before)
        given = tree_map_only(torch.Tensor, lambda t, copy=copy: copy if t is written else t, (args, kwargs))
        func(*given[0], **given[1])
        ends.append(copy)
    one, other = ends
    return (one == other) | ((one != one) & (other != other))


def _contents(dtype: torch.dtype) -> tuple[Any, Any]:
    """Two numbers of which no arithmetic makes one."""
    if dtype is torch.bool:
        return False, True
    return (1.0, float("nan")) if dtype.is_floating_point or dtype.is_complex else (0, 85)


def show_out(reader: Reader, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Show what ``func`` writes to an ``out=``, and nothing else."""
    for tensor, argument in _operands(func._schema, args, kwargs):
        if argument.is_out:
            reader.write(tensor)


def _operands(
    schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[torch.Tensor, Any]]:
    """Every dense tensor among the operands, with the argument that it is given for."""
    for position, argument in enumerate(schema.arguments):
        given = args[position] if position < len(args) else kwargs.get(argument.name)
        for tensor in tree_leaves(given):
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                yield tensor, argument
