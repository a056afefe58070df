"""Other looks at the same elements, and what puts elements together: reshape, permute, slice, cat, pad."""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.graph import BYTES, Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Number, Rule, dimension, extents

_WITH_BITS = frozenset(BYTES) - {"bool", "complex64", "complex128"}
"""Numbers whose bits may be taken for others."""


def _to_shape(b: Builder, call: Call) -> Lowered | None:
    """Whatever the call is, its result has the operand's elements in order, or their bits as others."""
    value = call["self"]
    if call.dtype != value.dtype:
        known = {call.dtype, value.dtype} <= _WITH_BITS
        same = call.shape == extents(value) and BYTES[call.dtype] == BYTES[value.dtype]
        return b.bits(value, call.dtype) if known and same else None
    return b.reshape(value, call.shape)


def _permute(b: Builder, call: Call) -> Lowered:
    return b.permute(call["self"], call["dims"])


def _transpose(b: Builder, call: Call) -> Lowered:
    first, second = ("axis0", "axis1") if call.name == "swapaxes" else ("dim0", "dim1")
    return b.transpose(call["self"], call[first], call[second])


def _turned(b: Builder, call: Call) -> Lowered:
    value = call["self"]
    return b.permute(value, range(value.rank)[::-1])


def _swapped(b: Builder, call: Call) -> Lowered:
    value = call["self"]
    return b.transpose(value) if value.rank > 1 else value


def _movedim(b: Builder, call: Call) -> Lowered:
    value = call["self"]
    listed = [[d] if isinstance(d, int) else d for d in (call["source"], call["destination"])]
    source, destination = ([dimension(d, value.rank) for d in dims] for dims in listed)
    rest = [d for d in range(value.rank) if d not in source]
    for target, dim in sorted(zip(destination, source, strict=True)):
        rest.insert(target, dim)
    return b.permute(value, rest)


def _slice(b: Builder, call: Call) -> Lowered:
    value, dim = call["self"], dimension(call.get("dim", 0), call["self"].rank)
    start, _, step = slice(call.get("start"), call.get("end"), call.get("step", 1)).indices(
        extents(value)[dim]
    )
    return b.slice(value, dim, start, call.shape[dim], step)


def _narrow(b: Builder, call: Call) -> Lowered | None:
    value, start = call["self"], call["start"]
    if isinstance(start, Value):
        return None
    dim = dimension(call["dim"], value.rank)
    return b.slice(value, dim, start % max(extents(value)[dim], 1), call["length"])


def _select(b: Builder, call: Call) -> Lowered:
    value, dim = call["self"], dimension(call["dim"], call["self"].rank)
    at = call["index"] % extents(value)[dim]
    return b.reshape(b.slice(value, dim, at, 1), call.shape)


def _pieces(b: Builder, call: Call) -> Lowered:
    """``split``, ``chunk``, ``unbind``: the results' shapes say where each one lies."""
    value, dim, start, made = call["self"], dimension(call.get("dim", 0), call["self"].rank), 0, []
    for shape, _ in call.results:
        length = shape[dim] if len(shape) == value.rank else 1
        made.append(b.reshape(b.slice(value, dim, start, length), shape))
        start += length
    return made


def _expand(b: Builder, call: Call) -> Lowered:
    return b.expand(call["self"], call.shape)


def _broadcast(b: Builder, call: Call) -> Lowered:
    pairs = zip(call["tensors"], call.results, strict=True)
    return [b.expand(value, shape) for value, (shape, _) in pairs]


def _flip(b: Builder, call: Call) -> Lowered:
    dims = call.get("dims")
    return b.flip(call["self"], dims if dims is not None else (1 if call.name == "fliplr" else 0,))


def _repeat(b: Builder, call: Call) -> Lowered:
    """Each dimension gets one before it that is expanded, and joins it."""
    value, repeats = call["self"], call.get("repeats", call.get("dims"))
    repeats = (1,) * (value.rank - len(repeats)) + tuple(repeats)
    shape = (1,) * (len(repeats) - value.rank) + extents(value)
    pairs = list(zip(repeats, shape, strict=True))
    split = b.reshape(value, [n for r, s in pairs for n in ((1, s) if r != 1 else (s,))])
    grown = b.expand(split, [n for r, s in pairs for n in ((r, s) if r != 1 else (s,))])
    return b.reshape(grown, [r * s for r, s in pairs])


