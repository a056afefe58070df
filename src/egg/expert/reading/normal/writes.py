"""Elements put into a tensor at places that are only known when it runs: scatter, index_copy, index_put.

Where each line along a dimension gets one element at most, the result is a copy that chooses: the new element
at the place of the index, the old one everywhere else. That is a pass over memory like any other, and shares
one. Several elements per line that join each other (sums, means, extremes) are a ``scatter``; several of
which any stays are one where the tensor begins as one number; all others have no normal form.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from egg.expert.emit.keys import FEWEST, MOST, key
from egg.expert.graph import FLOATS, Origin, Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Number, Rule, dimension, extents
from egg.expert.reading.normal.library import library


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
    if call.get("reduce") == "add" and isinstance(call.get("src"), Value):
        return _scatter_add(b, call)
    if call.get("reduce") is not None or not value.rank:
        return None
    new = call.get("src")
    if extents(index) != _one_along(value, dim):
        held = _held(b, value) if _writes(call) else None
        if _fill_of(b, value) is None and held is None:
            return None
        source = new if new is not None else b.fill(extents(index), call["value"], value.dtype)
        onto = _scatter_onto(b, replace(call, arguments={**call.arguments, "src": source}))
        return onto.stored(_writes(call)) if onto is not None else None
    if new is None:
        new = b.fill((), call["value"], value.dtype)
    for d, size in enumerate(extents(index) if new.rank else ()):
        new = b.slice(new, d, 0, size)
    return _put(b, value, dim, index, new)


def _index_copy(b: Builder, call: Call) -> Lowered | None:
    value, index = call["self"], call["index"]
    if value.rank and math.prod(extents(index)) != 1:
        onto = _rows_onto(b, call, call["source"])
        return onto.stored(_writes(call)) if onto is not None else None
    if not value.rank:
        return None
    dim = dimension(call["dim"], value.rank)
    return _put(b, value, dim, b.reshape(index, (1,) * value.rank), call["source"])


def _index_put(b: Builder, call: Call) -> Lowered | None:
    """``x[:, at] = new``, one place; ``x[range(n), :, at] = new``, one a row; ``x[mask] = row``."""
    value, new = call["self"], call["values"]
    given = [(dim, place) for dim, place in enumerate(call["indices"]) if place is not None]
    if not given or any(not isinstance(place, Value) for _, place in given):
        return None
    if call.get("accumulate", False):
        return _index_put_sum(b, call)
    dim, place = given[-1]
    if place.dtype == "bool":
        return _masked(b, value, dim, place, new) if len(given) == 1 else None
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
        return _places_onto(b, call) or _places_in_front(b, call)
    index = b.where(b.pointwise("lt", index, 0), b.pointwise("add", index, shape[dim]), index)
    return _put(b, value, dim, index, b.reshape(b.expand(new, listed), _one_along(value, dim)))


def _masked(b: Builder, value: Value, dim: int, mask: Value, new: Value) -> Value | None:
    """``x[:, mask] = new``, where all chosen places get the same: then it is a choice between two values."""
    behind = value.rank - dim - mask.rank
    chosen = extents(new)[: max(0, new.rank - behind)]
    if math.prod(chosen) != 1:
        return None
    same = b.reshape(new, extents(new)[len(chosen) :])
    mask = b.reshape(mask, (*extents(mask), *(1,) * behind))
    return b.where(mask, b.cast(same, value.dtype), value)


def _counts(b: Builder, index: Value, size: int) -> bool:
    """Whether an index is 0, 1, 2 and so on, once for each."""
    maker = b.producers.get(index.name)
    counting = maker is not None and maker.op == "constant" and maker.get("range") == (0, 1)
    return counting and extents(index) == (size,)


def _fill_of(b: Builder, value: Value) -> Number | None:
    """The number that a tensor holds everywhere; ``None`` where it may hold others."""
    maker = b.producers.get(value.name)
    while maker is not None and (maker.op == "view" or maker.get("fn") == "cast"):
        maker = b.producers.get(str(maker.inputs[0]))
    return maker.get("fill") if maker is not None and maker.op == "constant" else None


def _writes(call: Call) -> bool:
    """Whether a call writes into its first operand: ``index_copy_``, ``x[places] = new``."""
    schema = getattr(call.target, "_schema", None)
    return schema is not None and schema.name.endswith("_")


def _held(b: Builder, value: Value) -> Value | None:
    """The argument or buffer that a value shows whole, in the same order."""
    while (maker := b.producers.get(value.name)) is not None and maker.get("how") == "reshape":
        value = b.values[str(maker.inputs[0])]
    return value if maker is None and value.contiguous and value.origin is not Origin.NODE else None


def _narrow(b: Builder, index: Value, rank: int) -> Value:
    """An index before it was repeated along other dimensions: one place serves all of those."""
    maker = b.producers.get(index.name)
    while maker is not None and maker.op == "view" and maker["how"] == "expand":
        index = b.values[str(maker.inputs[0])]
        maker = b.producers.get(index.name)
    return b.reshape(index, (*(1,) * (rank - index.rank), *extents(index)))


@dataclass(frozen=True)
class _Scatter:
    """Elements of ``source`` that join those of ``base`` at ``index`` along ``dim``."""

    b: Builder
    base: Value
    dim: int
    index: Value
    """Of the source's rank; it broadcasts to the source's shape."""
    source: Value

    def by(self, fn: str, with_base: bool = True) -> Value | None:
        """``with_base``: whether what is there already counts, where elements join it."""
        dtype = self.base.dtype
        if dtype not in (*FLOATS, "int32", "int64") or self.source.dtype != dtype or not self.source.rank:
            return None
        match fn:
            case "sum" if with_base or _fill_of(self.b, self.base) == 0:
                return self._sum()
            case "mean" if dtype in FLOATS:
                return self._mean(with_base)
            case "amax" | "amin":
                return self._extreme(fn[1:], with_base)
        return None

    def stored(self, in_place: bool = False) -> Value | None:
        """Elements in the place of what is there. Where two have one place, PyTorch keeps any of them.

        ``in_place``: the program writes them into the base itself.
        """
        fill = _fill_of(self.b, self.base)
        held = _held(self.b, self.base) if in_place else None
        if not self.source.rank or self.source.dtype != self.base.dtype:
            return None
        if fill is None and held is None:
            return None
        return self._joined("store", self.source, fill or 0, held if fill is None else None)

    def _joined(self, fn: str, source: Value, fill: Number, onto: Value | None = None) -> Value:
        """The node, on a tensor that begins as one number, or as what the caller or the module holds."""
        inputs, stem = [source, self.index, *([onto] if onto is not None else [])], f"scatter_{fn}"
        fill = bool(fill) if source.dtype == "bool" else float(fill) if source.floating else int(fill)
        shape = extents(self.base)
        return self.b.one("scatter", inputs, shape, source.dtype, stem, fn=fn, dim=self.dim, fill=fill)

    def _sum(self) -> Value:
        """16-bit elements are added up in fp32: memory is only rounded once, and no atomic is of 16 bits.

        A base of many values is added by what reads the sums, instead of being copied first.
        """
        b, dtype, fill = self.b, self.base.dtype, _fill_of(self.b, self.base)
        wide = "float32" if dtype in FLOATS else dtype
        total = self._joined("sum", b.cast(self.source, wide), 0 if fill is None else fill)
        total = total if fill is not None else b.pointwise("add", b.cast(self.base, wide), total)
        return b.cast(total, dtype)

    def _mean(self, with_base: bool) -> Value | None:
        """Sums and counts; where an index serves a whole row, so does its count."""
        b, sizes = self.b, zip(extents(self.base), extents(self.source), strict=True)
        if any(own != given for d, (own, given) in enumerate(sizes) if d != self.dim):
            return None
        base = b.cast(self.base, "float32")
        total = self._joined("sum", b.cast(self.source, "float32"), 0)
        total = b.pointwise("add", base, total) if with_base else total
        ones = b.fill(extents(self.index), 1, "int32")
        shape = [n if m != 1 else 1 for n, m in zip(extents(self.base), extents(self.index), strict=True)]
        shape[self.dim] = extents(self.base)[self.dim]
        counted = replace(self, base=b.fill(shape, 0, "int32"))
        count = counted._joined("sum", ones, int(with_base))
        mean = b.pointwise("div", total, b.pointwise("maximum", count, 1), dtype="float32")
        mean = mean if with_base else b.where(b.pointwise("eq", count, 0), base, mean)
        return b.cast(mean, self.base.dtype)

    def _extreme(self, fn: str, with_base: bool) -> Value | None:
        """Floats by whole numbers of the same order (:mod:`egg.expert.emit.keys`), NaN included."""
        b, largest, dtype, base = self.b, fn == "max", self.base.dtype, self.base
        fill, extreme = _fill_of(b, base), "maximum" if largest else "minimum"
        if dtype not in FLOATS:
            limits = torch.iinfo(getattr(torch, dtype))
            found = self._joined(fn, self.source, limits.min if largest else limits.max)
            return b.pointwise(extreme, base, found) if with_base else None
        base = b.cast(base, "float32")
        untouched = FEWEST if largest else MOST
        start = key(fill, largest) if with_base and fill is not None else untouched
        keys = b.pointwise(f"{fn}_key", b.cast(self.source, "float32"), dtype="int32")
        joined = self._joined(fn, keys, start)
        found = b.pointwise("key_value", joined, dtype="float32")
        if start == untouched:
            both = b.pointwise(extreme, base, found) if with_base else found
            found = b.where(b.pointwise("eq", joined, untouched), base, both)
        return b.cast(found, dtype)


def _scatter_onto(b: Builder, call: Call) -> _Scatter | None:
    """``scatter_add`` and the like: an index of the source's shape, or of a part of it from its beginning."""
    base, index, source = call["self"], call["index"], call["src"]
    if not base.rank or not isinstance(source, Value):
        return None
    for d, size in enumerate(extents(index)):
        source = b.slice(source, d, 0, size)
    dim = dimension(call["dim"], base.rank)
    narrow = _narrow(b, index, base.rank)
    return _Scatter(b, base, dim, narrow if extents(narrow)[dim] == extents(index)[dim] else index, source)


