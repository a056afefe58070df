"""Which calls beside the task's own are put: changes alone, together, and crossed with one another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch

from egg.core.domain import Domain, Size, TensorInput
from egg.core.policy import Precision
from egg.core.sizes import names_in, value_of
from egg.evaluator.gates.claims import Claims
from egg.evaluator.reference.arguments import (
    far_arguments,
    far_values,
    jointly,
    other_arguments,
    other_values,
    runs,
)
from egg.evaluator.reference.forms import Form, fitting
from egg.evaluator.reference.probes import (
    Change,
    axes_of,
    batch_of,
    even_size,
    larger_size,
    legal,
    odd_size,
    residue_size,
    together,
)
from egg.evaluator.task.dimensions import Axis, Path, Place
from egg.evaluator.task.precision import HALF_DTYPES

MOST_AXES, MOST_TENSORS, MOST_PAIRS, MOST_MIXED = 6, 4, 3, 4
RESIDUES = (4, 8, 16)
SCATTERED = (Form.STRIDED, Form.OFFSET, Form.ROWS)
"""Gaps between the elements and between the rows, and no alignment: one layout for all three."""


@dataclass
class Calls:
    """Makes the changes, for one task."""

    claims: Claims

    def __post_init__(self) -> None:
        self.reference = self.claims.trial.reference
        self.task = self.reference.program.task
        self.given, self.tensors = self.claims.given, self.claims.tensors

    # -- sizes -----------------------------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[Axis, ...]:
        return axes_of(self.task)[:MOST_AXES]

    def joint(self, *, alike: bool = False) -> tuple[tuple[Axis, int], ...]:
        """Every free dimension at another size, no two alike, as far as the program takes them together.

        Without data some programs take what they refuse with it (scores of one batch, targets of another):
        ``alike`` changes equal sizes alike.
        """
        chosen: dict[Axis, int] = {}
        taken = {axis.size for axis in self.axes}
        for axis in self.axes:
            same = next((v for a, v in chosen.items() if alike and a.size == axis.size), None)
            chosen[axis] = odd_size(axis, taken, self.given) if same is None else same
            taken.add(chosen[axis])
        return together(self.task, tuple(chosen.items()))

    def batch_of_one(self) -> tuple[Change, Change] | None:
        """Alone, and with all dimensions of the same size."""
        axis = batch_of(self.axes)
        if axis is None or axis.size == 1 or axis.step != 1 or not legal(axis, 1, self.given):
            return None
        every = Change(sizes=tuple((a, 1) for a in self.axes if a.size == axis.size))
        return Change(sizes=((axis, 1),)), every

    def sizes(self) -> Iterator[Change]:
        """Each free dimension alone: odd, even, one, larger."""
        taken = {axis.size for axis in self.axes}
        for axis in self.axes:
            one = 1 if axis.step == 1 and legal(axis, 1, self.given) else axis.size
            odd, even = odd_size(axis, taken, self.given), even_size(axis, taken, self.given)
            for value in (odd, even, one, larger_size(axis, self.given)):
                if value is not None and value != axis.size:
                    yield Change(sizes=((axis, value),))

    def residues(self) -> Iterator[Change]:
        """All free dimensions at multiples of 4, then 8, then 16, and of nothing more; then pairs alike."""
        for residue in RESIDUES:
            taken = {axis.size for axis in self.axes}
            chosen: list[tuple[Axis, int]] = []
            for axis in self.axes:
                if (value := residue_size(axis, residue, taken, self.given)) is not None:
                    chosen.append((axis, value))
                    taken.add(value)
            yield Change(sizes=together(self.task, tuple(chosen)))
        pairs = [(a, b) for a, b in combinations(self.axes, 2) if a.size != b.size]
        for one, other in pairs[:MOST_PAIRS]:
            axis, value = (one, other.size) if one.size < other.size else (other, one.size)
            if axis.step == 1:
                yield Change(sizes=((axis, value),))

    # -- layouts ---------------------------------------------------------------------------------------------

    def forms(self, *forms: Form) -> tuple[Any, ...]:
        fit = {path: tuple(f for f in forms if fitting(f, tensor)) for path, tensor in self.tensors.items()}
        return tuple((path, held) for path, held in fit.items() if held)

    def layouts(self) -> Iterator[Change]:
        """Every form of all tensors at once, then of each alone while the others lie as they do."""
        for form in Form:
            yield Change(forms=self.forms(form))
        if len(self.tensors) > 1:
            for path in list(self.tensors)[:MOST_TENSORS]:
                for form in Form:
                    if fitting(form, self.tensors[path]):
                        yield Change(forms=((path, (form,)),))

    def crossed(self, change: Change) -> Iterator[Change]:
        """A change of mode, dtype or arguments at other layouts, and at other sizes as well."""
        scattered = replace(change, forms=self.forms(*SCATTERED))
        sizes = () if change.arguments else self.joint()
        yield replace(scattered, sizes=sizes)
        yield replace(change, forms=self.forms(Form.TRANSPOSED))

    # -- arguments, values -----------------------------------------------------------------------------------

    def arguments(self) -> tuple[tuple[str, Any], ...]:
        return jointly(self.task, other_arguments(self.task))

    def values(self) -> tuple[tuple[int, Any], ...]:
        """Numbers that ``forward`` is given: another one each."""
        others = {
            at: other_values(value)[:1]
            for at, value in enumerate(self.given.forms)
            if isinstance(value, bool | int | float)
        }
        return tuple((at, found[0]) for at, found in others.items() if found)

    def alone(self) -> Iterator[Change]:
        """Each constructor argument and each number of ``forward``, near its own value and far from it."""
        yield from (Change(arguments=(argument,)) for argument in other_arguments(self.task))
        yield from (Change(values=(value,)) for value in self.values())
        yield from (Change(arguments=(argument,)) for argument in far_arguments(self.task))
        for at, value in enumerate(self.given.forms):
            if isinstance(value, int | float):
                yield from (Change(values=((at, far),)) for far in far_values(value))
        yield from self._tied()

    def _tied(self) -> Iterator[Change]:
        """Arguments that a dimension of the inputs follows, with the inputs that belong to them."""
        domain = self.claims.domain
        if domain is None:
            return
        own = self.claims.call(Change())
        for size in domain.sizes:
            value = own.arguments.get(size.argument) if size.argument else None
            if type(value) is not int:
                continue
            bound = domain.built(own) | {size.name: value}
            little = [(value // 64 * 32 + residue,) for residue in RESIDUES]
            for others in ((value + 1, 2 * value, value // 2), *little):
                made = (self._with_inputs(size, bound, other) for other in others if 0 < other != value)
                yield from [change for change in made if change is not None][:1]

    def _with_inputs(self, size: Size, bound: dict[str, int], other: int) -> Change | None:
        """Its argument at another value, with the inputs that follow; nothing where that does not run."""
        domain = self.claims.domain
        assert domain is not None
        sizes = _following(self.claims, domain, size.name, bound, other)
        places = {place: n for axis, n in sizes for place in axis.places}
        if not places or not runs(self.reference.program, {size.argument: other}, places):
            return None
        return Change(arguments=((size.argument, other),), sizes=sizes)

    # -- modes, dtypes ---------------------------------------------------------------------------------------

    def other_mode(self) -> Change:
        return Change(training=not self.reference.module.training)

    def dtypes(self) -> Iterator[Change]:
        """For a file that states a domain: other precisions, and every dtype that it names."""
        domain = self.claims.domain
        if domain is None:
            return
        half = self.claims.trial.policy.precision in HALF_DTYPES
        yield from (Change(precision=p) for p in ((Precision.MATCH,) if half else HALF_DTYPES))
        stated = {given.name: given.dtypes for given in domain.inputs if isinstance(given, TensorInput)}
        own = {path: t.dtype for path, t in self.tensors.items() if len(path) == 1}
        floats = [path for path, dtype in own.items() if dtype.is_floating_point]
        named = all("float64" in stated.get(self.claims.name(path), ()) for path in floats)
        if named and any(own[path] is not torch.float64 for path in floats):
            yield Change(wide=True)
        yield from _mixed(self.claims, own, stated, alone=len(floats) == 1)


def _mixed(
    claims: Claims, own: dict[Path, torch.dtype], stated: dict[str, tuple[str, ...]], *, alone: bool
) -> Iterator[Change]:
    """Single inputs in another dtype that the file names for them, the others as they are."""
    found: Iterable[Change] = (
        Change(dtypes=((path, name),))
        for path, dtype in own.items()
        for name in stated.get(claims.name(path), ())
        if isinstance(getattr(torch, name, None), torch.dtype)
        and getattr(torch, name) is not dtype
        and not (alone and dtype.is_floating_point)
    )
    for at, change in enumerate(found):
        if at == MOST_MIXED:
            return
        yield change


def _following(
    claims: Claims, domain: Domain, name: str, bound: dict[str, int], value: int
) -> tuple[tuple[Axis, int], ...]:
    """Dimensions of the inputs that follow the size ``name``, at what they are where it is ``value``."""
    found: list[tuple[Axis, int]] = []
    for given in domain.inputs:
        if not isinstance(given, TensorInput) or given.name not in claims.names:
            continue
        path = (claims.names.index(given.name),)
        for dim, size in enumerate(given.shape):
            if name in names_in(size):
                if not names_in(size) <= bound.keys() or path not in claims.tensors:
                    return ()
                axis = Axis((Place(path, dim),), claims.tensors[path].shape[dim])
                found.append((axis, value_of(size, bound | {name: value})))
    return tuple(found)
