"""Which elements an operator of PyTorch reads, and which it writes, by its schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_leaves


class Reader(Protocol):
    """Is shown the tensors of every operator, those that it reads first."""

    def read(self, operator: str, tensor: torch.Tensor, *, written: bool = False) -> None: ...
    def write(self, tensor: torch.Tensor) -> None: ...


def show(
    reader: Reader, func: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], *, overwrites: bool
) -> None:
    """Show the operands of ``func``: an operand of which it makes a view is neither read nor written.

    What it writes it reads too, except where it ``overwrites`` it or it is an ``out=``.
    """
    operands = list(_operands(func._schema, args, kwargs))
    for tensor, argument in operands:
        alias = argument.alias_info
        if alias is None or (alias.is_write and not overwrites and not argument.is_out):
            reader.read(name, tensor, written=alias is not None)
    for tensor, argument in operands:
        if argument.alias_info is not None and argument.alias_info.is_write:
            reader.write(tensor)


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
