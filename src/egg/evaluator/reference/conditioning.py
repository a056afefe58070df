"""How far the exact answers move when everything is off by its own rounding.

Inputs, weights, and what each operation computes from them. A program that raises at values which are so
little off (a table looked up by what it computed) shows nothing there.
"""

from __future__ import annotations

from typing import Any

import torch

from egg.core.errors import TaskError
from egg.evaluator.compare.compare import STILL, Moved, lost_at
from egg.evaluator.compare.part import Part
from egg.evaluator.reference.answers import response
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.composed import Composed, composed
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.roundings import Roundings
from egg.evaluator.reference.yardstick import (
    Rounded,
    Yardstick,
    coarsest_rounding,
    converted,
    perturb,
    unit_of,
)
from egg.evaluator.task.program import outputs_of
from egg.evaluator.tensors.reals import as_reals

LOTS, FEWER = 16, 4
"""Draws of signs for the roundings that conditioning looks at. An element and the maximum of its row may move
alike in several of them, and a band of magnitudes may have elements of one row alone."""
SIGNS = 2
"""The same for functions alone: each is off by as much, whatever its sign."""
MANY, LARGE = 1 << 20, 1 << 26
"""Elements of all inputs from which on there are fewer draws, or only one."""
CROSSING, CROSSING_COARSE = 16.0, 2.0
"""Roundings by which a float may lie off the boundary between two integers, in fp32 and in 16 bits."""


def moved(reference: Reference, case: Case, position: int, part: Part | None = None) -> Moved:
    """How far an output of ``case`` moves, or ``part`` of it.

    One draw of signs and its mirror image: what answers oppositely to the two is how the result follows; what
    does not (a threshold that was crossed) is a jump, and allows nothing. Signs that happen to cancel show
    nothing: the largest of a few draws counts. Inputs move by no more than what is rounded on the way to this
    output: another one of 16 bits beside it says nothing of it.
    """
    found, exact = STILL, case.golden[position][1]
    limit = _lost_at(reference, case.outputs[position][1]) / 10
    noted = _roundings(reference, case)
    for lot in _lots(case, LOTS):
        try:
            up, down = (_perturbed(reference, case, noted, position, sign, lot) for sign in (1.0, -1.0))
        except TaskError:
            continue
        if len(up) == len(down) == len(case.golden):
            found |= response(exact, up[position][1], down[position][1], limit, part)
    return found


def sensitivity(reference: Reference, case: Case, position: int, part: Part | None = None) -> torch.Tensor:
    """How far each element of an output moves, jumps among it: the furthest of many draws.

    Of two roundings that are as large, as of an input and of its product, the signs cancel in every second
    one. No mirror image is asked for: an element that moves otherwise there moves as far.
    """
    wide = case.golden[position][1]
    exact = as_reals(_only(wide, part)).double()
    found = torch.zeros_like(exact)
    noted = _roundings(reference, case)
    for lot in _lots(case, LOTS):
        try:
            outputs = _perturbed(reference, case, noted, position, 1.0, lot)
        except TaskError:
            continue
        if len(outputs) == len(case.golden) and _shape(outputs[position][1]) == _shape(wide):
            other = as_reals(_only(outputs[position][1], part))
            found = torch.maximum(found, (other.double() - exact).abs_())
    return found


def by_functions(reference: Reference, case: Case, position: int, part: Part | None = None) -> Moved:
    """How far an output moves, by magnitude, when functions are off as those that kernels compose."""
    found, exact = STILL, case.golden[position][1]
    own, unit = _roundings(reference, case).found, unit_of(case.inputs, reference.module)
    if not any(composed(name) for name, _ in own):
        return found
    for lot in _lots(case, SIGNS):
        try:
            up, down = (_composed(reference, case, Composed(unit, s, lot, own=own)) for s in (1.0, -1.0))
        except TaskError:
            continue
        if len(up) == len(down) == len(case.golden):
            moves = response(exact, up[position][1], down[position][1], 0.0, part)
            found |= Moved(0.0, 0.0, functions=moves.bands)
    return found


