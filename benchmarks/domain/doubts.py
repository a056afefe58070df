"""Differences that are no fault of a file: looked into only where the two sides differ.

A program that draws random numbers has no ordinary fp64 run, so its answers are first held against each
other; where they differ, an fp64 run that repeats the reference's draws says what rounding explains. Draws
are dealt out in the order of memory: where one side draws on a tensor that is not contiguous the same draws
lie at other places, and nothing can be concluded. A program may amplify the rounding of its inputs (a norm
over values that are all alike): how far the exact result moves with them, every implementation may be off. In
16 bits a number near the largest one overflows, or does
not, by the last bit of an input: where the reference itself overflows at inputs one rounding away, an
overflow of the file is a rounding.
"""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from benchmarks.domain.answers import FORWARD_SEED, Answer, Difference, Exact, differences
from benchmarks.domain.calls import Call
from benchmarks.domain.outcomes import Outcome
from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.evaluator.reference.yardstick import Draws, Recorded, Rounded, Yardstick, perturb, scope, unit_of
from egg.evaluator.task.precision import double_scope
from egg.evaluator.task.program import outputs_of, to_double
from egg.evaluator.tensors.modes import LightMode

CHAOTIC = 0.02
"""Of its rms: so far a result moves with the rounding of its inputs where nothing can be concluded."""
NEIGHBOURS = 4
"""Calls one rounding away that are tried for an overflow."""


@dataclass(frozen=True)
class Doubt:
    """Two answers that differ, and the modules that gave them."""

    call: Call
    reference: nn.Module
    candidate: nn.Module
    got: Answer
    wanted: Answer
    precision: Precision

    def settled(self, found: Difference) -> Difference | None:
        """``found``, or what remains of it; ``None`` where nothing does. Only numbers are looked into: no
        rounding and no draw explains another dtype or a gradient that is lost."""
        if found.outcome is not Outcome.WRONG or not found.of_values:
            return found
        if self.wanted.drew:
            if self._deals_by_memory():
                return Difference(Outcome.SKIPPED, "random numbers are dealt out in the order of memory")
            golden = self._exact_on_draws()
            if golden is not None:
                plain = replace(self.call, gradient=False)
                return differences(plain, self.got, self.wanted, golden, self.precision)
        elif self._amplified():
            return _inexact(found, "the exact result moves as far with its inputs' rounding")
        if "NaN or Inf" in found.detail and self._overflows_nearby():
            return _inexact(found, "the reference overflows one rounding away")
        return found

    def _deals_by_memory(self) -> bool:
        return any(_strided_draws(module, self.call) for module in (self.reference, self.candidate))

    def _exact_on_draws(self) -> Exact | None:
        draws = Draws()
        inputs, named = self.call.fresh()
        with Recorded(draws):
            _run(copy.deepcopy(self.reference), inputs, named)
        try:
            module, wide = to_double(self.reference, [*inputs, named])
            with scope(Yardstick.DRAWS, draws):
                outputs = _run(module, wide[:-1], wide[-1])
        except (TaskError, RuntimeError):
            return None
        return Exact(outputs, list(module.named_buffers()))

    def _amplified(self) -> bool:
        """Whether every output is off by at most twice what the exact result moves by, or that is so far that
        nothing can be concluded."""
        inputs, named = self.call.fresh()
        given = [*inputs, named]
        runs: list[list[tuple[str, Any]]] = []
        try:
            for shift in (0.0, 1.0, -1.0):
                module, wide = to_double(self.reference, given)
                wide = perturb(module, wide, (self.reference, given), shift)
                rounded = Rounded(unit_of(given, self.reference), shift, 0) if shift else nullcontext()
                with double_scope(), rounded:
                    runs.append(_run(module, wide[:-1], wide[-1]))
        except (TaskError, RuntimeError):
            return False
        for (_, own), (_, exact), (_, up), (_, down) in zip(self.got.outputs, *runs, strict=True):
            moved = max(_rms(up, exact), _rms(down, exact))
            if _rms(own, exact) > 2.0 * moved and moved < CHAOTIC * _rms(exact, 0.0):
                return False
        return True

    def _overflows_nearby(self) -> bool:
        for at in range(NEIGHBOURS):
            module = copy.deepcopy(self.reference)
            inputs, named = self.call.fresh()
            moved = perturb(
                module, [*inputs, named], (self.reference, [*inputs, named]), (-1.0) ** at * (1 + at)
            )
            for (_, leaf), (_, usual) in zip(
                _run(module, moved[:-1], moved[-1]), self.wanted.outputs, strict=True
            ):
                if isinstance(leaf, torch.Tensor) and bool((leaf.isfinite() != usual.isfinite()).any()):
                    return True
        return False


def _inexact(found: Difference, why: str) -> Difference:
    return replace(found, outcome=Outcome.INEXACT, detail=f"{found.detail}; {why}")


class _Strided(LightMode):
    """Whether a random operator was given a tensor that is not contiguous."""

    found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            self.found |= any(isinstance(given, torch.Tensor) and not given.is_contiguous() for given in args)
        return func(*args, **(kwargs or {}))


def _strided_draws(module: nn.Module, call: Call) -> bool:
    inputs, named = call.fresh()
    with _Strided() as mode:
        _run(copy.deepcopy(module), inputs, named)
    return mode.found


def _rms(a: Any, b: Any) -> float:
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    if b.dim() and a.shape != b.shape:
        return math.inf
    return float((a.detach().double() - b.detach().double()).square().mean().sqrt())


def _run(module: nn.Module, inputs: list[Any], named: dict[str, Any]) -> list[tuple[str, Any]]:
    torch.manual_seed(FORWARD_SEED)
    with torch.no_grad():
        return outputs_of(module(*inputs, **named))
