"""What a kernel file is for, as a value: the calls it answers rightly, and none beside them.

One vocabulary serves four readers. The built-in team derives a :class:`Domain` from its captures and writes
it into the file as the literal ``DOMAIN``; the file's guard raises at every call outside it; the judge tries
calls inside and outside; a report prints it in words (:mod:`egg.core.domain_words`). A fact that was seen
only once is a fixed one.

The literal is a dictionary of plain values, so a reader needs no import and the judge runs nothing::

    DOMAIN = {
        "inputs": {
            "x": {"dtypes": ["float32"], "shape": ["batch_size", "in_features"], "layout": "any"},
            "scale": {"value": "any"},
            "mask": {"only": None},
        },
        "sizes": {"batch_size": {}, "in_features": {"module": True}},
        "arguments": {"in_features": "any", "kernel_size": {"only": 3}},
        "modes": ["train", "eval"],
        "gradients": "none",
        "outputs": [{"format": "preserved", "input": "x"}],
        "elements": ["batch_size * in_features"],
    }

A dimension is a number, a name, or arithmetic on names (``2 * pairs``): equal names are equal sizes. A size
with ``module`` follows from the constructor, every other is the caller's choice, ``least`` and ``multiple``
permitting. With ``argument`` it equals that argument of the constructor. ``any`` for a constructor argument
is any value with which weights and inputs have the stated shapes: a domain cannot say how an argument and a
shape depend on each other. ``outputs`` stands there where the layout of some output follows that of an input,
or is not known to be the reference's. ``elements`` are numbers of elements that 32-bit offsets count: each
must be below ``REACH``.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from egg.core.errors import KernelFileError
from egg.core.sizes import Dimension, multiple_of, names_in, value_of

NAME = "DOMAIN"
"""The module-level name under which a kernel file states its domain."""
Plain = int | float | bool | str | None | list[Any]
"""Values of arguments that a literal can hold; tuples travel as lists."""
ANY = "any"
"""Stands for every value; in a list that an argument is fixed to, for every number in that place."""
REACH = 2**31 - 2**24
"""Elements that offsets of 32 bits reach, with room for a tile behind the last one."""
SAME = "same"
"""In such a list, stands for the number before it."""


class Layout(StrEnum):
    """How an input may lie in memory."""

    ANY = "any"
    """Strided, offset or expanded: the file brings it into the form that its kernels read."""
    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"


class Format(StrEnum):
    """How an output lies in memory."""

    FIXED = "fixed"
    """In one layout, whatever that of the inputs is, as the reference's."""
    PRESERVED = "preserved"
    """As PyTorch lays out what it computes elementwise from an input: the order of its strides, no gaps."""
    CHANNELS_LAST = "channels_last"
    """Channels-last where an input is, else contiguous."""
    UNSTATED = "unstated"
    """In one layout; the reference's may follow that of the inputs."""


class Mode(StrEnum):
    TRAIN = "train"
    EVAL = "eval"


class Gradients(StrEnum):
    NONE = "none"
    """Forward only: under grad mode ``backward`` raises."""
    BACKWARD = "backward"


@dataclass(frozen=True)
class TensorInput:
    """A tensor argument of ``forward``."""

    kind: ClassVar[str] = "tensor"
    name: str
    dtypes: tuple[str, ...]
    """As PyTorch spells them, without the prefix: ``float32``."""
    shape: tuple[Dimension, ...]
    layout: Layout = Layout.ANY


@dataclass(frozen=True)
class ValueInput:
    """An argument of ``forward`` that is no tensor: any number, or the one value that was captured."""

    kind: ClassVar[str] = "value"
    name: str
    value: Plain = None
    free: bool = False


Input = TensorInput | ValueInput


@dataclass(frozen=True)
class Size:
    """A named size: how small it may be, what it must be a multiple of, and whether the module fixes it."""

    name: str
    least: int = 1
    multiple: int = 1
    module: bool = False
    argument: str = ""
    """The constructor argument that it equals, where it follows from one alone."""

    @property
    def rule(self) -> str:
        """What it must be, in words."""
        rules = [f"at least {self.least}"] if self.least > 1 else []
        rules += [f"a multiple of {self.multiple}"] if self.multiple > 1 else []
        return " and ".join(rules) or "any size"


@dataclass(frozen=True)
class Argument:
    """A constructor argument: free, or right at one value alone."""

    name: str
    value: Plain = None
    free: bool = False


@dataclass(frozen=True)
class Output:
    """The layout of one output, and the input that it follows."""

    format: Format = Format.FIXED
    input: str = ""


