"""How far from exact is what forward leaves behind: buffers that move, attributes that callers read.

A statistic of one channel may come of a sum that cancels (a mean of nearly zero), and every implementation is
as wrong there as the reference is. So each element is measured by itself, beside the same calls of an exacter
run (:mod:`egg.evaluator.reference.yardstick`); where there is none (random draws, a dtype fixed in code) by
how far the element follows one rounding of inputs and operations. The largest distance behind any of the
calls counts: at one of them the reference may be exact by luck.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Rounded, Yardstick, converted, perturb, unit_of
from egg.evaluator.tensors.reals import as_reals

MOST = 16
"""Calls that are repeated; errors of more calls are as many times larger at most."""
WIDE = (torch.float64, torch.complex128)
Left = Mapping[str, Any]
"""What a module holds, by name: tensors and numbers."""


def measured_exactly(reference: Reference) -> bool:
    """Whether there is an exacter run, which is the measure."""
    return not reference.stochastic and reference.yardstick is not Yardstick.ITSELF


def own_errors(
    reference: Reference, calls: int, left: Callable[[nn.Module], Left]
) -> dict[str, torch.Tensor]:
    """The distance of every element of what ``left`` finds, after so many calls from the state that is there.

    The reference's module keeps what these calls leave.
    """
    exact = measured_exactly(reference)
    by = reference.yardstick if exact else Yardstick.ITSELF
    twin, _ = converted(reference.module, [], by)
    found: dict[str, torch.Tensor] = {}
    for seed in range(min(calls, MOST)):
        inputs = reference.draw()
        _, wide = converted(nn.Module(), inputs, by)
        try:
            if exact:
                reference.measured(twin, wide, by, None, seed)
            else:
                wide = perturb(nn.Module(), wide, (nn.Module(), inputs), 1.0, seed)
                with Rounded(unit_of(inputs, reference.module), 1.0, seed):
                    reference.measured(twin, wide, by, None, seed)
        except TaskError:  # behind a call that did not end the two are apart
            break
        reference.run(inputs, seed)
        for name, away in _apart(left(twin), left(reference.module)).items():
            before = found.get(name)
            found[name] = (
                away if before is None or before.shape != away.shape else torch.maximum(before, away)
            )
    return {name: away * max(1.0, calls / MOST) for name, away in found.items()}


class Exactly:
    """The module in fp64, from the state that the reference's has now, which is spared."""

    def __init__(self, reference: Reference) -> None:
        self._reference, self._twin = reference, None
        if reference.yardstick is Yardstick.FP64:  # which draws nothing at random
            self._twin, _ = converted(reference.module, [], Yardstick.FP64)

    def call(self, inputs: list[Any], seed: int) -> None:
        """One forward; where it does not end there is nothing to say of what it left."""
        if self._twin is None:
            return
        _, wide = converted(nn.Module(), inputs, Yardstick.FP64)
        try:
            self._reference.measured(self._twin, wide, Yardstick.FP64, None, seed)
        except TaskError:
            self._twin = None

    def state(self) -> dict[str, torch.Tensor]:
        """What floats it holds, by name, and both parts of complex numbers; nothing where it does not run in
        fp64."""
        held = {} if self._twin is None else self._twin.state_dict()
        return {name: as_reals(value.detach()) for name, value in held.items() if value.dtype in WIDE}


def _apart(one: Left, other: Left) -> dict[str, torch.Tensor]:
    """The finite distances: an element that overflows says nothing of the others."""
    found = {}
    for name, value in other.items():
        wide = one.get(name)
        if value is None or wide is None:
            continue
        a, b = torch.as_tensor(wide), torch.as_tensor(value)
        if a.shape == b.shape and a.layout == b.layout == torch.strided:
            a, b = as_reals(a.resolve_conj()), as_reals(b.resolve_conj())
            found[name] = (a.double() - b.double()).nan_to_num(0.0, 0.0, 0.0).abs()
    return found
