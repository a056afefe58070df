"""Checks of what a candidate delivered: form, values, memory of its own, and inputs left as they were."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch

from egg.core.policy import Policy, Precision
from egg.evaluator.compare import compensated, copies
from egg.evaluator.compare.compare import NOT_KNOWN, STILL, LeafError, Usual, Worst, by_conditioning, compare
from egg.evaluator.compare.integers import NONE, Crossed, are_integers
from egg.evaluator.compare.part import Part
from egg.evaluator.compare.places import wrong_places
from egg.evaluator.reference import conditioning, ties
from egg.evaluator.reference.answers import same_bytes
from egg.evaluator.reference.case import Case
from egg.evaluator.reference.moved_only import copied
from egg.evaluator.reference.reference import Reference
from egg.evaluator.reference.yardstick import Yardstick
from egg.evaluator.task.written_inputs import WRITTEN
from egg.evaluator.transport import protocol
from egg.evaluator.trial import left_alone
from egg.evaluator.trial.buffers import Buffers
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.wrong import crossed, inexact
from egg.evaluator.worker.outputs import aliases, layout_of, resolved

PRIME = 2**61 - 1
EXPLICABLE = 0.25
"""A relative rms error beyond this is no rounding, however the program amplifies it."""


@dataclass(slots=True)
class Checks:
    """Holds outputs against the reference's; remembers the worst that passed.

    Slots, because the task's code runs in this process: no attribute can hide a method of a live object.
    """

    reference: Reference
    policy: Policy
    buffers: Buffers
    names: Mapping[str, str] = field(default_factory=dict)
    """The candidate's parameters, each with the reference's name for it."""
    worst: Worst = field(default_factory=Worst)
    usual: dict[int, Usual] = field(default_factory=dict)
    """The reference's own error at the task's own call, by the output's place."""
    crossed: dict[int, Crossed] = field(default_factory=dict)
    """Of outputs of integers, over all answers so far, by their place: how many are the next integer."""
    computed: set[int] = field(default_factory=set)
    """Places of outputs that are known to be computed, rather than moved."""
    partners: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Of outputs that hold the rounding error of another one: its place, and the sign."""
    banded: ClassVar[bool] = True
    """Whether elements are compared by their magnitude as well."""

    def check(self, case: Case, outputs: Sequence[protocol.OutputForm] | None, index: int = 0) -> Case:
        """Form first, then every value of every output; raises :class:`Refused` at the first fault.

        Without ``outputs`` only what lies in memory is checked: the form was, before. Returns the question
        with the answers that these agree with.
        """
        numbers = None if outputs is None else self.check_form(case, outputs)
        return self.check_values(case, self.buffers.outputs(index), numbers)

    def check_values(
        self, case: Case, delivered: list[torch.Tensor | None], numbers: list[float | None] | None = None
    ) -> Case:
        """Every value of every output that was ``delivered``, and the plain ``numbers`` if there are any.

        Returns the question with the answers that they agree with (:meth:`agreed`).
        """
        return self.agreed(case, lambda answered: self.hold(answered, delivered, numbers), delivered)

    def agreed(
        self,
        case: Case,
        check: Callable[[Case], object],
        delivered: Sequence[torch.Tensor | None] = (),
    ) -> Case:
        """The question with those of its right answers that pass ``check``: the reference's, or these with
        equal elements in another order, where PyTorch leaves that open. The refusal is the reference's."""
        before = copy.copy(self.worst), dict(self.usual), dict(self.crossed)
        try:
            check(case)
        except Refused as wrong:
            agreed, others = self._otherwise(case, check, delivered, before)
            if agreed is None:
                wrong.evidence += f" (with equal elements in {others} other orders as well)" if others else ""
                raise
            return agreed
        return case

    def _otherwise(
        self,
        case: Case,
        check: Callable[[Case], object],
        delivered: Sequence[torch.Tensor | None],
        before: tuple[Worst, dict[int, Usual], dict[int, Crossed]],
    ) -> tuple[Case | None, int]:
        """Another right answer that passes, and how many were looked at; what was remembered ``before`` the
        first one is remembered again."""
        after, others = (self.worst, self.usual, self.crossed), 0
        for other in ties.variants(self.reference, case, delivered):
            others += 1
            self.worst, self.usual, self.crossed = copy.copy(before[0]), dict(before[1]), dict(before[2])
            with contextlib.suppress(Refused):
                check(other)
                return other, others
        self.worst, self.usual, self.crossed = after
        return None, others

    def hold(
        self,
        case: Case,
        delivered: Sequence[torch.Tensor | None],
        numbers: list[float | None] | None = None,
        parts: Mapping[int, Part] | None = None,
    ) -> None:
        """Every value, by these answers alone; of outputs of which there are ``parts``, by their places, of
        these alone. Elsewhere the reference's own must stand in."""
        plain: Sequence[float | None] = numbers or [None] * len(case.outputs)
        self.worst.checks += 1
        for position, ((path, expected), (_, golden)) in enumerate(
            zip(case.outputs, case.golden, strict=True)
        ):
            got = delivered[position] if isinstance(expected, torch.Tensor) else plain[position]
            if got is None:
                continue
            part = (parts or {}).get(position)
            if self.reference.writes and path.startswith(f"{WRITTEN}."):
                left_alone.check(case, path, got, expected, golden)
            error = self.error(case, position, got, expected, golden, part)
            if error.of_noise and not error.problem:
                error = self._with_its_partner(case, position, delivered, error, part)
            self.worst.take(error, own=case.own)
            if case.own:
                before = self.usual.get(position, NOT_KNOWN)
                self.usual[position] = Usual(
                    max(before.max, error.reference_peak),
                    max(before.rms, error.reference_relative),
                    max(before.lost, error.reference_lost),
                )
            if not error.passed:
                raise self._located(case, path, error, got, golden)
            found = self.crossed[position] = self.crossed.get(position, NONE) + error.crossed
            if found.too_many:
                raise crossed(case, path, found)

    def error(
        self,
        case: Case,
        position: int,
        got: Any,
        expected: Any,
        golden: Any,
        part: Part | None = None,
    ) -> LeafError:
        """By the ordinary rule; where it refuses what rounding could explain, with conditioning: first with
        that of functions alone, which is asked in a moment and explains small elements only."""
        three = [_only(part, tensor_of(value)) for value in (got, expected, golden)]
        itself = self.by_itself(case, three[1])
        rule = partial(compare, *three, self.policy.precision, by_itself=itself, part=part)
        banded = self.by_size(case, three[1])
        error = rule(banded=banded)
        if error.problem and are_integers(three[1]):
            others = conditioning.crossed(self.reference, case, position, part)
            return rule(crossed=[tensor_of(leaf) for leaf in others])
        if error.problem:
            return error
        if error.max_ratio and self.copied(case, position, expected):
            changed = copies.compare(three)
            if changed:
                return replace(error, problem=changed)
        if not error.passed and isinstance(expected, float):
            kind = conditioning.read_as(self.reference, case)
            error = rule(banded=banded, computed_in=kind)
        if not error.passed and not error.relative < EXPLICABLE:
            return error
        functions = STILL
        if not error.passed and max(error.max_ratio, error.rms_ratio) <= 1.0:
            functions = conditioning.by_functions(self.reference, case, position, part)
            if functions is not STILL:
                error = rule(functions, banded=banded)
        if not error.passed:
            moved = conditioning.moved(self.reference, case, position, part).times(case.leeway)
            error = rule(functions | moved, banded=banded)
            if not error.passed and itself and not conditioning.fine(self.reference, case, position):
                error = rule(functions | moved, by_itself=False)
        return self._by_conditioning(case, position, three, error, part)

    def _with_its_partner(
        self,
        case: Case,
        position: int,
        delivered: Sequence[torch.Tensor | None],
        error: LeafError,
        part: Part | None,
    ) -> LeafError:
        """Of an output that holds the rounding error of another one: the error of both together. Once that
        was found it is so at every question, also where other inputs leave more to rounding."""
        leaves, exact = [leaf for _, leaf in case.outputs], [leaf for _, leaf in case.golden]
        if position not in self.partners and (found := compensated.partner(position, leaves, exact)):
            self.partners[position] = found
        other, sign = self.partners.get(position, (position, 0.0))
        main, rest = delivered[other], delivered[position]
        if other == position or main is None or rest is None:
            return error
        held = ((main, leaves[other], exact[other]), (rest, leaves[position], exact[position]))
        one, two = (tuple(_only(part, leaf) for leaf in three) for three in held)
        return compensated.together(one, two, sign, self.policy.precision)

    def copied(self, case: Case, position: int, expected: Any) -> bool:
        """Whether the output is nowhere computed. Once it is at the task's own draws, it is so at every
        question: each answer takes a run of the reference. At other draws it may be for their values alone:
        an integer beyond what a float holds."""
        if position in self.computed or not isinstance(expected, torch.Tensor):
            return False
        if copied(self.reference, case, position):
            return True
        if case.own:
            self.computed.add(position)
        return False

    def _by_conditioning(
        self,
        case: Case,
        position: int,
        three: Sequence[torch.Tensor],
        error: LeafError,
        part: Part | None,
    ) -> LeafError:
        """What the reference's error alone allows, held to that of elements that are conditioned as well."""
        if not error.passed or not error.suspected:
            return error
        moves = conditioning.sensitivity(self.reference, case, position, part)
        functions = conditioning.by_functions(self.reference, case, position, part).functions
        band = by_conditioning(three, moves, self.policy.precision, functions)
        return replace(error, band=max(error.band, band, key=lambda one: one.ratio))

    def by_size(self, case: Case, output: torch.Tensor) -> bool:
        """Whether elements of the output are held to others of their own size, too."""
        return self.banded and case.leeway == 1.0 and _exact(case.yardstick, output)

    def by_itself(self, case: Case, output: torch.Tensor) -> bool:
        """Whether elements are held to others of their own size though no exacter run measures them: where
        there is none at any question, and 32 bits are rounded to. In coarser arithmetic one rounding of the
        reference's shows as much as what is looked for."""
        own = case.yardstick is Yardstick.ITSELF and self.reference.yardstick is Yardstick.ITSELF
        wide = output.dtype in (torch.float32, torch.float64) and self.policy.precision is not Precision.TF32
        return self.banded and own and wide and case.leeway == 1.0

    def check_form(self, case: Case, described: Sequence[protocol.OutputForm]) -> list[float | None]:
        """Names, shapes, dtypes, devices and plain types as the reference's; returns the plain numbers."""
        names, wanted = [d.path for d in described], [path for path, _ in case.outputs]
        if names != wanted:
            raise Refused(
                "correctness.outputs", f"outputs {names} where the reference returns {wanted}",
                "return the same structure as Model.forward: same order, same keys",
            )  # fmt: skip
        for got, (path, expected) in zip(described, case.outputs, strict=True):
            for key, value in _form(expected).items():
                found = getattr(got, key)
                if found != value and not (key == "layout" and found == resolved(value)):
                    raise Refused(
                        f"correctness.{key}",
                        f"output {path}: {key} is {_shown(found)!r}, expected {_shown(value)!r}",
                        "outputs must match the reference exactly in shape, dtype, device and plain type",
                    )
            if not isinstance(expected, torch.Tensor) and got.number is None:
                raise Refused("correctness.number", f"output {path}: no number was given", "return a number")
        return [_plain(got) for got in described]

    def check_returned(self, case: Case, reply: protocol.Forwarded) -> None:
        """Containers and kinds of numbers as the reference's; contiguous outputs where it has such."""
        if case.returned and reply.returned != case.returned:
            raise Refused(
                "correctness.outputs",
                f"forward returns {reply.returned[:300]} where the reference returns {case.returned[:300]}",
                "return the same structure as Model.forward: the same containers, an int for an int",
            )
        for got, (path, expected) in zip(reply.outputs, case.outputs, strict=True):
            if not case.own or not isinstance(expected, torch.Tensor) or not expected.is_contiguous():
                continue
            laid = torch.empty_strided(expected.shape, got.stride or (), device="meta")
            if not laid.is_contiguous():
                raise Refused(
                    "correctness.strides",
                    f"output {path} has strides {list(laid.stride())} where the reference's is contiguous",
                    "write the output in the order in which the reference's lies: a view that turns or skips "
                    "leaves the work to the code that reads it",
                )

    def check_apart(self, case: Case, reported: Sequence[tuple[str, str]]) -> None:
        """Outputs lie in memory of their own where the reference's do."""
        usual = aliases(case.outputs, case.inputs, self.reference.module)
        for path, whose in reported:
            if (path, whose) not in usual:
                seen = f"output {path} shares its memory with {whose}, and the reference's does not"
                if whose == "itself":
                    seen = f"elements of output {path} lie in the same memory, and the reference's do not"
                raise Refused(
                    "state.aliased", f"{case.label}: {seen}",
                    "return tensors that are written in full, in memory of their own: no expanded view, no "
                    "tensor twice, no input or parameter",
                )  # fmt: skip

    def check_inputs_unchanged(self, case: Case, index: int = 0) -> None:
        pairs = zip(self.buffers.sets[index].inputs, case.tensors, strict=True)
        for number, (slot, tensor) in enumerate(pairs):
            if number not in self.reference.writes and not same_bytes(self.buffers.view(slot), tensor):
                raise Refused(
                    "correctness.inputs", f"{case.label}: an input was changed by the candidate",
                    "write to new tensors; inputs belong to the caller",
                )  # fmt: skip
        if self.buffers.around.changed(self.buffers.sets[index].inputs):
            raise Refused(
                "correctness.inputs",
                f"{case.label}: memory between the rows of an input, or before it, was changed",
                "keep intermediate results in tensors of your own: what lies between the rows of a strided "
                "input belongs to the caller",
            )

    def _located(self, case: Case, path: str, error: LeafError, got: Any, golden: Any) -> Refused:
        """Made apart from where it is raised: a frame that held it would outlive it, with its tensors."""
        wrong = inexact(case, path, error, self.policy.precision, self.names)
        places = wrong_places(tensor_of(got), tensor_of(golden))
        wrong.facts = replace(wrong.facts, places=places)
        return wrong


