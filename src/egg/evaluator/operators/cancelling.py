"""Operations of a program that its answer does not need: it is the same where they copy an operand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from egg.evaluator.operators.copied import nearly_equal
from egg.evaluator.operators.ops import NEUTRAL, base_name
from egg.evaluator.tensors.modes import LightMode

MOST_RUNS = 64


class _Copying(LightMode):
    """Operations of some names give an operand of their result's form in its place."""

    def __init__(self, chosen: Callable[[str], bool], only: int | None, operand: int) -> None:
        super().__init__()
        self._chosen, self._only, self._operand = chosen, only, operand
        self.count = 0
        """Of operations that can copy."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = base_name(func)
        if name in NEUTRAL or not self._chosen(name.rstrip("_")):
            return func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        before = [t.clone() for t in given]
        result = func(*args, **(kwargs or {}))
        made: Any = result[0] if isinstance(result, tuple | list) and result else result
        alike = [t for t in before if isinstance(made, torch.Tensor) and _form(t) == _form(made)]
        if not alike:
            return result
        self.count += 1
        if self._only in (None, self.count - 1):
            made.copy_(alike[min(self._operand, len(alike) - 1)])
        return result


def _form(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def cancels(run: Callable[[], Sequence[torch.Tensor]], chosen: Callable[[str], bool]) -> bool:
    """Whether a program answers alike where operations of the chosen names copy, one of them or all.

    In doubt yes: a program may raise where it meets other values than its own.
    """
    answers = [answer.clone() for answer in run()]
    count, runs = 1, 0
    for only in (None, *range(MOST_RUNS)):
        for operand in (0, 1):
            if (only is not None and only >= count) or runs >= MOST_RUNS:
                return False
            try:
                with _Copying(chosen, only, operand) as copying:
                    others = run()
            except Exception:
                return True
            count, runs = copying.count, runs + 1
            if count and all(map(nearly_equal, answers, others)):
                return True
    return False