def _repeat_interleave(b: Builder, call: Call) -> Lowered | None:
    if not isinstance(call.get("repeats"), int) or "self" not in call.arguments:
        return None
    value, times = call["self"], call["repeats"]
    value = b.reshape(value, (-1,)) if call.get("dim") is None else value
    dim = dimension(call.get("dim", 0), value.rank)
    shape = extents(value)
    split = b.reshape(value, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
    return b.reshape(b.expand(split, (*shape[: dim + 1], times, *shape[dim + 1 :])), call.shape)


def _roll(b: Builder, call: Call) -> Lowered:
    value, shifts, dims = call["self"], call["shifts"], call.get("dims", ())
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        return b.reshape(_rolled(b, b.reshape(value, (-1,)), [(0, shifts[0])]), extents(value))
    total: dict[int, int] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        place = dimension(dim, value.rank)
        total[place] = total.get(place, 0) + shift
    return _rolled(b, value, list(total.items()))


def _rolled(b: Builder, value: Value, shifts: Sequence[tuple[int, int]]) -> Value:
    """``value`` with some dimensions rolled: two parts of the first, each of them rolled along the others.
    All parts are slices of ``value`` itself, so they are joined in one pass, whatever their number."""
    if not shifts:
        return value
    (dim, shift), *others = shifts
    size = extents(value)[dim]
    shift = shift % size if size else 0
    if not shift:
        return _rolled(b, value, others)
    parts = b.slice(value, dim, size - shift, shift), b.slice(value, dim, 0, size - shift)
    return b.cat([_rolled(b, part, others) for part in parts], dim)


def _cat(b: Builder, call: Call) -> Lowered:
    return b.cast(b.cat(call["tensors"], call.get("dim", 0)), call.dtype)


def _stack(b: Builder, call: Call) -> Lowered:
    dim = dimension(call.get("dim", 0), len(call.shape))
    return b.cat([b.unsqueeze(value, dim) for value in call["tensors"]], dim)


def _pad(b: Builder, call: Call) -> Lowered | None:
    """Constant padding is a node; the other modes join mirrored or repeated edges, dimension by dimension."""
    value, pads, mode = call["self"], list(call["pad"]), call.get("mode", "constant")
    before, after = [0] * value.rank, [0] * value.rank
    for place in range(len(pads) // 2):
        before[-1 - place], after[-1 - place] = pads[2 * place], pads[2 * place + 1]
    if mode == "constant":
        return b.pad(value, before, after, call.get("value", 0))
    for dim, (low, high) in enumerate(zip(before, after, strict=True)):
        if low < 0 or high < 0:
            return None
        value = _edged(b, value, dim, low, high, mode) if low or high else value
    return value


def _edged(b: Builder, value: Value, dim: int, low: int, high: int, mode: str) -> Value:
    size = extents(value)[dim]
    match mode:
        case "reflect":
            left, right = b.slice(value, dim, 1, low), b.slice(value, dim, size - 1 - high, high)
            left, right = b.flip(left, [dim]), b.flip(right, [dim])
        case "replicate":
            shape = extents(value)
            edges = [b.slice(value, dim, at, 1) for at in (0, size - 1)]
            left, right = (
                b.expand(edge, (*shape[:dim], n, *shape[dim + 1 :]))
                for edge, n in zip(edges, (low, high), strict=True)
            )
        case _:
            left, right = b.slice(value, dim, size - low, low), b.slice(value, dim, 0, high)
    return b.cat([*([left] if low else []), value, *([right] if high else [])], dim)


def _unfold(b: Builder, call: Call) -> Lowered | None:
    """Windows, the elements of each in a dimension behind all others."""
    value = call["self"]
    if not value.rank:
        return None
    dim = dimension(call["dimension"], value.rank)
    split = _windows(b, value, dim, call.shape[dim], call["size"], call["step"])
    order = [d for d in range(value.rank + 1) if d != dim + 1]
    return b.permute(split, [*order, dim + 1])


def _as_strided(b: Builder, call: Call) -> Lowered | None:
    """Windows along the last dimension, as frames of a signal are written; all others have no normal form."""
    value = call["self"]
    shape, stride = extents(value), tuple(step.value for step in value.stride)
    if not value.rank or not value.contiguous or call.get("storage_offset") is not None:
        return None
    if len(call.shape) != len(shape) + 1 or len(call["stride"]) != len(call.shape):
        return None
    (*lead, count, size), (*steps, step, each) = call.shape, call["stride"]
    same = (tuple(lead), tuple(steps)) == (shape[:-1], stride[:-1])
    if not same or each != 1 or step < 1 or (count - 1) * step + size > shape[-1]:
        return None
    return _windows(b, value, value.rank - 1, count, size, step)


def _windows(b: Builder, value: Value, dim: int, count: int, size: int, step: int) -> Value:
    """``count`` stretches along ``dim``, in a dimension of their own before it. Those that do not overlap are
    a reshape; others take elements by places that are counted.

    How many long steps fit is the same for many lengths, and captures at a few would not show that it depends
    on the length: so that is part of the node, and of what a file is for.
    """
    shape = extents(value)
    if size == step:
        cut = b.slice(value, dim, 0, count * size)
    else:
        first = b.range(count, "int64", 0, step)
        places = b.pointwise("add", b.unsqueeze(first, 1), b.range(size, "int64"))
        found = (*shape[:dim], count * size, *shape[dim + 1 :])
        taken = {"how": "index_select", "dim": dim, "steps": (shape[dim], step) if step > 1 else None}
        cut = b.one("gather", [value, b.reshape(places, (-1,))], found, value.dtype, "windows", **taken)
    return b.reshape(cut, (*shape[:dim], count, size, *shape[dim + 1 :]))


def _im2col(b: Builder, call: Call) -> Lowered:
    """Windows of a padded image along its height and its width; all that lies in one is a column."""
    x, batched = call["self"], call["self"].rank == 4
    x = x if batched else b.unsqueeze(x, 0)
    padding = (0, 0, *call["padding"])
    found = b.pad(x, padding, padding)
    for dim, size, step, dilation in zip(
        (2, 3), call["kernel_size"], call["stride"], call["dilation"], strict=True
    ):
        found = b.windows(found, dim, size, step, dilation)
    return b.reshape(b.permute(found, (0, 1, 4, 5, 2, 3)), call.shape)


def _pixel_shuffle(b: Builder, call: Call) -> Lowered:
    value, r = call["self"], call["upscale_factor"]
    *lead, channels, height, width = extents(value)
    n = len(lead)
    split = b.reshape(value, (*lead, channels // (r * r), r, r, height, width))
    moved = b.permute(split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return b.reshape(moved, call.shape)


def _pixel_unshuffle(b: Builder, call: Call) -> Lowered:
    value, r = call["self"], call["downscale_factor"]
    *lead, channels, height, width = extents(value)
    n = len(lead)
    split = b.reshape(value, (*lead, channels, height // r, r, width // r, r))
    moved = b.permute(split, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return b.reshape(moved, call.shape)


def _channel_shuffle(b: Builder, call: Call) -> Lowered:
    value, groups = call["self"], call["groups"]
    batch, channels, *space = extents(value)
    split = b.reshape(value, (batch, groups, channels // groups, *space))
    return b.reshape(b.transpose(split, 1, 2), call.shape)


def _diagonal(b: Builder, call: Call) -> Lowered | None:
    """Of matrices: from each row the element whose column is counted up with it."""
    value, offset = call["self"], call.get("offset", 0)
    row, across = (dimension(call[d], value.rank) for d in ("dim1", "dim2"))
    *lead, size = call.shape
    lead_dims = (dim for dim in range(value.rank) if dim not in (row, across))
    value = b.slice(b.permute(value, (*lead_dims, row, across)), -2, max(-offset, 0), size)
    column = b.reshape(b.range(size, "int64", max(offset, 0)), (*(1 for _ in lead), size, 1))
    places, shape = b.expand(column, (*lead, size, 1)), (*lead, size, 1)
    dim = value.rank - 1
    found = b.one("gather", [value, places], shape, value.dtype, "diagonal", how="gather", dim=dim)
    return b.reshape(found, call.shape)


def _diag(b: Builder, call: Call) -> Lowered | None:
    """Of a vector: a matrix that is zero elsewhere."""
    value = call["self"]
    if value.rank != 1 or call.get("diagonal", 0):
        return None
    size = extents(value)[0]
    row, column = b.reshape(b.range(size, "int64"), (size, 1)), b.range(size, "int64")
    zero: Number = 0
    return b.where(b.pointwise("eq", row, column), b.reshape(value, (size, 1)), b.fill((), zero, value.dtype))


def _diag_embed(b: Builder, call: Call) -> Lowered | None:
    """Matrices that are zero beside their diagonals, in the last two dimensions."""
    value = call["self"]
    dims = [
        dimension(call.get(name, default), value.rank + 1) for name, default in (("dim1", -2), ("dim2", -1))
    ]
    if dims != [value.rank - 1, value.rank] or call.get("offset", 0):
        return None
    size = extents(value)[-1]
    row, column = b.reshape(b.range(size, "int64"), (size, 1)), b.range(size, "int64")
    zero: Number = 0
    return b.where(b.pointwise("eq", row, column), b.unsqueeze(value, -1), b.fill((), zero, value.dtype))


def _meshgrid(b: Builder, call: Call) -> Lowered:
    """Each list of coordinates along its own dimension, and the same along all others."""
    lists, turned = call["tensors"], call.get("indexing") == "xy" and len(call["tensors"]) > 1
    order = [1, 0, *range(2, len(lists))] if turned else range(len(lists))
    return [
        b.expand(b.reshape(values, [-1 if d == at else 1 for d in range(len(lists))]), shape)
        for values, at, (shape, _) in zip(lists, order, call.results, strict=True)
    ]


RULES: dict[str, Rule] = {
    "meshgrid": _meshgrid,
    **dict.fromkeys(
        [
            "view",
            "_unsafe_view",
            "reshape",
            "flatten",
            "unflatten",
            "squeeze",
            "unsqueeze",
            "view_as",
            "reshape_as",
            "ravel",
            "_reshape_alias",
        ],
        _to_shape,
    ),
    "permute": _permute,
    **dict.fromkeys(["transpose", "swapaxes", "swapdims"], _transpose),
    "numpy_T": _turned,
    **dict.fromkeys(["t", "mT", "matrix_H"], _swapped),
    **dict.fromkeys(["movedim", "moveaxis"], _movedim),
    "slice": _slice,
    "narrow": _narrow,
    "select": _select,
    **dict.fromkeys(
        ["split", "split_with_sizes", "chunk", "unbind", "unsafe_split", "unsafe_chunk", "tensor_split"],
        _pieces,
    ),
    **dict.fromkeys(["expand", "expand_as", "broadcast_to"], _expand),
    "broadcast_tensors": _broadcast,
    **dict.fromkeys(["flip", "fliplr", "flipud"], _flip),
    **dict.fromkeys(["repeat", "tile"], _repeat),
    "repeat_interleave": _repeat_interleave,
    "roll": _roll,
    **dict.fromkeys(["cat", "concat", "concatenate"], _cat),
    "stack": _stack,
    **dict.fromkeys(["pad", "constant_pad_nd"], _pad),
    "unfold": _unfold,
    "as_strided": _as_strided,
    "im2col": _im2col,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    **dict.fromkeys(["channel_shuffle", "native_channel_shuffle"], _channel_shuffle),
    "diagonal": _diagonal,
    "diag": _diag,
    "diag_embed": _diag_embed,
}