def _scatter_add(b: Builder, call: Call) -> Lowered | None:
    onto = _scatter_onto(b, call)
    return onto.by("sum") if onto is not None else None


def _scatter_reduce(b: Builder, call: Call) -> Lowered | None:
    onto = _scatter_onto(b, call)
    return onto.by(call["reduce"], call.get("include_self", True)) if onto is not None else None


def _rows_onto(b: Builder, call: Call, source: Value) -> _Scatter | None:
    """``index_add`` and the like: one place for all elements of the source at one place along a dimension."""
    base, index = call["self"], call["index"]
    if not base.rank or not index.rank:
        return None
    dim = dimension(call["dim"], base.rank)
    return _Scatter(b, base, dim, b.reshape(index, [-1 if d == dim else 1 for d in range(base.rank)]), source)


def _index_add(b: Builder, call: Call) -> Lowered | None:
    source, alpha = call["source"], call.get("alpha", 1)
    source = source if alpha == 1 else b.pointwise("mul", source, alpha)
    onto = _rows_onto(b, call, source)
    return onto.by("sum") if onto is not None else None


def _index_reduce(b: Builder, call: Call) -> Lowered | None:
    onto = _rows_onto(b, call, call["source"])
    return onto.by(call["reduce"], call.get("include_self", True)) if onto is not None else None