@dataclass(frozen=True)
class TensorFacts:
    """A tensor of one call, as far as a domain speaks of it."""

    dtype: str
    shape: tuple[int, ...]
    layouts: frozenset[Layout] = frozenset({Layout.CONTIGUOUS})
    """Every layout that it has: a tensor of one channel is both contiguous and channels-last."""


@dataclass(frozen=True)
class Call:
    """One use of a module: what it was built with, its mode, and what ``forward`` was given, by name."""

    inputs: Mapping[str, TensorFacts | Plain]
    arguments: Mapping[str, Plain]
    mode: Mode = Mode.TRAIN


@dataclass(frozen=True)
class Domain:
    """The calls that a kernel file answers."""

    inputs: tuple[Input, ...]
    sizes: tuple[Size, ...] = ()
    arguments: tuple[Argument, ...] = ()
    modes: tuple[Mode, ...] = (Mode.TRAIN, Mode.EVAL)
    gradients: Gradients = Gradients.NONE
    outputs: tuple[Output, ...] = ()
    """Of the outputs in order; empty where all are :attr:`Format.FIXED`."""
    elements: tuple[str, ...] = ()
    """Arithmetic on sizes: numbers of elements that must be below :data:`REACH`."""

    def __post_init__(self) -> None:
        known = {size.name for size in self.sizes}
        for count in self.elements:
            if missing := names_in(count) - known:
                raise ValueError(f"a tensor has {count!r} elements, and {missing} is no size")
        for given in self.inputs:
            for dimension in given.shape if isinstance(given, TensorInput) else ():
                if missing := names_in(dimension) - known:
                    raise ValueError(f"{given.name} has a dimension {dimension!r}, and {missing} is no size")

    # -- asking ------------------------------------------------------------------------------------

    def outside(self, call: Call, built: Mapping[str, int] | None = None) -> str:
        """Why a call is outside the domain, in half a sentence; empty where it is inside.

        ``built`` holds sizes that follow from the constructor as :meth:`built` found them at another call of
        a module with the same arguments: a call that shows other ones is outside.
        """
        if call.mode not in self.modes:
            return f"{call.mode.value} mode"
        for argument in self.arguments:
            if argument.free or argument.name not in call.arguments:
                continue
            if not same(call.arguments[argument.name], argument.value):
                return f"{argument.name} = {call.arguments[argument.name]!r}, not {argument.value!r}"
        bound = self._constructed(call)
        for given in self.inputs:
            if reason := _outside_input(given, call.inputs.get(given.name), bound):
                return reason
        for name, value in (built or {}).items():
            if bound.get(name, value) != value:
                return f"{name} = {bound[name]}, not {value}: {name} follows from the constructor"
        return self._outside_shapes(call, bound)

    def built(self, call: Call) -> dict[str, int]:
        """The sizes that follow from the constructor, and arithmetic on these alone, as a call's inputs show
        them."""
        bound: dict[str, int] = {}
        for given in self.inputs:
            _outside_input(given, call.inputs.get(given.name), bound)
        module = {size.name for size in self.sizes if size.module}
        return {text: value for text, value in bound.items() if names_in(text) <= module}

    def _constructed(self, call: Call) -> dict[str, int]:
        """The sizes that equal a constructor argument of the call."""
        found = {size.name: call.arguments.get(size.argument) for size in self.sizes if size.argument}
        return {name: value for name, value in found.items() if type(value) is int}

    def _outside_shapes(self, call: Call, bound: Mapping[str, int]) -> str:
        for given in self.inputs:
            facts = call.inputs.get(given.name)
            if not isinstance(given, TensorInput) or not isinstance(facts, TensorFacts):
                continue
            for place, (wanted, seen) in enumerate(zip(given.shape, facts.shape, strict=True)):
                if names_in(wanted) <= bound.keys() and value_of(wanted, bound) != seen:
                    return f"dimension {place} of {given.name} is {seen}, not {wanted}"
        for size in self.sizes:
            value = bound.get(size.name)
            if value is not None and (value < size.least or value % size.multiple):
                return f"{size.name} = {value}, not {size.rule}"
        for count in self.elements:
            if names_in(count) <= bound.keys() and value_of(count, bound) >= REACH:
                return f"a tensor has {value_of(count, bound)} elements, not fewer than {REACH}"
        return ""

    # -- as a literal --------------------------------------------------------------------------------

    def literal(self) -> dict[str, Any]:
        """What ``DOMAIN`` holds in a kernel file."""
        literal = {
            "inputs": {given.name: _input_literal(given) for given in self.inputs},
            "sizes": {size.name: _size_literal(size) for size in self.sizes},
            "arguments": {a.name: "any" if a.free else {"only": a.value} for a in self.arguments},
            "modes": [mode.value for mode in self.modes],
            "gradients": self.gradients.value,
        }
        outputs = {"outputs": [*map(_output_literal, self.outputs)]} if self.outputs else {}
        return literal | outputs | ({"elements": [*self.elements]} if self.elements else {})

    @classmethod
    def of_literal(cls, data: Mapping[str, Any]) -> Domain:
        """The value that a literal stands for; ``ValueError`` where it does not stand for one."""
        try:
            return cls(
                tuple(_input(name, held) for name, held in data["inputs"].items()),
                tuple(Size(name, **rule) for name, rule in data.get("sizes", {}).items()),
                tuple(_argument(name, held) for name, held in data.get("arguments", {}).items()),
                tuple(Mode(mode) for mode in data.get("modes", ("train", "eval"))),
                Gradients(data.get("gradients", "none")),
                tuple(Output(Format(o["format"]), o.get("input", "")) for o in data.get("outputs", ())),
                tuple(data.get("elements", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a domain: {error!r}") from error

    @classmethod
    def of_source(cls, source: str) -> Domain | None:
        """The domain that a kernel file states; ``None`` where it states none."""
        for statement in ast.parse(source).body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ) if name == NAME:
                    try:
                        return cls.of_literal(ast.literal_eval(value))
                    except ValueError as error:
                        raise KernelFileError(
                            f"line {statement.lineno}: {NAME} cannot be read: {error}",
                            "state it as a literal: inputs with dtypes, shape and layout; sizes; arguments",
                        ) from error
        return None


# -- inputs --------------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Equal values of one kind; a tuple equals the list it became, in which ``ANY`` stands for any number and
    ``SAME`` for the one before it."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_element, a, b, [None, *a]))
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    return a == b


def _same_element(a: Any, b: Any, before: Any) -> bool:
    if b == SAME and _number(before):
        return _number(a) and a == before
    return same(a, b) or (b == ANY and _number(a))


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _outside_input(given: Input, facts: TensorFacts | Plain, bound: dict[str, int]) -> str:
    if isinstance(given, ValueInput):
        if isinstance(facts, TensorFacts):
            return f"{given.name} is a tensor"
        if given.free:
            return "" if _number(facts) else f"{given.name} is no number"
        return "" if same(facts, given.value) else f"{given.name} = {facts!r}, not {given.value!r}"
    if not isinstance(facts, TensorFacts):
        return f"{given.name} is {facts!r}, not a tensor"
    if facts.dtype not in given.dtypes:
        return f"{given.name} is {facts.dtype}"
    if len(facts.shape) != len(given.shape):
        return f"{given.name} has {len(facts.shape)} dimensions, not {len(given.shape)}"
    if given.layout is not Layout.ANY and given.layout not in facts.layouts:
        return f"{given.name} is not {given.layout.value}"
    for place, (wanted, seen) in enumerate(zip(given.shape, facts.shape, strict=True)):
        if isinstance(wanted, str) and wanted.isidentifier():
            bound.setdefault(wanted, seen)
        elif (multiple := multiple_of(wanted)) is not None:
            name, factor = multiple
            if seen % factor:
                return f"dimension {place} of {given.name} is {seen}, not {wanted}"
            bound.setdefault(name, seen // factor)
        elif isinstance(wanted, str) and bound.setdefault(wanted, seen) != seen:
            return f"dimension {place} of {given.name} is {seen}, not {bound[wanted]}: {wanted}"
    return ""


def _input_literal(given: Input) -> dict[str, Any]:
    if isinstance(given, ValueInput):
        return {"value": "any"} if given.free else {"only": given.value}
    return {"dtypes": list(given.dtypes), "shape": list(given.shape), "layout": given.layout.value}


def _input(name: str, held: Mapping[str, Any]) -> Input:
    if "shape" in held:
        return TensorInput(name, tuple(held["dtypes"]), tuple(held["shape"]), Layout(held["layout"]))
    return ValueInput(name, held["only"]) if "only" in held else ValueInput(name, free=held["value"] == "any")


def _output_literal(output: Output) -> dict[str, str]:
    return {"format": output.format.value} | ({"input": output.input} if output.input else {})


def _size_literal(size: Size) -> dict[str, Any]:
    default = Size(size.name)
    keys = ("least", "multiple", "module", "argument")
    return {key: getattr(size, key) for key in keys if getattr(size, key) != getattr(default, key)}


def _argument(name: str, held: Any) -> Argument:
    return Argument(name, free=True) if held == "any" else Argument(name, held["only"])
