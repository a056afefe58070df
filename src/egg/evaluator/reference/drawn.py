"""Other values of what no distribution stands for: integers, masks and complex numbers that a constructor
draws, and counts of calls.

A table of integers may be an order, a set of codes or of offsets, and most of its values are no values of it.
But a constructor that draws one says itself what others there are: it is run after another seed. What comes
out the same is no draw but a part of the program. Complex parameters that it does not draw are turned, and
no larger: an eigenvalue inside of the unit circle stays there.

A count of calls is as legal later in a long session: it is put where it stands so many calls later, as far as
the reference counts on from there by the same step. What begins anew at some number (a place in a ring) or
stops there does not.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from egg.core.errors import MachineError, TaskError
from egg.evaluator.reference.answers import same_bytes
from egg.evaluator.task.distributions import kept_by_generic_weights

LATER = (20, 14, 8, 4, 2)
"""Calls, as powers of two; the first that the reference counts on from is taken."""
STEADY = 3
"""Calls in a row by which a count moves by the same step."""
MOST = 1 << 16
"""Elements of a buffer that counts: each channel, or expert, may have a count of its own."""
ROUNDED = 1e-2
"""By how much of itself a step may be off where a count is a float."""
LEAST, TURN = 0.7, 0.5
"""Of a complex parameter's modulus, and by how much it is turned (standard deviation)."""
State = Mapping[str, torch.Tensor]


@torch.no_grad()
def redraw(module: nn.Module, first: State, build: Callable[[int], nn.Module]) -> None:
    """Give ``module``, which was built as ``first``, what ``build`` draws after another seed.

    Complex parameters that it does not draw are turned. Nothing is built where there is nothing of the kind.
    """
    names = kept_by_generic_weights(module)
    if not names:
        return
    held, other = module.state_dict(), build(secrets.randbits(31)).state_dict()
    parameters = dict(module.named_parameters())
    for name in names:
        if not same_bytes(other[name], first[name]):
            held[name].copy_(other[name])
        elif name in parameters and held[name].is_complex():
            held[name].copy_(_turned(first[name]))


def _turned(value: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(secrets.randbits(48))
    sizes = LEAST + (1.0 - LEAST) * torch.rand(value.shape, generator=generator)
    angles = TURN * torch.randn(value.shape, generator=generator)
    turned = value * torch.polar(sizes, angles).to(value)
    small = torch.complex(*(0.3 * torch.randn(2, *value.shape, generator=generator))).to(value)
    return torch.where(value == 0, small, turned)


@dataclass(frozen=True)
class Counts:
    """Buffers that count calls, by what each call adds to every element, and how many calls later they may
    be put."""

    steps: State
    most: int

    @torch.no_grad()
    def put(self, module: nn.Module, *, late: bool) -> None:
        """As many calls later as one lot says, all by the same: they count the same calls.

        Numbers of calls of each size are as likely as of any other, or those in the last half are ``late``.
        A count that is a float was drawn like a weight: it is put at a whole number of steps.
        """
        if not self.steps:
            return
        lot = secrets.randbelow(1 << 16) / (1 << 16)
        power = math.log2(self.most)
        _add(module, self.steps, int(2.0 ** (power - lot if late else power * lot)), whole=True)


def counts(module: nn.Module, moving: Iterable[str], call: Callable[[], object]) -> Counts:
    """Those among the buffers that a ``call`` moves. The module keeps what it holds."""
    held = module.state_dict()
    names = [n for n in moving if _may_count(held[n])]
    before = {name: value.clone() for name, value in held.items()} if names else {}
    try:
        rows = [_values(module, names)] if names else []
        for _ in range(STEADY if names else 0):
            call()
            rows.append(_values(module, names))
        moves = {name: [b[name] - a[name] for a, b in pairwise(rows)] for name in names}
        steps = {
            name: found[0]
            for name, found in moves.items()
            if bool(found[0].any()) and all(_near(other, found[0]) for other in found)
        }
        for power in LATER if steps else ():
            module.load_state_dict(before)
            _add(module, steps, 1 << power)
            if _counts_on(module, steps, call):
                return Counts(steps, 1 << power)
    except (TaskError, MachineError):
        pass
    finally:
        if names:
            module.load_state_dict(before)
    return Counts({}, 1)


def _counts_on(module: nn.Module, steps: State, call: Callable[[], object]) -> bool:
    before = _values(module, steps)
    try:
        call()
    except TaskError:  # an index of a place that there is not
        return False
    after = _values(module, steps)
    return all(_near(after[name] - before[name], step) for name, step in steps.items())


@torch.no_grad()
def _add(module: nn.Module, steps: State, calls: int, *, whole: bool = False) -> None:
    held = module.state_dict()
    for name, step in steps.items():
        value = held[name]
        if whole and value.is_floating_point():
            moved = torch.where(step == 0, torch.ones_like(step), step)
            made = (value.double() / moved).round() * moved
            made = torch.where(step > 0, made.clamp_min(0.0), made)
            value.copy_(torch.where(step == 0, value.double(), made))
        value.add_((step * calls).to(value.dtype))


def _values(module: nn.Module, names: Iterable[str]) -> dict[str, torch.Tensor]:
    """As numbers in which small steps of large counts are exact."""
    held, names = module.state_dict(), list(names)
    kind = {n: torch.float64 if held[n].is_floating_point() else torch.int64 for n in names}
    return {n: held[n].to(kind[n], copy=True) for n in names}


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """The same step; of a float as far as it can be told where the count is large."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    return bool(((one - other).abs() <= ROUNDED * other.abs()).all())


def _may_count(tensor: torch.Tensor) -> bool:
    """An integer of 8 or 16 bits does not count far; of a float it is seen how far it does."""
    wide = tensor.is_floating_point() or tensor.dtype.itemsize >= 4
    return wide and 0 < tensor.numel() <= MOST and not tensor.is_complex()