def _index_put_sum(b: Builder, call: Call) -> Lowered | None:
    """``x.index_put((rows, columns), new, accumulate=True)``."""
    onto = _listed_places(b, call)
    made = onto.by("sum") if onto is not None else None
    return made if made is None else b.reshape(made, extents(call["self"]))


def _places_onto(b: Builder, call: Call) -> Lowered | None:
    """``x[rows, columns] = new``, written into an argument or a buffer."""
    if not _writes(call) or _held(b, call["self"]) is None:
        return None
    new = b.cast(call["values"], call["self"].dtype)
    onto = _listed_places(b, replace(call, arguments={**call.arguments, "values": new}))
    made = onto.stored(in_place=True) if onto is not None else None
    return made if made is None else b.reshape(made, extents(call["self"]))


def _listed_places(b: Builder, call: Call) -> _Scatter | None:
    """Elements for places of neighbouring dimensions, which count as one."""
    base, new = call["self"], call["values"]
    given = [(dim, place) for dim, place in enumerate(call["indices"]) if place is not None]
    first, many, shape = given[0][0], len(given), extents(base)
    if [dim for dim, _ in given] != list(range(first, first + many)):
        return None
    if any(place.dtype not in ("int64", "int32") for _, place in given):
        return None
    places = torch.broadcast_shapes(*(extents(place) for _, place in given))
    index: Value | None = None
    for dim, place in given:
        at = b.where(b.pointwise("lt", place, 0), b.pointwise("add", place, shape[dim]), place)
        index = at if index is None else b.pointwise("add", b.pointwise("mul", index, shape[dim]), at)
    assert index is not None
    behind = shape[first + many :]
    count = math.prod(places)
    source = b.reshape(b.expand(new, (*shape[:first], *places, *behind)), (*shape[:first], count, *behind))
    flat = b.reshape(base, (*shape[:first], math.prod(shape[first : first + many]), *behind))
    rows = b.reshape(b.expand(index, places), [count if d == first else 1 for d in range(flat.rank)])
    return _Scatter(b, flat, first, rows, source)


