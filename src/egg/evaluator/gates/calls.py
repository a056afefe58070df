"""Which calls beside the task's own are put: changes alone, together, and crossed with one another."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
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
    SMALL,
    Alias,
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
from egg.evaluator.task.unusual_kinds import OFFSET

MOST_AXES, MOST_TENSORS, MOST_PAIRS, MOST_MIXED = 6, 4, 3, 4
MOST_NAMED, MOST_FLAGS = 8, 6
RESIDUES = (4, 8, 16)
MULTIPLES = (2, 3)
LEAST_NAMED = 4
"""Smaller numbers in a file count dimensions."""
FEW_ELEMENTS = 1 << 16
"""Of all inputs, up to which a size that the file names may be asked for."""
STAGGERED = (Form.TRANSPOSED, Form.STRIDED, Form.ROWS, Form.EXPANDED)
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
        for one, other in self._unlike():
            axis, value = (one, other.size) if one.size < other.size else (other, one.size)
            if axis.step == 1:
                yield Change(sizes=((axis, value),))

    def _unlike(self) -> list[tuple[Axis, Axis]]:
        """Pairs of free dimensions of different sizes."""
        return [(a, b) for a, b in combinations(self.axes, 2) if a.size != b.size][:MOST_PAIRS]

    def exchanged(self) -> Iterator[Change]:
        """Two dimensions exchange their sizes: as many elements as before, in other rows."""
        for one, other in self._unlike():
            held = together(self.task, ((one, other.size), (other, one.size)))
            legally = legal(one, other.size, self.given) and legal(other, one.size, self.given)
            if len(held) == 2 and legally and one.step == other.step == 1:
                yield Change(sizes=held)

    def multiples(self) -> Iterator[Change]:
        """All free dimensions twice and three times as large, or each alone; or all a little larger.

        A loop that ends after one tile is right wherever one tile is all there is.
        """
        for times in MULTIPLES:
            grown = [(axis, times * axis.size) for axis in self.axes if axis.size % axis.step == 0]
            every = Change(sizes=together(self.task, tuple(grown)))
            if every.sizes and self.claims.elements(every) <= SMALL:
                yield every
            else:
                alone = (Change(sizes=(one,)) for one in grown)
                yield from (change for change in alone if self.claims.elements(change) <= SMALL)
        little = tuple((axis, larger_size(axis, self.given)) for axis in self.axes)
        yield Change(sizes=together(self.task, little))

    def sizes_of(self, numbers: Iterable[int]) -> Iterator[Change]:
        """Each free dimension at ``numbers`` and one beyond: there the file may take another way."""
        own = self.claims.elements(Change())
        most, left = min(SMALL, max(FEW_ELEMENTS, 4 * own)), MOST_NAMED
        for number in numbers:
            if number > most:  # no tensor of that size can be made, not even to count its elements
                continue
            for value, axis in product((number + 1, number), self.axes):
                change = Change(sizes=((axis, value),))
                fits = axis.step == 1 and value != axis.size and legal(axis, value, self.given)
                if left and fits and self.claims.elements(change) <= most:
                    left -= 1
                    yield change

    # -- layouts ---------------------------------------------------------------------------------------------

    def forms(self, *forms: Form) -> tuple[Any, ...]:
        fit = {path: tuple(f for f in forms if fitting(f, tensor)) for path, tensor in self.tensors.items()}
        return tuple((path, held) for path, held in fit.items() if held)

    def layouts(self) -> Iterator[Change]:
        """Every form of all tensors at once, then several tensors in different forms."""
        for form in Form:
            yield Change(forms=self.forms(form))
        yield Change(sizes=self.joint(), forms=self.forms(Form.WINDOWS))  # at odd sizes they may look dense
        fit = {p: [f for f in STAGGERED if fitting(f, t)] for p, t in self.tensors.items()}
        several = [path for path, forms in fit.items() if forms]
        for turn in range(len(STAGGERED) if len(several) > 1 else 0):
            laid = {p: fit[p][(turn + at) % len(fit[p])] for at, p in enumerate(several)}
            yield Change(forms=tuple((path, (form,)) for path, form in laid.items()))

    def layouts_of_each(self) -> Iterator[Change]:
        """Every form of each tensor alone, while the others lie as they do."""
        if len(self.tensors) > 1:
            for path in list(self.tensors)[:MOST_TENSORS]:
                for form in Form:
                    if fitting(form, self.tensors[path]):
                        yield Change(forms=((path, (form,)),))

    def aliases(self) -> Iterator[Change]:
        """The same memory given twice, in one order and in two, of inputs of one shape that are only read."""
        read = [(p, t) for at, (p, t) in enumerate(self.tensors.items()) if at not in self.reference.writes]
        floats = [path for path, t in read if t.is_floating_point() and t.numel() > 1]
        alike = [
            (one, other)
            for one, other in combinations(floats, 2)
            if (a := self.tensors[one]).shape == (b := self.tensors[other]).shape and a.dtype is b.dtype
        ]
        for one, other in alike[:MOST_PAIRS]:
            yield Change(alias=Alias(one, other))
            if sum(size > 1 for size in self.tensors[one].shape) > 1:
                yield Change(alias=Alias(one, other, transposed=True))

    def values_laid(self) -> Iterator[Change]:
        """Values far from zero at other layouts: a kernel may take another way for them there.

        Not where integers come back: the place of one of several maxima is the reference's own choice.
        """
        outputs = [leaf for _, leaf in self.reference.sample.outputs if isinstance(leaf, torch.Tensor)]
        if all(leaf.is_floating_point() for leaf in outputs):
            for forms in ((Form.TRANSPOSED,), SCATTERED):
                if laid := self.forms(*forms):
                    yield Change(forms=laid, unusual=OFFSET)

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

    def pairs_of_arguments(self) -> Iterator[Change]:
        """Constructor arguments two at a time: one alone, and all, leave most pairs of flags out."""
        others = other_arguments(self.task)
        for pair in list(combinations(others, 2) if len(others) > 2 else ())[:MOST_FLAGS]:
            if len(held := jointly(self.task, pair)) == 2:
                yield Change(arguments=held)

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
    """Single inputs in another dtype that the file names for them, then two in two different ones."""
    found = [
        (path, name)
        for path, dtype in own.items()
        for name in stated.get(claims.name(path), ())
        if isinstance(getattr(torch, name, None), torch.dtype)
        and getattr(torch, name) is not dtype
        and not (alone and dtype.is_floating_point)
    ]
    yield from (Change(dtypes=(one,)) for one in found[:MOST_MIXED])
    pairs = [(a, b) for a, b in combinations(found, 2) if a[0] != b[0] and a[1] != b[1]]
    yield from (Change(dtypes=pair) for pair in pairs[:MOST_MIXED])


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


def numbers_of(source: str) -> list[int]:
    """Whole numbers that a file's host code may hold a size against: those it compares with come first."""
    compared: list[int] = []
    others: list[int] = []
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(source), False)]
    while stack:
        node, inside = stack.pop()
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            continue
        inside = inside or isinstance(node, ast.Compare)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= LEAST_NAMED:
            (compared if inside else others).append(node.value)
        stack += [(child, inside) for child in ast.iter_child_nodes(node)]
    return list(dict.fromkeys((*compared, *others)))
