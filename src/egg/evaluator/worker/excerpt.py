"""One forward at a size that is too large for an interpreter: some programs of it, and what those wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from egg.evaluator.interpreter.excerpt import Excerpt, Incomplete
from egg.evaluator.interpreter.trails import Written
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.tensors.modes import LightMode
from egg.evaluator.worker.launches import InterpretedLaunches
from egg.evaluator.worker.outputs import storage_of

Leaves = list[tuple[str, Any]]


COPIES = frozenset({"clone", "_to_copy"})


class NoReads(LightMode):
    """Ends the forward where PyTorch computes with a result of which only a part is there.

    A view computes nothing: what it returns lies in the same memory. Of a copy, and of what is computed
    element by element, the elements are there that follow from such.
    """

    def __init__(self, excerpt: Excerpt) -> None:
        super().__init__()
        self._excerpt = excerpt

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, torch.Tensor)]
        read = [t for t in tensors if storage_of(t) in self._excerpt.partial]
        result = func(*args, **(kwargs or {}))
        if func._schema.is_mutable:
            self._excerpt.turn += 1
            self._excerpt.changed |= dict.fromkeys(map(storage_of, tensors), self._excerpt.turn)
        given = {storage_of(t) for t in read}
        made = {storage_of(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor)}
        if given and (func._schema.is_mutable or not made or not made <= given):
            if not _elementwise(func) or not isinstance(result, torch.Tensor) or made & given:
                self._excerpt.check_read(next(iter(given)), f"PyTorch's {func}")
            self._excerpt.partial[storage_of(result)] = _followed(read, result, self._excerpt.partial)
        return result


def _elementwise(func: Any) -> bool:
    pointwise = torch.Tag.pointwise in func.tags or func.overloadpacket.__name__ in COPIES
    return pointwise and not func._schema.is_mutable


def _followed(read: list[torch.Tensor], made: torch.Tensor, partial: Mapping[int, Written]) -> Written:
    """The elements of what was made that follow from elements which are there."""
    laid = torch.zeros(made.untyped_storage().nbytes() // made.element_size(), dtype=torch.bool)
    there = laid.as_strided(made.shape, made.stride(), made.storage_offset())
    there.fill_(True)
    for tensor in read:
        there &= _there(tensor, partial[storage_of(tensor)])
    return Written(made.element_size(), laid.numpy(), made)


def _there(tensor: torch.Tensor, written: Written) -> torch.Tensor:
    """For each element of a tensor whether all of its bytes were stored."""
    elements = torch.from_numpy(written.by(tensor.element_size()))
    return elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@dataclass(frozen=True)
class Ran:
    """How much of a forward ran."""

    without: str
    """Why nothing can be concluded from it, where nothing can."""
    launches: list[tuple[str, int, int]]
    whole: bool
    partial: Mapping[int, Written]


def run(
    launches: InterpretedLaunches, call: Callable[[], Any], recorder: Recorder, *, brief: bool = False
) -> tuple[Ran, Any]:
    """What ran, and the result; nothing where nothing can be concluded from it."""
    result: Any = None
    with launches.excerpted(brief=brief) as excerpt:
        try:
            with NoReads(excerpt), recorder:
                result = call()
        except Incomplete:
            pass
        except BaseException:
            if not excerpt.without:
                raise
    ran = Ran(excerpt.without, list(excerpt.launches), excerpt.whole, excerpt.partial)
    return ran, None if excerpt.without else result


def marks(leaves: Leaves, partial: Mapping[int, Written]) -> Leaves:
    """For every output a tensor of its form: one where an element was written, zero elsewhere."""
    return [(path, _mark(leaf, partial) if isinstance(leaf, torch.Tensor) else leaf) for path, leaf in leaves]


def _mark(leaf: torch.Tensor, partial: Mapping[int, Written]) -> torch.Tensor:
    written = partial.get(storage_of(leaf))
    if written is None:
        return torch.ones(leaf.shape, dtype=leaf.dtype)
    return _there(leaf, written).to(leaf.dtype)