def _places_in_front(b: Builder, call: Call) -> Lowered | None:
    """``x[:, places] = new`` as PyTorch's call, which takes places of the first dimensions alone. Places may
    come twice, and a call of PyTorch's then keeps one of the elements; no kernel here does without a race."""
    base, new = call["self"], call["values"]
    given = [(dim, place) for dim, place in enumerate(call["indices"]) if place is not None]
    dims, many = [dim for dim, _ in given], len(given)
    if dims == list(range(many)) or any(place.dtype == "bool" for _, place in given):
        return None
    order = [*dims, *(dim for dim in range(base.rank) if dim not in dims)]
    first, places = dims[0], torch.broadcast_shapes(*(extents(place) for _, place in given))
    front, rest = b.permute(base, order), [extents(base)[dim] for dim in order[many:]]
    if dims == list(range(first, first + many)):  # places of neighbours stay where those are
        new = b.expand(new, (*rest[:first], *places, *rest[first:]))
        lead = range(first, first + len(places))
        new = b.permute(new, [*lead, *(dim for dim in range(new.rank) if dim not in lead)])
    arguments = {**call.arguments, "self": front, "indices": [place for _, place in given], "values": new}
    made = library(b, replace(call, arguments=arguments, results=((extents(front), base.dtype),)))
    assert isinstance(made, Value)
    if base.contiguous:  # it copies the tensor as that lies
        made = b.restrided(made, [step.value for step in front.stride])
    return b.permute(made, [order.index(dim) for dim in range(base.rank)])


RULES: dict[str, Rule] = {
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "index_add": _index_add,
    "index_reduce": _index_reduce,
    "index_copy": _index_copy,
    **dict.fromkeys(["index_put", "_unsafe_index_put", "_index_put_impl"], _index_put),
}
