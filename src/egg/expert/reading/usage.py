"""How a program may be built and called, read off its captures: arguments, numbers, modes.

An argument is free where captures with other values of it became one graph. One whose values never
differed in proportion from those of another argument is free only if the program cannot separate them either.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from torch import nn

from egg.core.domain import ANY, SAME, Argument, Mode, Plain, ValueInput
from egg.expert.graph import Graph, Usage
from egg.expert.reading.points import Changes, Variant
from egg.expert.reading.variants import Variants


def arguments_of(
    points: Sequence[Variant], free: Collection[str], doubtful: Collection[str]
) -> Iterator[Argument]:
    """Every argument of the constructor. ``free`` ones were varied alone, ``doubtful`` ones must not be."""
    for name, value in points[0].capture.arguments.items():
        column = [point.capture.arguments.get(name) for point in points]
        if name in doubtful:
            yield Argument(name, plain(value))
        elif name in free or (type(value) is int and _varies(column)):
            yield Argument(name, free=True)
        elif isinstance(value, list | tuple):
            yield Argument(name, _elements(column))
        else:
            yield Argument(name, plain(value))


def _elements(column: Sequence[Any]) -> Plain:
    """A list in which the whole numbers that varied may be any; one that was equal to the number before it at
    all points must be."""
    first = column[0]
    if any(not isinstance(c, list | tuple) or len(c) != len(first) for c in column):
        return plain(first)
    rows = list(zip(*column, strict=True))
    moving = [type(row[0]) is int and _varies(row) for row in rows]
    return [
        plain(row[0]) if not moves else SAME if at and row == rows[at - 1] else ANY
        for at, (row, moves) in enumerate(zip(rows, moving, strict=True))
    ]


def _varies(column: Sequence[Any]) -> bool:
    return any(value != column[0] for value in column)


def plain(value: Any) -> Plain:
    """As a literal can hold it; what no literal holds is known by its text, or by its type."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = repr(value)
    return f"repr:{text}" if " at 0x" not in text and "\n" not in text else f"type:{type(value).__qualname__}"


def values_of(base: Variant, free: Collection[str]) -> Iterator[ValueInput]:
    """Every parameter of ``forward`` that is no tensor, with those that the task leaves out."""
    for name, value in (*base.capture.values.items(), *base.capture.defaults):
        yield ValueInput(name, free=True) if name in free else ValueInput(name, plain(value))


def ties_of(graph: Graph, points: Sequence[Variant], free: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Sizes of inputs that equal one of the ``free`` arguments at all points: size and argument."""
    rows = {name: tuple(point.capture.arguments.get(name) for point in points) for name in free}
    shapes = [graph.value(name).shape for name in graph.arguments if name is not None]
    for symbol in dict.fromkeys(symbol for shape in shapes for size in shape for symbol in size.factors):
        for name in [name for name, row in rows.items() if row == tuple(symbol.values)][:1]:
            yield symbol.name, name


# -- modes -----------------------------------------------------------------------------------------------


def with_modes(usage: Usage, variants: Variants, base: Variant, module: nn.Module) -> Usage:
    """The modes in which the program is the one that was captured.

    Where modules read their mode, the program is captured in the other one as well, and in its own with all
    modules alike: a task may freeze a part of itself.
    """
    modal = [path for path, part in module.named_modules() if reads_mode(part)]
    if not modal:
        return usage

    def same(training: bool) -> bool:
        other = variants.changed(Changes(training=training), base)
        return other is not None and other.graph == base.graph

    own = module.training
    alike = all(part.training == own for part in module.modules())
    if same(not own) and (alike or same(own)):
        return usage
    parts = dict(module.named_modules())
    following = tuple(path for path in modal if parts[path].training == own)
    frozen = tuple(path for path in modal if parts[path].training != own)
    return replace(usage, modes=(Mode.TRAIN if own else Mode.EVAL,), modal=following, frozen=frozen)


def reads_mode(module: nn.Module) -> bool:
    """Whether some method of the module's class looks at ``training``."""
    if isinstance(module, nn.RNNBase):
        return bool(module.dropout) and module.num_layers > 1
    for kind in type(module).__mro__:
        if kind is nn.Module:
            return False
        for held in vars(kind).values():
            code = getattr(held, "__code__", None)
            if code is not None and "training" in _names(code):
                return True
    return False


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def entangled(points: Sequence[Variant]) -> list[tuple[str, str]]:
    """Pairs of the constructor's whole numbers that were in one proportion at all points."""
    rows: Mapping[str, tuple[int, ...]] = {
        name: tuple(point.capture.arguments[name] for point in points)
        for name, value in points[0].capture.arguments.items()
        if type(value) is int and _varies([point.capture.arguments[name] for point in points])
    }
    names = list(rows)
    return [
        (a, b)
        for place, a in enumerate(names)
        for b in names[place + 1 :]
        if all(x * rows[b][0] == y * rows[a][0] for x, y in zip(rows[a], rows[b], strict=True))
    ]