def _form(expected: Any) -> dict[str, Any]:
    """What must be reported of an output that stands for ``expected``."""
    if not isinstance(expected, torch.Tensor):
        return {"type": "number"}
    return {
        "type": "Tensor",
        "shape": tuple(expected.shape),
        "dtype": str(expected.dtype),
        "device": expected.device.type,
        "layout": layout_of(expected),
    }


def _only(part: Part | None, leaf: torch.Tensor) -> torch.Tensor:
    return leaf if part is None else part.of(leaf)


def _exact(yardstick: Yardstick, output: torch.Tensor) -> bool:
    """Whether the yardstick's run is exact enough to measure the reference's error of small elements by."""
    if yardstick is Yardstick.FP32:
        return output.is_floating_point() and torch.finfo(output.dtype).bits < 32
    return yardstick is not Yardstick.ITSELF


def _shown(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plain(got: protocol.OutputForm) -> float | None:
    """The number that was returned; an integer as one."""
    try:
        return got.number if got.whole is None else int(got.whole, 16)
    except ValueError:
        return math.nan


def tensor_of(value: Any) -> torch.Tensor:
    """A plain number as a tensor of one: an integer by what a prime leaves of it where it is very large."""
    if isinstance(value, torch.Tensor):
        return value
    if isinstance(value, int):
        return torch.tensor(value if abs(value) < PRIME else value % PRIME, dtype=torch.int64)
    return torch.tensor(float(value), dtype=torch.float64)
