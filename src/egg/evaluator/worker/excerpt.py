"""One forward at a size that is too large for an interpreter: some programs of it, and what those wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from egg.evaluator.interpreter.excerpt import Excerpt, Incomplete, Written
from egg.evaluator.operators.ops import Recorder
from egg.evaluator.tensors.modes import LightMode
from egg.evaluator.worker.launches import InterpretedLaunches
from egg.evaluator.worker.outputs import storage_of

Leaves = list[tuple[str, Any]]


class NoReads(LightMode):
    """Ends the forward where PyTorch computes with a result of which only a part is there.

    A view computes nothing: what it returns lies in the same memory.
    """

    def __init__(self, excerpt: Excerpt) -> None:
        super().__init__()
        self._excerpt = excerpt

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {
            storage_of(t) for t in tree_leaves((args, kwargs or {})) if isinstance(t, torch.Tensor)
        } & self._excerpt.partial.keys()
        result = func(*args, **(kwargs or {}))
        made = {storage_of(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor)}
        if given and (func._schema.is_mutable or not made or not made <= given):
            self._excerpt.check_read(next(iter(given)), f"PyTorch's {func}")
        return result


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
    if written.itemsize != leaf.element_size():
        return torch.zeros(leaf.shape, dtype=leaf.dtype)
    mask = torch.from_numpy(written.elements)
    return mask.as_strided(leaf.shape, leaf.stride(), leaf.storage_offset()).to(leaf.dtype)
