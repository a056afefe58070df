"""Elements put into a tensor at places that are only known when it runs: scatter, index_copy, index_put.

Where each line along a dimension gets one element at most, the result is a copy that chooses: the new element
at the place of the index, the old one everywhere else. That is a pass over memory like any other, and shares
one. Several elements per line, or sums of them, have no normal form.
"""

from __future__ import annotations

import math

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, dimension, extents


def _put(b: Builder, value: Value, dim: int, index: Value, new: Value) -> Value:
    """``value`` with ``new`` where the place along ``dim`` is ``index``; both have one element there."""
    size = extents(value)[dim]
    place = b.reshape(b.range(size, "int64"), [size if d == dim else 1 for d in range(value.rank)])
    return b.where(b.pointwise("eq", place, index), b.cast(new, value.dtype), value)


def _one_along(value: Value, dim: int) -> tuple[int, ...]:
    shape = extents(value)
    return (*shape[:dim], 1, *shape[dim + 1 :])


def _scatter(b: Builder, call: Call) -> Lowered | None:
    value, index = call["self"], call["index"]
    dim = dimension(call["dim"], value.rank)
    if call.get("reduce") is not None or not value.rank or extents(index) != _one_along(value, dim):
        return None
    new = call.get("src")
    if new is None:
        new = b.fill((), call["value"], value.dtype)
    for d, size in enumerate(extents(index) if new.rank else ()):
        new = b.slice(new, d, 0, size)
    return _put(b, value, dim, index, new)


def _index_copy(b: Builder, call: Call) -> Lowered | None:
    value, index = call["self"], call["index"]
    if not value.rank or math.prod(extents(index)) != 1:
        return None
    dim = dimension(call["dim"], value.rank)
    return _put(b, value, dim, b.reshape(index, (1,) * value.rank), call["source"])


def _index_put(b: Builder, call: Call) -> Lowered | None:
    """``x[:, at] = new``, one place; ``x[range(n), :, at] = new``, one a row; ``x[mask] = number``."""
    value, new = call["self"], call["values"]
    given = [(dim, place) for dim, place in enumerate(call["indices"]) if place is not None]
    if call.get("accumulate", False) or not given:
        return None
    dim, place = given[-1]
    if place.dtype == "bool":
        whole = len(given) == 1 and dim == 0 and place.rank == value.rank and math.prod(extents(new)) == 1
        return b.where(place, b.cast(b.reshape(new, ()), value.dtype), value) if whole else None
    shape = extents(value)
    if len(given) == 1 and math.prod(extents(place)) == 1:
        listed = (*shape[:dim], *extents(place), *shape[dim + 1 :])
        index = b.reshape(place, (1,) * value.rank)
    elif len(given) == 2 and given[0][0] == 0 and _counts(b, given[0][1], shape[0]) and place.rank == 1:
        if extents(place)[0] != shape[0]:
            return None
        listed = (*shape[:dim], *shape[dim + 1 :])
        index = b.reshape(place, (shape[0], *(1,) * (value.rank - 1)))
    else:
        return None
    index = b.where(b.pointwise("lt", index, 0), b.pointwise("add", index, shape[dim]), index)
    return _put(b, value, dim, index, b.reshape(b.expand(new, listed), _one_along(value, dim)))


def _counts(b: Builder, index: Value, size: int) -> bool:
    """Whether an index is 0, 1, 2 and so on, once for each."""
    maker = b.producers.get(index.name)
    counting = maker is not None and maker.op == "constant" and maker.get("range") == (0, 1)
    return counting and extents(index) == (size,)


RULES: dict[str, Rule] = {
    "scatter": _scatter,
    "index_copy": _index_copy,
    "index_put": _index_put,
}