def _composed(reference: Reference, case: Case, mode: Composed) -> list[tuple[str, Any]]:
    def forward() -> Any:
        module, inputs = converted(reference.module, case.inputs, case.yardstick)
        with mode:
            return reference.measured(module, inputs, case.yardstick, case.draws, case.seed)

    return outputs_of(reference.with_room(forward))


def crossed(reference: Reference, case: Case, position: int, part: Part | None = None) -> list[Any]:
    """What an output of integers is where all that is rounded to them is off by some roundings.

    A float near the boundary of two integers is rounded to either by honest arithmetic. Numbers that are
    whole already are exact, and stay.
    """
    noted = _roundings(reference, case)
    coarsest = noted.answer(position) or unit_of(case.inputs, reference.module)
    roundings = CROSSING if coarsest <= 2.0**-24 else CROSSING_COARSE
    found = []
    for lot in _lots(case, FEWER):
        for sign in (1.0, -1.0):
            try:
                outputs = _perturbed(reference, case, noted, position, sign * roundings, lot, whole=True)
            except TaskError:
                continue
            if len(outputs) == len(case.golden):
                found.append(outputs[position][1])
    exact = case.golden[position][1]
    return [_only(leaf, part) for leaf in found if _shape(leaf) == _shape(exact)]


def fine(reference: Reference, case: Case, position: int) -> bool:
    """Whether nothing on the way to an output is rounded to fewer bits than fp32 has, as far as is known."""
    coarsest = _roundings(reference, case).answer(position) or unit_of(case.inputs, reference.module)
    return coarsest <= 2.0**-24


def read_as(reference: Reference, case: Case) -> torch.dtype | None:
    """The coarsest floating type of what the host reads of tensors, if it reads any: what a plain number has
    the digits of."""
    return _roundings(reference, case).read


def _only(leaf: Any, part: Part | None) -> Any:
    return leaf if part is None else part.of(leaf)


def _shape(leaf: Any) -> tuple[int, ...] | None:
    return tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else None


def _lots(case: Case, most: int) -> range:
    size = sum(t.numel() for t in case.tensors)
    return range(most if size < MANY else FEWER if size < LARGE else 1)


def _lost_at(reference: Reference, leaf: Any) -> float:
    dtype = leaf.dtype if isinstance(leaf, torch.Tensor) else torch.float64
    return lost_at(dtype, reference.precision)


def _roundings(reference: Reference, case: Case) -> Roundings:
    """To how many digits the program itself rounds what its operations compute; nothing where it raises."""

    def forward() -> Roundings:
        module, inputs = converted(reference.module, case.inputs, Yardstick.ITSELF)
        with Roundings() as noted:
            result = reference.measured(module, inputs, Yardstick.ITSELF, None, case.seed)
        noted.answered(outputs_of(result))
        return noted

    try:
        return reference.with_room(forward)
    except TaskError:
        return Roundings()


def _perturbed(
    reference: Reference,
    case: Case,
    noted: Roundings,
    position: int,
    sign: float,
    lot: int,
    *,
    whole: bool = False,
) -> list[tuple[str, Any]]:
    """A run in which all is off as it is on the way to the output at ``position``."""
    program = noted.answer(position)

    def forward() -> Any:
        module, inputs = converted(reference.module, case.inputs, case.yardstick)
        coarsest = coarsest_rounding(case.inputs, reference.module, case.outputs, position, program)
        unit = min(unit_of(case.inputs, reference.module), program or 1.0)
        inputs = perturb(module, inputs, (reference.module, case.inputs), sign, lot, coarsest)
        with Rounded(unit, sign, lot, own=noted.found, whole=whole):
            return reference.measured(module, inputs, case.yardstick, case.draws, case.seed)

    return outputs_of(reference.with_room(forward))
