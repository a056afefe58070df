"""Which attributes and unsaved buffers forward leaves for code around the module.

A kernel must leave what such code could miss, and nothing that only forward itself uses. So of what calls
change, a value counts that a new module leaves again on the same inputs (no clock decides it) and that

* is another one on other inputs, under other weights or behind another number of calls: a table made of
  constants, a mask, the shape of the last call or a flag that something was prepared is not; and
* answers do not follow from, which would show it: no answer of the next call does, where what this call has
  written is something else. A step of a decoder reads its cache, but overwrites the slot of the last step; so
  only the elements that were written count.

What follows from weights and the number of calls alone can be computed again by whoever wants it. It is asked
for where forward does nothing else with it (a penalty, a count of steps), and not where it reads it itself
(packed or normalized weights).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from egg.core.errors import TaskError
from egg.evaluator.reference.answers import same_values
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.attributes import Shown, attributes_of, held_in, shown_in
from egg.evaluator.task.distributions import rerandomise
from egg.evaluator.task.program import outputs_of
from egg.evaluator.tensors.reals import EIGHT_BITS

CALLS = 3
"""Of a new instance: some values are there from the second call on."""
REPEATED = 2e-3
"""Of the largest element: what a value may be off by where it is left again by a GPU, which may add in any
order. A processor leaves the same."""
Left = dict[str, Shown | None]


def for_callers(reference: Reference) -> list[str]:
    """Their paths. The reference's module is left as it is."""
    if not reference.leaves:
        return []
    given, others = ([reference.draw() for _ in range(CALLS)] for _ in range(2))
    *_, last = _history(reference, given)
    *_, again = _history(reference, given)
    *_, other = _history(reference, others)
    *_, earlier, later = _history(reference, given[:1] * CALLS)
    try:
        *_, heavier = _history(reference, given, _reweighed)
    except TaskError:  # a table that the program looks up by what it computed of the weights
        heavier = last
    allowed = 0.0 if reference.device.type == "cpu" else REPEATED
    answers = _Answers.of(reference, others)
    found = []
    for name in reference.leaves:
        value = last.get(name)
        if value is None or not _near(again.get(name), value, allowed):
            continue
        by_inputs = value != other.get(name)
        moves = earlier.get(name) != later.get(name)
        if by_inputs or moves or value != heavier.get(name):
            found += [] if answers.follow(name, at_once=not by_inputs) else [name]
    return found


@contextmanager
def anew(reference: Reference) -> Iterator[None]:
    """Meanwhile the reference's module is one that was never called, with the weights of the other."""
    usual = reference.module
    reference.module = reference.anew()
    try:
        yield
    finally:
        reference.module = usual


def _reweighed(module: nn.Module) -> None:
    rerandomise(module, secrets.randbits(48))


def _history(
    reference: Reference, given: list[list[Any]], prepare: Callable[[nn.Module], None] = lambda module: None
) -> list[Left]:
    """What a new instance holds behind each of a few calls."""
    found = []
    with anew(reference):
        prepare(reference.module)
        for inputs in given:
            reference.run(inputs)
            found.append(shown_in(reference.module))
    return found


def _near(again: Shown | None, value: Shown, allowed: float) -> bool:
    if again is None or again[0] != value[0] or len(again[1]) != len(value[1]):
        return False
    got, wanted = (torch.tensor(values, dtype=torch.float64) for values in (again[1], value[1]))
    most = allowed * float(wanted.nan_to_num(0.0, 0.0, 0.0).abs().max()) if len(wanted) else 0.0
    return bool((((got - wanted).abs() <= most) | (got == wanted) | (got.isnan() & wanted.isnan())).all())


@dataclass(frozen=True)
class _Answers:
    """The answer to the last of some calls of a new instance, as it is and where a value is another one."""

    reference: Reference
    given: list[list[Any]]
    usual: list[Any]

    @classmethod
    def of(cls, reference: Reference, given: list[list[Any]]) -> _Answers:
        with anew(reference):
            return cls(reference, given, [_leaves(reference, inputs) for inputs in given][-1])

    def follow(self, name: str, *, at_once: bool) -> bool:
        """Whether it follows from what the call before has written there; ``at_once``: or from what forward
        finds there in this call, whether it has just written it or not."""
        *earlier, before_last, last = self.given
        with anew(self.reference):
            for inputs in earlier:
                self.reference.run(inputs)
            before = _copied(attributes_of(self.reference.module).get(name))
            self.reference.run(before_last)
            held = held_in(self.reference.module).get(name)
            if held is None:
                return False
            if at_once and isinstance(held.owner, nn.Module):
                show_another(held.owner, held.key)
            else:
                held.put(another(held.value, before))
            try:
                return not all(map(same_values, *_tensors(self.usual, _leaves(self.reference, last))))
            except (TaskError, ValueError):  # no answer, or one of another form
                return True


def _leaves(reference: Reference, inputs: list[Any]) -> list[Any]:
    return [leaf for _, leaf in outputs_of(reference.run(inputs))]


def _tensors(one: list[Any], other: list[Any]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Both as tensors: an answer may be a number."""
    pairs = [(a, b) for a, b in zip(one, other, strict=True) if isinstance(a, torch.Tensor | int | float)]
    return [torch.as_tensor(a) for a, _ in pairs], [torch.as_tensor(b) for _, b in pairs]


def show_another(module: nn.Module, name: str) -> None:
    """From now on whoever reads this attribute of the module finds another value."""
    kind = type(module)

    class Other(kind):
        def __getattribute__(self, key: str) -> Any:
            value = super().__getattribute__(key)
            return another(value) if key == name else value

        def __getattr__(self, key: str) -> Any:  # of buffers
            value = super().__getattr__(key)
            return another(value) if key == name else value

    module.__class__ = Other


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def another(value: Any, before: Any = None) -> Any:
    """Something else of the same form; of a tensor that was there ``before``, in the elements that differ."""
    if not isinstance(value, torch.Tensor):
        return 2 - value if isinstance(value, int | float) else None
    if value.layout != torch.strided:
        return value * -2
    found = ~value if value.dtype is torch.bool else (2 - value.to(_arithmetic(value.dtype))).to(value.dtype)
    if isinstance(before, torch.Tensor) and before.shape == value.shape:
        return torch.where(before == value, value, found)
    return found


def _arithmetic(dtype: torch.dtype) -> torch.dtype:
    """Floats of 8 bits have none."""
    return torch.float32 if dtype in EIGHT_BITS else dtype
