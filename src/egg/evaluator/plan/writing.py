"""From noted steps to statements: what the answer and the state follow from, and nothing else.

A tensor is named by where it lies: storage, shape, strides, offset and dtype. Two objects that lie alike
are one name, and a view that nothing names is written as ``torch.as_strided`` of its storage's first tensor.
Steps are kept from behind: those that make a tensor of the answer, those that write to memory that a kept
step reads, and within ``forward`` those that write to the task's own state or draw random numbers. What the
constructor or an earlier part of the call prepared is kept where the answer follows from it, so packed
weights and tables are computed anew in every call; what nothing follows from (a warm-up, a lookup of what
was remembered) is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from triton import language
from triton.language import constexpr, dtype
from triton.runtime.jit import JITFunction

from egg.evaluator.plan.noting import Step, tensors_in
from egg.evaluator.plan.spelling import Unspelled, makes, spelled_operator, spelled_strided, spelled_value
from egg.evaluator.plan.vocabulary import OPTIONS

FIRST_ADDRESS = 0x7F00_0000_0000
"""Of the pretended GPU: a larger number is an address."""
Place = tuple[Any, ...]


@dataclass(frozen=True)
class Written:
    """A plan's statements, in order, and what it returns."""

    statements: tuple[str, ...]
    result: str
    kernels: tuple[str, ...]
    launches: int
    operators: int
    allocations: int


@dataclass
class Noted:
    """What was noted of one construction and one call."""

    steps: Sequence[Step]
    begins: int
    """The first step of the call."""
    inputs: Mapping[str, torch.Tensor]
    """By the expressions that stand for them."""
    state: Mapping[str, torch.Tensor]
    result: Any
    taken: frozenset[str] = frozenset()
    """Names that the file uses otherwise."""


def written(noted: Noted) -> Written:
    return _Writer(noted).written()


def place_of(tensor: torch.Tensor) -> Place:
    return (
        tensor.untyped_storage()._cdata, tuple(tensor.shape), tuple(tensor.stride()),
        int(tensor.storage_offset()), tensor.dtype, tensor.is_conj(), tensor.is_neg(),
    )  # fmt: skip


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


