"""Domain: what a file claims beside the task's own call is tried; nothing may be wrong without an error.

Calls with other sizes, layouts, constructor arguments, modes and dtypes are put to the candidate and to the
reference (:mod:`egg.evaluator.reference.probes`, :mod:`egg.evaluator.gates.beside`). Inside the domain that a
file states it must be right: an exception there is a refusal, except at other constructor arguments, as a
domain cannot say how those and the shapes depend on each other. Outside it must raise an exception or be
right. A file that states nothing is tried in the same way, except at other dtypes, and may raise anywhere. A
wrong answer without an error is a refusal everywhere, with the smallest example that was found. Gradients
must not be lost silently by a file that states a domain; of any other file the verdict states it.

At level quick several things change at once, and each alone only where that raises; at level full each
changes alone as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from egg.core.domain import Call, Domain, Layout, Mode, TensorFacts
from egg.core.domain_words import words_of
from egg.core.errors import KernelFileError
from egg.core.evaluation import Tried, Verified
from egg.core.policy import Precision
from egg.evaluator.gates.beside import Answer, Gradient, Outcome, ask, gradients
from egg.evaluator.reference.probes import (
    Change,
    Form,
    Given,
    axes_of,
    batch_of,
    even_size,
    far_arguments,
    fitting,
    jointly,
    larger_size,
    legal,
    odd_size,
    other_arguments,
    other_values,
    together,
)
from egg.evaluator.task.dimensions import Axis, leaves
from egg.evaluator.task.gradient_ways import ALL_WAYS, FEW_WAYS, PLAIN, Incoming, Way
from egg.evaluator.task.precision import HALF_DTYPES
from egg.evaluator.trial.levels import Probes
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Notes, Trial

MOST_SECONDS = 60.0
"""After which nothing more is tried."""
EXTRA_SECONDS = {"cuda": 8.0, "cpu": 40.0}
"""After which nothing is tried alone that was right together with others."""
MOST_PARTS = 4
SHRINKS = 8
"""Further calls that may be spent on a smaller example."""
MOST_AXES, MOST_TENSORS = 6, 4
GUARD = (
    "guard what the kernel does not handle with a clear error, `if x.shape[-1] != 1024: raise ValueError(...)"
    "`, or handle it: `.contiguous()`, masks at the true sizes"
)


def run(trial: Trial) -> Notes:
    domain = stated(trial.candidate.source)
    probing = Probing(trial, domain)
    try:
        probing.all() if trial.settings.domain is Probes.ALL else probing.few()
        found = probing.gradients()
    finally:
        probing.back()
    trial.verified = Verified(
        None if domain is None else domain.literal(), tuple(probing.tried), found.value, probing.words(found)
    )
    counts = {
        answer: sum(t.outcome == answer for t in probing.tried) for answer in ("right", "raised", "skipped")
    }
    sized = [t for t in probing.tried if t.what in probing.sized]
    return {
        "stated": domain is not None,
        **counts,
        "gradients": found.value,
        "other_shapes": sized[0].what if sized else "none to be had",
        **({"general": all(t.outcome != "raised" for t in sized)} if sized else {}),
    }


def stated(source: str) -> Domain | None:
    """The domain that a file states; a statement that cannot be read is a refusal."""
    try:
        return Domain.of_source(source)
    except KernelFileError as error:
        raise Refused("domain.malformed", error.message, error.hint) from error


@dataclass
class Probing:
    """Calls that were put to one candidate, and what it claims of them."""

    trial: Trial
    domain: Domain | None
    tried: list[Tried] = field(default_factory=list)
    sized: set[str] = field(default_factory=set)
    """Words of those that changed sizes."""
    right_at: list[Change] = field(default_factory=list)
    _others: bool = False
    """Whether the process holds another instance than the task's."""

    def __post_init__(self) -> None:
        settings = self.trial.settings
        self.until = time.perf_counter() + MOST_SECONDS
        extra = EXTRA_SECONDS[self.trial.device.type] if settings.domain is Probes.ALL else 0.0
        self.extra_until = time.perf_counter() + extra
        self.task = self.trial.reference.program.task
        self.given = Given.of(
            self.trial.reference.program.inputs(0, self.trial.device, self.trial.policy.precision)
        )
        self.tensors = dict(leaves(self.given.forms))
        self.names = self.trial.reference.program.input_names()
        self.trial.connection.restore_weights()

    # -- what is tried -------------------------------------------------------------------------------------

    def few(self) -> None:
        forms = self._forms(Form.STRIDED, Form.OFFSET)
        first = Change(sizes=self.joint(), forms=forms)
        answer = self.weigh(first).answer
        if answer is Answer.SKIPPED and first.sizes:
            first = Change(sizes=self.joint(alike=True), forms=forms)
            answer = self.weigh(first).answer
        if answer is not Answer.RIGHT:
            for part in list(first.parts())[:MOST_PARTS]:
                self.weigh(part)
        self._weigh_batch_of_one()
        self.weigh(Change(arguments=self._arguments(), values=self._values()))
        self.weigh(self._other_mode())

    def all(self) -> None:
        """First everything once, several things at a time; then, as long as there is time, each alone."""
        self.few()
        if self.domain is not None:
            half = self.trial.policy.precision in HALF_DTYPES
            for precision in (Precision.MATCH,) if half else HALF_DTYPES:
                self.weigh(Change(precision=precision))
        whole = Change(arguments=other_arguments(self.task), values=self._values())
        far = (Change(arguments=(argument,)) for argument in far_arguments(self.task))
        alone = [*self._layouts(), *self._sizes(), *whole.parts(), *far]
        for at, change in enumerate(alone):
            if time.perf_counter() > self.extra_until:
                left = f"{len(alone) - at} changes, each alone"
                self.tried.append(Tried(left, Answer.SKIPPED.value, None, "there was no time left"))
                break
            self.weigh(change)

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

    @property
    def axes(self) -> tuple[Axis, ...]:
        return axes_of(self.task)[:MOST_AXES]

    def _weigh_batch_of_one(self) -> None:
        axis = batch_of(self.axes)
        if axis is None or axis.size == 1 or axis.step != 1 or not legal(axis, 1, self.given):
            return
        if self.weigh(Change(sizes=((axis, 1),))).answer is Answer.SKIPPED:
            self.weigh(Change(sizes=tuple((a, 1) for a in self.axes if a.size == axis.size)))

    def _sizes(self) -> Iterator[Change]:
        """Each free dimension alone: odd, even, one, larger."""
        taken = {axis.size for axis in self.axes}
        for axis in self.axes:
            one = 1 if axis.step == 1 and legal(axis, 1, self.given) else axis.size
            odd, even = odd_size(axis, taken, self.given), even_size(axis, taken, self.given)
            for value in (odd, even, one, larger_size(axis, self.given)):
                if value is not None and value != axis.size:
                    yield Change(sizes=((axis, value),))

    def _layouts(self) -> Iterator[Change]:
        for form in Form:
            yield Change(forms=self._forms(form))
        if len(self.tensors) > 1:
            for path in list(self.tensors)[:MOST_TENSORS]:
                forms = (Form.STRIDED,) if fitting(Form.STRIDED, self.tensors[path]) else ()
                yield Change(forms=((path, forms),) if forms else ())

    def _forms(self, *forms: Form) -> tuple[Any, ...]:
        fit = {path: tuple(f for f in forms if fitting(f, tensor)) for path, tensor in self.tensors.items()}
        return tuple((path, held) for path, held in fit.items() if held)

    def _arguments(self) -> tuple[tuple[str, Any], ...]:
        return jointly(self.task, other_arguments(self.task))

    def _values(self) -> tuple[tuple[int, Any], ...]:
        """Numbers that ``forward`` is given: another one each."""
        others = {
            at: other_values(value)[:1]
            for at, value in enumerate(self.given.forms)
            if isinstance(value, bool | int | float)
        }
        return tuple((at, found[0]) for at, found in others.items() if found)

    def _other_mode(self) -> Change:
        return Change(training=not self.trial.reference.module.training)

    # -- trying ----------------------------------------------------------------------------------------------

    def weigh(self, change: Change) -> Outcome:
        """Try one call and refuse what may not be; no change, and one that was tried, is passed over."""
        what = self.describe(change)
        if not what or any(t.what == what for t in self.tried):
            return Outcome(Answer.RIGHT)
        if time.perf_counter() > self.until:
            outcome = Outcome(Answer.SKIPPED, "there was no time left")
        else:
            outcome = self.ask(change)
        reason = self._outside(change) if self.domain is not None else ""
        inside = None if self.domain is None else not reason
        if outcome.answer is Answer.WRONG:
            raise self._wrong(*self._smallest(change, outcome))
        if outcome.answer is Answer.RAISED and inside and not change.arguments:
            raise Refused(
                "domain.raises",
                f"{what}: inside the domain that the file states, and it raises: {outcome.evidence}"[:900],
                "answer what DOMAIN claims, or claim less",
            )
        note = reason if outcome.answer is Answer.RIGHT and reason else outcome.evidence
        self.tried.append(Tried(what, outcome.answer.value, inside, note[:200]))
        if change.sizes:
            self.sized.add(what)
        if outcome.answer is Answer.RIGHT:
            self.right_at.append(change)
        return outcome

    def ask(self, change: Change) -> Outcome:
        """With the task's own instance unless the change needs another; in a new process after a death."""
        self._ready(change)
        self._others = self._others or change.builds or change.training is not None
        return ask(self.trial, change)

    def _ready(self, change: Change) -> None:
        if not self.trial.connection.process.alive:
            self.trial.connection.restart()
            self._others = False
        elif self._others and not change.builds:
            self.back()

    def back(self) -> None:
        """To the task's own instance and weights, for the gates that come."""
        if not self.trial.connection.process.alive:
            self.trial.connection.restart()
        else:
            self.trial.connection.fresh()
            self.trial.connection.restore_weights()
        self._others = False

    def _smallest(self, change: Change, outcome: Outcome) -> tuple[Change, Outcome]:
        """Fewer things changed, and smaller sizes, as long as the answer is still wrong without an error."""
        left = SHRINKS
        for smaller in (Change.parts, Change.smaller):
            for attempt in smaller(change):
                if left == 0:
                    break
                left -= 1
                found = self.ask(attempt)
                if found.answer is Answer.WRONG:
                    change, outcome = attempt, found
                    break
        return change, outcome

    def gradients(self) -> Gradient:
        """Under grad mode, at the smallest call that was answered rightly.

        A backward that is right is asked again, as callers do: with a gradient that is not dense, and where
        only a part requires one.
        """
        sized = [c for c in self.right_at if c.sizes and not c.builds and not c.forms]
        change = min(sized, key=self._elements) if sized else Change()
        found = self._back(change, PLAIN)
        ways = ALL_WAYS if self.trial.settings.domain is Probes.ALL else FEW_WAYS
        for way in ways if found is Gradient.RIGHT else ():
            if self._back(change, way) is Gradient.LOST:
                return Gradient.LOST
        return found

    def _back(self, change: Change, way: Way) -> Gradient:
        if time.perf_counter() > self.until:
            return Gradient.UNKNOWN
        self._ready(change)
        found, evidence = gradients(self.trial, change, way)
        where = f"under grad mode, where {way.words}" if way.words else "under grad mode"
        if (
            found is Gradient.WRONG
            and way.incoming is Incoming.EXPANDED
            and not evidence.startswith("kernel.")
        ):
            dense, _ = gradients(self.trial, change, replace(way, incoming=Incoming.CONSTANT))
            found = Gradient.UNKNOWN if dense is Gradient.WRONG else found
        if found is Gradient.WRONG:
            raise Refused("domain.gradients", f"{where}: {evidence}"[:900], GUARD)
        if found is Gradient.LOST and self.domain is not None:
            raise Refused(
                "domain.gradients",
                f"{where}, gradients are lost without an error: {evidence}",
                "raise in backward: an autograd function whose backward says that there is none",
            )
        if found is Gradient.LOST:
            self.trial.warnings.append("forward only: gradients are lost without an error")
        return found

    # -- words -----------------------------------------------------------------------------------------------

    def describe(self, change: Change) -> str:
        """What differs, for a person."""
        shapes = {path: list(tensor.shape) for path, tensor in self.tensors.items()}
        for axis, value in change.sizes:
            for place in axis.places:
                shapes[place.path][place.dim] = value
        resized = {place.path for axis, _ in change.sizes for place in axis.places}
        changed = [
            f"{self.name(path)} is {' x '.join(map(str, shapes[path]))}"
            for path in self.tensors
            if path in resized
        ]
        changed += self._laid(change)
        changed += [f"{name} = {value!r}" for name, value in change.arguments]
        changed += [f"{self.name((at,))} = {value!r}" for at, value in change.values]
        if change.training is not None:
            changed.append("train mode" if change.training else "eval mode")
        if change.precision is not None:
            changed.append(f"in {self._dtype(torch.float32, change)}")
        return ", ".join(changed)

    def _laid(self, change: Change) -> list[str]:
        """How inputs lie in memory; those that lie alike are named together."""
        alike: dict[tuple[Form, ...], list[str]] = {}
        for path, forms in change.forms:
            alike.setdefault(forms, []).append(self.name(path))
        return [f"{' and '.join(names)} {', '.join(forms)}" for forms, names in alike.items()]

    def name(self, path: tuple[Any, ...]) -> str:
        first = self.names[path[0]] if path[0] < len(self.names) else f"input {path[0]}"
        return first + "".join(f"[{key!r}]" for key in path[1:])

    def _forms_of(self, change: Change) -> list[Any]:
        """The inputs of such a call, without data."""
        return change.inputs(self.given.forms, 0)

    def _elements(self, change: Change) -> int:
        return sum(tensor.numel() for _, tensor in leaves(self._forms_of(change)))

    def _dtype(self, dtype: torch.dtype, change: Change) -> str:
        if change.precision is not None and dtype.is_floating_point:
            dtype = HALF_DTYPES.get(change.precision, torch.float32)
        return str(dtype).removeprefix("torch.")

    def _call(self, change: Change) -> Call:
        inputs: dict[str, Any] = {}
        for name, value in zip(self.names, self._forms_of(change), strict=False):
            tensor = isinstance(value, torch.Tensor)
            inputs[name] = self._facts(value, change) if tensor else value
        arguments = self.trial.reference.program.bound_arguments() | dict(change.arguments)
        training = self.trial.reference.module.training if change.training is None else change.training
        return Call(inputs, arguments, Mode.TRAIN if training else Mode.EVAL)

    def _facts(self, tensor: torch.Tensor, change: Change) -> TensorFacts:
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
        layouts = [Layout.CONTIGUOUS] if tensor.is_contiguous() else []
        if last is not None and tensor.is_contiguous(memory_format=last):
            layouts.append(Layout.CHANNELS_LAST)
        return TensorFacts(self._dtype(tensor.dtype, change), tuple(tensor.shape), frozenset(layouts))

    def _outside(self, change: Change) -> str:
        assert self.domain is not None
        built = None if change.arguments else self.domain.built(self._call(Change()))
        return self.domain.outside(self._call(change), built)

    def _wrong(self, change: Change, outcome: Outcome) -> Refused:
        tensors = [
            f"{self.name(path)}: {self._dtype(t.dtype, change)} {tuple(t.shape)} stride {t.stride()}"
            + (f" offset {t.storage_offset()}" if t.storage_offset() else "")
            for path, t in leaves(self._forms_of(change))
        ]
        claimed = ""
        if self.domain is not None:
            reason = self._outside(change)
            claimed = f" (outside the stated domain: {reason})" if reason else " (inside the stated domain)"
        return Refused(
            "domain.wrong",
            f"{self.describe(change)}: wrong without an error{claimed}: {outcome.evidence}; "
            f"the call: {'; '.join(tensors)}"[:1400],
            GUARD,
        )

    def words(self, found: Gradient) -> str:
        """One sentence: what is claimed, what was right, what raises, what could not be tried."""
        parts = ["states no domain" if self.domain is None else words_of(self.domain)]
        for answer, verb in (("right", "right at"), ("raised", "raises at"), ("skipped", "not tried at")):
            calls = [t.what for t in self.tried if t.outcome == answer]
            if calls:
                shown = "; ".join(calls[:6]) + (f" and {len(calls) - 6} more" if len(calls) > 6 else "")
                parts.append(f"{verb} {shown}")
        if found is not Gradient.UNKNOWN:
            parts.append(f"gradients: {found.value}")
        return ". ".join(parts)
