"""What a file claims of calls, in its own terms: what differs in words, whether that is inside, what is left.

A claim that nothing was tried of is no part of the verdict: :meth:`Claims.tried` strikes it out of what the
verdict says that the file is for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from egg.core.domain import (
    Argument,
    Call,
    Domain,
    Format,
    Gradients,
    Input,
    Layout,
    Mode,
    TensorFacts,
    TensorInput,
    ValueInput,
    same,
)
from egg.core.sizes import Dimension, names_in
from egg.evaluator.reference.forms import Form
from egg.evaluator.reference.probes import Change, Given
from egg.evaluator.task.dimensions import Path, leaves
from egg.evaluator.task.precision import HALF_DTYPES
from egg.evaluator.task.stated import tensor_facts
from egg.evaluator.trial.refused import Refused
from egg.evaluator.trial.trial import Trial

GUARD = (
    "guard what the kernel does not handle with a clear error, `if x.shape[-1] != 1024: raise ValueError(...)"
    "`, or handle it: `.contiguous()`, masks at the true sizes"
)
CLAIM_LESS = "answer what DOMAIN claims, or claim less"
SIMPLE = (bool, int, float, str, list, type(None))


@dataclass(frozen=True)
class Seen:
    """What was tried of a file."""

    right: tuple[Change, ...]
    raised: tuple[Change, ...]
    unsupported: frozenset[str] = frozenset()
    """Constructor arguments at some value of which a call could not be judged."""
    late: bool = False
    """Whether time ended the trying."""


@dataclass
class Claims:
    """The calls beside the task's own, as the file's domain speaks of them."""

    trial: Trial
    domain: Domain | None
    given: Given

    def __post_init__(self) -> None:
        self.tensors = dict(leaves(self.given.forms))
        self.names = self.trial.reference.program.input_names(len(self.given.forms))

    # -- in words --------------------------------------------------------------------------------------------

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
        if change.precision is not None or change.wide:
            changed.append(f"in {'float64' if change.wide else self._dtype(torch.float32, change)}")
        changed += [f"{self.name(path)} in {dtype}" for path, dtype in change.dtypes]
        if (alias := change.alias) is not None:
            order = ", transposed" if alias.transposed else ""
            changed.append(f"{self.name(alias.other)} in the memory of {self.name(alias.holder)}{order}")
        changed += [f"unusual values ({change.unusual})"] if change.unusual else []
        return ", ".join(changed)

    def _laid(self, change: Change) -> list[str]:
        """How inputs lie in memory; those that lie alike are named together."""
        alike: dict[tuple[Form, ...], list[str]] = {}
        for path, forms in change.forms:
            alike.setdefault(forms, []).append(self.name(path))
        return [f"{' and '.join(names)} {', '.join(forms)}" for forms, names in alike.items()]

    def name(self, path: Path) -> str:
        first = path[0]
        known = isinstance(first, int) and first < len(self.names)
        word = self.names[first] if known and isinstance(first, int) else f"input {first}"
        return word + "".join(f"[{key!r}]" for key in path[1:])

    def wrong(self, change: Change, evidence: str) -> Refused:
        tensors = [
            f"{self.name(path)}: {self._dtype(t.dtype, change)} {tuple(t.shape)} stride {t.stride()}"
            + (f" offset {t.storage_offset()}" if t.storage_offset() else "")
            for path, t in leaves(self.forms_of(change))
        ]
        claimed = ""
        if self.domain is not None:
            reason = self.outside(change)
            claimed = f" (outside the stated domain: {reason})" if reason else " (inside the stated domain)"
        return Refused(
            "domain.wrong",
            f"{self.describe(change)}: wrong without an error{claimed}: {evidence}; "
            f"the call: {'; '.join(tensors)}"[:1400],
            GUARD,
        )

    # -- as calls --------------------------------------------------------------------------------------------

    def forms_of(self, change: Change) -> list[Any]:
        """The inputs of such a call, without data."""
        return change.inputs(self.given.forms, 0)

    def elements(self, change: Change) -> int:
        return sum(tensor.numel() for _, tensor in leaves(self.forms_of(change)))

    def kind(self, change: Change) -> Hashable:
        """Calls of one kind have inputs in the same forms, and all are smaller, larger, or neither."""
        own, here = self.elements(Change()), self.elements(change)
        forms = frozenset(form for _, held in change.forms for form in held)
        return forms, (here > own) - (here < own), change.alias is None

    def larger(self, change: Change) -> bool:
        """Whether a call takes longer than the task's own, by its sizes or by what it is built with."""
        return bool(change.arguments) or 4 * self.elements(change) > 5 * self.elements(Change())

    def leaves_inputs(self, change: Change) -> bool:
        """Whether a change of precision is one of weights and buffers alone, of which no domain speaks: the
        inputs have that dtype already, and the module has others beside it."""
        if change.precision is None or change.dtypes:
            return False
        inputs = [t.dtype for _, t in leaves(self.given.forms) if t.is_floating_point()]
        return all(self._dtype(dtype, change) == str(dtype).removeprefix("torch.") for dtype in inputs)

    def _dtype(self, dtype: torch.dtype, change: Change) -> str:
        if change.precision is not None and dtype.is_floating_point:
            dtype = HALF_DTYPES.get(change.precision, torch.float32)
        return str(dtype).removeprefix("torch.")

    def call(self, change: Change) -> Call:
        inputs: dict[str, Any] = {}
        for name, value in zip(self.names, self.forms_of(change), strict=False):
            tensor = isinstance(value, torch.Tensor)
            inputs[name] = self._facts(value, change) if tensor else value
        arguments = self.trial.reference.program.bound_arguments() | dict(change.arguments)
        training = self.trial.reference.module.training if change.training is None else change.training
        return Call(inputs, arguments, Mode.TRAIN if training else Mode.EVAL)

    def _facts(self, tensor: torch.Tensor, change: Change) -> TensorFacts:
        return tensor_facts(tensor, self._dtype(tensor.dtype, change))

    def outside(self, change: Change) -> str:
        assert self.domain is not None
        built = None if change.arguments else self.domain.built(self.call(Change()))
        return self.domain.outside(self.call(change), built)

    def dense(self, change: Change) -> tuple[int, ...]:
        """The outputs that lie as the reference's by the file's claim, where inputs lie as the task's own."""
        if self.domain is None or change.forms:
            return ()
        stated = self.domain.outputs
        count = len(self.trial.reference.sample.outputs)
        return tuple(at for at in range(count) if at >= len(stated) or stated[at].format is Format.FIXED)

    # -- what is left of it ----------------------------------------------------------------------------------

    def tried(self, seen: Seen, *, gradients: bool) -> tuple[Domain | None, list[str]]:
        """The domain without what was claimed and not tried, and each thing that was struck, in words.

        An argument, or a number of ``forward``, counts as tried where some other value was right or raised,
        and none could not be judged; a dtype and a mode where a call of it was right. Where time ended the
        trying, a size counts where one larger than the task's own was right or raised, and any layout where
        another than the task's own was.
        """
        if self.domain is None:
            return None, []
        own = self.call(Change())
        calls = [self.call(change) for change in (*seen.right, *seen.raised)]
        rightly = [own, *(self.call(change) for change in seen.right)]
        struck: list[str] = []
        inputs = tuple(self._tried_input(given, own, calls, rightly, struck) for given in self.domain.inputs)
        if seen.late:
            inputs = self._in_time(inputs, own, calls, seen, struck)
        arguments = tuple(
            _tried_argument(a, own, () if a.name in seen.unsupported else calls, struck)
            for a in self.domain.arguments
        )
        modes = tuple(mode for mode in self.domain.modes if any(call.mode is mode for call in rightly))
        struck += [f"{mode.value} mode" for mode in self.domain.modes if mode not in modes]
        left = replace(self.domain, inputs=inputs, arguments=arguments, modes=modes)
        if left.gradients is Gradients.BACKWARD and not gradients:
            struck.append("gradients")
            left = replace(left, gradients=Gradients.NONE)
        return left, struck

    def _in_time(
        self, inputs: tuple[Input, ...], own: Call, calls: Sequence[Call], seen: Seen, struck: list[str]
    ) -> tuple[Input, ...]:
        """Without the sizes and layouts of which time left nothing to be tried."""
        assert self.domain is not None
        free = {size.name for size in self.domain.sizes if not size.module and not size.argument}
        grown = {
            name
            for given, facts in _pairs(inputs, own)
            for call in calls
            if isinstance(other := call.inputs.get(given.name), TensorFacts)
            for name, mine, value in zip(given.shape, facts.shape, other.shape, strict=True)
            if value > mine
        }
        stated = {name for given, _ in _pairs(inputs, own) for name in given.shape if name in free}
        kept = sorted(str(name) for name in stated - grown)
        struck += [f"{name} at other sizes" for name in kept]
        laid = {self.name(path) for change in (*seen.right, *seen.raised) for path, _ in change.forms}
        facts = {given.name: found for given, found in _pairs(inputs, own)}
        found: list[Input] = []
        for given in inputs:
            if isinstance(given, TensorInput) and given.name in facts:
                given = replace(given, shape=_fixed(given, facts[given.name], set(kept)))
                if given.layout is Layout.ANY and given.name not in laid:
                    struck.append(f"{given.name} in other layouts")
                    given = replace(given, layout=Layout.CONTIGUOUS)
            found.append(given)
        return tuple(found)

    def _tried_input(
        self, given: Input, own: Call, calls: Iterable[Call], rightly: Iterable[Call], struck: list[str]
    ) -> Input:
        if isinstance(given, ValueInput):
            value = own.inputs.get(given.name)
            others = (call.inputs.get(given.name) for call in calls)
            if not given.free or isinstance(value, TensorFacts) or any(o != value for o in others):
                return given
            struck.append(f"{given.name} at another value than {value!r}")
            return ValueInput(given.name, value)
        seen = {f.dtype for call in rightly if isinstance(f := call.inputs.get(given.name), TensorFacts)}
        left = tuple(dtype for dtype in given.dtypes if dtype in seen)
        struck += [f"{given.name} in {dtype}" for dtype in given.dtypes if dtype not in seen]
        return TensorInput(given.name, left or given.dtypes, given.shape, given.layout)


def _pairs(inputs: Iterable[Input], own: Call) -> list[tuple[TensorInput, TensorFacts]]:
    """Tensors that a domain speaks of, with what they are at the task's own call."""
    held = ((given, own.inputs.get(given.name)) for given in inputs if isinstance(given, TensorInput))
    return [(given, facts) for given, facts in held if isinstance(facts, TensorFacts)]


def _fixed(given: TensorInput, facts: TensorFacts, names: set[str]) -> tuple[Dimension, ...]:
    """Its dimensions, those that mention one of ``names`` at the task's own size."""
    pairs = zip(given.shape, facts.shape, strict=True)
    return tuple(value if names_in(dimension) & names else dimension for dimension, value in pairs)


def _tried_argument(argument: Argument, own: Call, calls: Iterable[Call], struck: list[str]) -> Argument:
    value = own.arguments.get(argument.name)
    others = (call.arguments.get(argument.name) for call in calls)
    if not argument.free or argument.name not in own.arguments or any(not same(o, value) for o in others):
        return argument
    struck.append(f"{argument.name} at another value than {value!r}"[:120])
    plain = list(value) if isinstance(value, tuple) else value
    return Argument(argument.name, plain) if isinstance(plain, SIMPLE) else argument