@dataclass
class _Writer:
    noted: Noted
    names: dict[Place, str] = field(default_factory=dict)
    kernels: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    allocations: int = 0

    def __post_init__(self) -> None:
        noted = self.noted
        self.given = {place_of(t): name for name, t in (*noted.inputs.items(), *noted.state.items())}
        self.state = {_storage(t) for t in noted.state.values()}
        self.kept = self.state | {_storage(t) for t in noted.inputs.values()}
        self.first: dict[Place, int] = {}
        self.base: dict[int, torch.Tensor] = {}
        for tensor in (*noted.inputs.values(), *noted.state.values()):
            self.base.setdefault(_storage(tensor), tensor)
        for number, step in enumerate(noted.steps):
            parts = {_storage(t) for t in step.inputs} - {_storage(t) for t in step.writes}
            same = {place_of(t) for t in step.inputs}
            for tensor in step.outputs:
                if _storage(tensor) in self.kept and (
                    _storage(tensor) not in parts or place_of(tensor) in same
                ):
                    continue  # what made the memory of a weight is no view of it
                self.first.setdefault(place_of(tensor), number)
                self.base.setdefault(_storage(tensor), tensor)
        self.device = f"{next(iter(self.given.values()))}.device" if self.given else '"cuda"'

    def written(self) -> Written:
        noted = self.noted
        chosen = self._chosen()
        counts = {True: 0, False: 0}
        for number in chosen:
            step = noted.steps[number]
            if self._write(step):
                counts[step.is_launch] += 1
        result = self._returned(noted.result)
        return Written(
            tuple(self.lines), result, tuple(dict.fromkeys(self.kernels)), counts[True], counts[False],
            self.allocations,
        )  # fmt: skip

    # which steps

    def _chosen(self) -> list[int]:
        places: set[Place] = set()
        storages: set[int] = set()

        def need(tensor: torch.Tensor) -> None:
            storages.add(_storage(tensor))
            place = place_of(tensor)
            if place in self.given or place in places:
                return
            places.add(place)
            if place not in self.first and not _is_real(tensor):
                base = self.base.get(_storage(tensor))
                if base is None:
                    raise Unspelled(
                        "a tensor comes from nowhere that was seen", "make it of the inputs and weights"
                    )
                need(base)

        for tensor in tensors_in(self.noted.result):
            need(tensor)
        chosen = []
        for number in range(len(self.noted.steps) - 1, -1, -1):
            step = self.noted.steps[number]
            if self._is_needed(step, number, places, storages):
                chosen.append(number)
                for tensor in step.inputs:
                    need(tensor)
        return chosen[::-1]

    def _is_needed(self, step: Step, number: int, places: set[Place], storages: set[int]) -> bool:
        during = number >= self.noted.begins
        writes = {_storage(t) for t in step.writes}
        if during and (step.random or writes & self.kept):
            return True
        if writes & (storages if during else storages - self.state):
            return True
        return any(self.first[place] == number for place in map(place_of, step.outputs) if place in places)

    # statements

    def _write(self, step: Step) -> bool:
        """Whether there is something to write: a view under a known name is none."""
        if step.is_launch:
            self.lines.append(self._launch(step))
            return True
        outputs = step.outputs
        if (
            step.writes
            and outputs
            and all(place_of(t) in self.names or place_of(t) in self.given for t in outputs)
        ):
            self.lines.append(self._expression(step))
            return True
        if outputs and all(place_of(t) in self.names or place_of(t) in self.given for t in outputs):
            return False
        expression = self._expression(step)
        if not outputs:
            self.lines.append(expression)
            return True
        targets = []
        for leaf in _leaves(step.result):
            if not isinstance(leaf, torch.Tensor):
                targets.append(self._new_name())
            else:
                known = self.names.get(place_of(leaf))
                targets.append(
                    self._new_name() if known else self.names.setdefault(place_of(leaf), self._new_name())
                )
        several = isinstance(step.result, list | tuple)
        self.lines.append(
            f"{', '.join(targets)}{',' if several and len(targets) == 1 else ''} = {expression}"
        )
        self.allocations += "empty" in expression.partition("(")[0]
        return True

    def _new_name(self) -> str:
        self._count = getattr(self, "_count", 0) + 1
        while f"t{self._count}" in self.noted.taken:
            self._count += 1
        return f"t{self._count}"

    def _expression(self, step: Step) -> str:
        if isinstance(step.what, str):
            given = [*map(self._word, step.args), *(f"{n}={self._word(v)}" for n, v in step.kwargs.items())]
            return f"{step.what}({', '.join(given)})"
        if step.values is not None:
            return self._constant(step)
        kwargs = step.kwargs
        if makes(step.what) and isinstance(step.result, torch.Tensor) and kwargs.get("dtype") is None:
            kwargs = kwargs | {"dtype": step.result.dtype}  # whatever the default is where the plan is used
        return spelled_operator(step.what, step.args, kwargs, self._word, self.device)

    def _constant(self, step: Step) -> str:
        if step.values == "too many":
            raise Unspelled(
                "a large table of numbers is made by the host",
                "compute it by tensor operations (torch.arange and so on), or register it as the task does",
            )
        kind = spelled_value(step.result.dtype, self._name)
        return f"torch.tensor({spelled_value(step.values, self._name)}, dtype={kind}, device={self.device})"

    def _word(self, value: Any) -> str:
        return spelled_value(value, self._name)

    def _name(self, tensor: torch.Tensor) -> str:
        place = place_of(tensor)
        name = self.given.get(place) or self.names.get(place)
        if name is not None:
            return name
        if _is_real(tensor) and _storage(tensor) not in self.base:
            return self._literal(tensor, place)
        base = self.base[_storage(tensor)]
        own = _storage(tensor) not in self.kept
        if base.dtype != tensor.dtype or not (own or int(base.storage_offset()) == 0):
            raise Unspelled("a view that looks like its tensor", "use view, narrow, transpose and the like")
        if place_of(base) == place:
            raise Unspelled("a tensor comes from nowhere that was seen", "make it of the inputs and weights")
        spelled = spelled_strided(
            base, tensor.shape, tensor.stride(), int(tensor.storage_offset()), self._word
        )
        self.names[place] = self._new_name()
        self.lines.append(f"{self.names[place]} = {spelled}")
        return self.names[place]

    def _literal(self, tensor: torch.Tensor, place: Place) -> str:
        if tensor.numel() > 4096:
            raise Unspelled("a large table of numbers is made by the host", "compute it by tensor operations")
        kind, numbers = self._word(tensor.dtype), self._word(tensor.tolist())
        self.names[place] = self._new_name()
        self.lines.append(
            f"{self.names[place]} = torch.tensor({numbers}, dtype={kind}, device={self.device})"
        )
        return self.names[place]

    def _launch(self, step: Step) -> str:
        fn: JITFunction = step.what
        self.kernels.append(fn.__name__)
        given = [self._argument(v) for v in step.args]
        for name, value in step.kwargs.items():
            if value is not None and name not in QUIET and name not in OPTIONS:
                raise Unspelled(
                    f"kernel {fn.__name__} is launched with {name}={value!r}",
                    f"options of a launch may be {', '.join(sorted(OPTIONS))}",
                )
        given += [
            f"{n}={self._argument(v)}" for n, v in step.kwargs.items() if v is not None and n not in QUIET
        ]
        grid = ", ".join(str(int(n)) for n in step.grid)
        return f"{fn.__name__}[({grid},)]({', '.join(given)})"

    def _argument(self, given: Any) -> str:
        value: Any = given
        if isinstance(value, constexpr):
            value = value.value
        if isinstance(value, JITFunction):
            self.kernels.append(value.__name__)
            return value.__name__
        if isinstance(value, dtype):
            return f"triton.language.{_name_of(value)}"
        if type(value) is int and value >= FIRST_ADDRESS and value < FIRST_ADDRESS << 1:
            raise Unspelled("the address of a tensor is handed over as a number", "hand the tensor over")
        if type(value).__name__ == "TensorDescriptor":
            value = cast(Any, value)
            padding = getattr(value, "padding", "zero")
            more = f", padding={padding!r}" if padding != "zero" else ""
            shape, stride, block = (
                list(map(int, v)) for v in (value.shape, value.strides, value.block_shape)
            )
            return f"TensorDescriptor({self._name(value.base)}, {shape}, {stride}, {block}{more})"
        if isinstance(value, list | tuple):
            return f"({''.join(f'{self._argument(v)}, ' for v in value)})"
        return self._word(value)

    def _returned(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = (f"{key!r}: {self._returned(item)}" for key, item in value.items())
            return f"{{{', '.join(pairs)}}}"
        if isinstance(value, tuple):
            return f"({''.join(f'{self._returned(v)}, ' for v in value)})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._returned, value))}]"
        return self._word(value)


QUIET = frozenset(("debug", "instrumentation_mode", "fpsan_homomorphic_casts", "ir_override"))
"""Options that Triton adds itself."""


def _name_of(kind: dtype) -> str:
    found = [n for n, v in vars(language).items() if isinstance(v, dtype) and v == kind and n.isidentifier()]
    if not found:
        raise Unspelled(f"the type {kind} is handed to a kernel", "hand over a type of triton.language")
    return max(found, key=len)


def _leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _is_real(tensor: torch.Tensor) -> bool:
    """Whether it has values though all others have none."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)
