"""Sizes that operators compute: how a convolution, a pool or a concatenation makes new sizes of old ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from egg.expert.graph import Node, Value
from egg.expert.sizes import Size

Row = tuple[Any, ...]


def formula_of(node: Node, operands: Sequence[Value | None], number: int, dim: int, row: Row) -> str | None:
    """Text over named sizes that gives ``row``, the values of a dimension of the node's result, or ``None``.

    Whatever the rule proposes is computed at every captured size before it is believed.
    """
    for text, compute in _proposals(node, operands, dim, row[0]):
        if _fits(compute, row):
            return text
    return None


Compute = Callable[[int], int]
"""The value at a captured size."""


def _fits(compute: Compute, row: Row) -> bool:
    return all(compute(at) == value for at, value in enumerate(row))


def _at(size: Size, place: int) -> int:
    """At a captured size; no size where it was not seen at as many."""
    if len(size.values) == 1:
        return size.values[0]
    return size.values[place] if place < len(size.values) else -1


def _proposals(
    node: Node, operands: Sequence[Value | None], dim: int, first: int
) -> Iterator[tuple[str, Compute]]:
    """The rules that may hold, likely ones first; of families of rules only those that give ``first``, the
    value at the first captured size."""
    given = [o for o in operands if o is not None]
    if not given:
        return
    x = given[0]
    if node.op in ("conv", "pool") and dim >= 2 and not node.get("adaptive"):
        yield from _window(node, operands, dim)
    if node.op == "cat" and dim == node["dim"]:
        sizes = [value.shape[dim] for value in given]
        yield _sum_text(sizes), lambda at: sum(_at(size, at) for size in sizes)
    if node.op == "view" and node["how"] == "windows" and dim == node["dim"]:
        yield from _fitting(x.shape[dim], -node["dilation"] * (node["size"] - 1) - 1, node["step"])
    if node.op == "view" and node["how"] == "slice":
        yield from _steps(x.shape[dim], node["starts"][dim], node["steps"][dim])
    if dim < x.rank:
        yield from _near(x.shape[dim], first)
    for value in given:
        for size in value.shape:
            yield from _near(size, first)
    for value in given:
        for size in value.shape:
            yield from _split(size, first)


def _window(node: Node, operands: Sequence[Value | None], dim: int) -> Iterator[tuple[str, Compute]]:
    x, weight = operands[0], operands[1] if len(operands) > 1 else None
    assert x is not None
    size, place = x.shape[dim], dim - 2
    stride, padding, dilation = (node[key][place] for key in ("stride", "padding", "dilation"))
    kernel = weight.shape[dim].value if node.op == "conv" and weight is not None else node["kernel"][place]
    reach = dilation * (kernel - 1)
    if node.get("transposed"):
        more = reach + node["output_padding"][place] + 1 - 2 * padding - stride
        text = size.code() if stride == 1 else f"{_factor(size)} * {stride}"
        yield _shifted(text, more), lambda at: _at(size, at) * stride + more
        return
    yield from _fitting(size, 2 * padding - reach - 1, stride, bool(node.get("ceil")))


def _fitting(size: Size, room: int, stride: int, ceil: bool = False) -> Iterator[tuple[str, Compute]]:
    """Places of a window, where the last one begins at ``size + room`` or a little before."""
    if stride == 1:
        yield _shifted(size.code(), room + 1), lambda at: _at(size, at) + room + 1
        return
    if ceil:
        yield (
            f"-(-({_shifted(size.code(), room)}) // {stride}) + 1",
            lambda at: -(-(_at(size, at) + room) // stride) + 1,
        )
        return
    inner = _shifted(size.code(), room + stride)
    text = f"({inner}) // {stride}" if inner != size.code() or "*" in inner else f"{inner} // {stride}"
    yield text, lambda at: (_at(size, at) + room) // stride + 1


def _steps(size: Size, start: Any, step: Any) -> Iterator[tuple[str, Compute]]:
    """Every so many elements up to the end: rounded up, whatever the captured sizes would also agree with."""
    if isinstance(start, int) and isinstance(step, int) and size.factors and step > 1:
        text = _shifted(size.code(), -start)
        text = f"({text})" if " " in text else text
        yield f"-(-{text} // {step})", lambda at: -(-(_at(size, at) - start) // step)


def _near(size: Size, first: int) -> Iterator[tuple[str, Compute]]:
    """A little more or less; the difference is read off the first captured size."""
    gap = first - size.value
    if size.factors and 1 <= abs(gap) <= 64:
        yield _shifted(size.code(), gap), lambda at: _at(size, at) + gap


def _split(size: Size, first: int) -> Iterator[tuple[str, Compute]]:
    """Rounded parts: so many windows, patches, or chunks."""
    for share in range(2, 65) if size.factors else ():
        parts, left = divmod(size.value, share)
        if parts == first:
            yield f"{_factor(size)} // {share}", lambda at, s=share: _at(size, at) // s
        if parts + 1 == first:
            yield f"{_factor(size)} // {share} + 1", lambda at, s=share: _at(size, at) // s + 1
        if parts + (left > 0) == first:
            yield f"-(-{_factor(size)} // {share})", lambda at, s=share: -(-_at(size, at) // s)


def _factor(size: Size) -> str:
    text = size.code()
    return f"({text})" if " " in text else text


def _shifted(text: str, by: int) -> str:
    return text if by == 0 else f"{text} {'+' if by > 0 else '-'} {abs(by)}"


def _sum_text(sizes: Sequence[Size]) -> str:
    total, plain = [], 0
    for size in sizes:
        if size.factors:
            total.append(size.code())
        else:
            plain += size.number
    return _shifted(" + ".join(total), plain) if total else str(plain)
