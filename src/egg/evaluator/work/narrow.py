"""Addresses that follow from data and are computed in 32 bits, in tensors that 32 bits do not span.

Which rows of a table a kernel reads is not known before it runs, so :mod:`~egg.evaluator.work.bounds` cannot
say where its accesses lie. How far they reach is known: an offset of which every part was computed in
32 bits reaches 2**31 elements, and in a longer tensor it wraps around at some row. Whatever is multiplied in
64 bits, loaded as such, or carried through a loop may reach everywhere and passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from egg.evaluator.work.access import BY_POINTER
from egg.evaluator.work.arguments import TensorArgument
from egg.evaluator.work.ttir import Function, Op, Region
from egg.evaluator.work.values import Known, Pointer

MOST_32 = 1 << 31
_ARITHMETIC = (
    *("extsi", "extui", "addi", "subi", "divsi", "divui", "remsi", "remui"),
    *("minsi", "maxsi", "minui", "maxui", "select", "constant"),
)
_SHAPES = ("splat", "unsplat", "broadcast", "expand_dims", "reshape", "trans")
_KEEPS = frozenset((*(f"arith.{name}" for name in _ARITHMETIC), *(f"tt.{name}" for name in _SHAPES)))
"""Operations whose result reaches as far as the furthest of their operands."""


@dataclass(frozen=True)
class _Value:
    """Of an integer or a pointer: what is known of where it can be."""

    argument: str = ""
    narrow: bool = False
    """Every part of the offset was computed in 32 bits."""
    data: bool = False
    """It follows from what a kernel loaded."""


@dataclass(frozen=True)
class Narrow:
    """An access that cannot reach all of its tensor."""

    line: int
    argument: str
    store: bool
    elements: int

    def words(self, kernel: str) -> str:
        verb = "stores to" if self.store else "loads from"
        return (
            f"kernel {kernel} {verb} argument {self.argument!r} of {self.elements} elements at an offset "
            f"that follows from data and is computed in 32 bits: an offset wraps around in 32 bits"
        )


def narrow(entry: Function, env: Mapping[str, Known], tensors: Mapping[str, TensorArgument]) -> Narrow | None:
    """The first such access of a kernel."""
    long = {name: t.bytes // t.itemsize for name, t in tensors.items() if t.bytes > MOST_32 * t.itemsize}
    if not long:
        return None
    values: dict[str, _Value] = {}
    for parameter in entry.parameters:
        known = env.get(parameter.reference)
        if isinstance(known, Pointer):
            values[parameter.reference] = _Value(known.argument, narrow=True)
        else:
            values[parameter.reference] = _Value(narrow=parameter.type.bits <= 32)
    for op in _all(entry.body):
        if op.name in BY_POINTER and op.operands:
            at = values.get(op.operands[0], _Value())
            if at.narrow and at.data and at.argument in long:
                return Narrow(op.line, at.argument, op.name != "tt.load", long[at.argument])
        made = _made(op, [values.get(name, _Value()) for name in op.operands])
        values.update(dict.fromkeys(op.results, made))
    return None


def _made(op: Op, given: list[_Value]) -> _Value:
    data = any(value.data for value in given) or any(inner.name == "tt.load" for inner in _within(op))
    kind = (op.outputs or op.inputs or (None,))[-1]
    short = kind is not None and kind.integral and kind.bits <= 32
    if op.name == "tt.load":
        return _Value(narrow=op.inputs[0].bits <= 32 if op.inputs else False, data=True)
    if op.name == "arith.trunci":
        return _Value(narrow=short, data=data)
    if op.name == "tt.addptr" and len(given) == 2:
        base, offset = given
        return _Value(base.argument, base.narrow and offset.narrow, data)
    if op.name in _KEEPS:
        argument = next((value.argument for value in given if value.argument), "")
        return _Value(argument, all(value.narrow for value in given) or short, data)
    return _Value(narrow=short, data=data)


def _all(region: Region) -> Iterator[Op]:
    for block in region.blocks:
        for op in block.ops:
            yield op
            for inner in op.regions:
                yield from _all(inner)


def _within(op: Op) -> Iterator[Op]:
    for region in op.regions:
        yield from _all(region)
