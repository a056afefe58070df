"""Real and imaginary parts of spectra and other complex tensors that calls of PyTorch make."""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.graph import NUMBERS, PAIRS, Node, Operand, Value
from egg.expert.reading.normal.builder import Builder, Call, Lowered, Rule, extents

PARTS = {"complex64": "float32", "complex128": "float64"}


def _part(place: int) -> Rule:
    """The real or the imaginary part of what a library call makes (a spectrum): every second number of the
    memory that it lies in, so kernels read both where they are, and none is copied apart.

    Not where something in the program may have its conjugation still to do, which such a view cannot show.
    """

    def rule(b: Builder, call: Call) -> Lowered | None:
        value, pairs = call["self"], None if waits(b) else _parts_of(b, call["self"])
        return None if pairs is None else b.reshape(b.slice(pairs, -1, place, 1), extents(value))

    return rule


def block_put(b: Builder, whole: Value, views: Sequence[Node], new: Value) -> Value | None:
    """``whole`` with ``new`` in the block of it that slices show: complex numbers (modes of a spectrum) put
    into such that are one number everywhere, or were put together so before.

    By their parts, so that it is a pass over memory: one for all blocks, which stores everything once. Calls
    of PyTorch would move all of it for each block.
    """
    source = made_parts(b, whole)
    slices = all(view.get("how") == "slice" and set(view["steps"]) == {1} for view in views)
    if source is None or not slices or not views or waits(b):
        return None
    starts = [sum(view["starts"][dim] for view in views) for dim in range(whole.rank)]
    parts = _parts_of(b, b.expand(new, extents(b.values[views[-1].output])))
    if parts is None:
        return None
    inside: Value | None = None
    for dim, (start, length, size) in enumerate(zip(starts, extents(parts), extents(whole), strict=False)):
        at = b.reshape(b.range(size, "int64"), [size if d == dim else 1 for d in range(whole.rank + 1)])
        for fn, bound, needed in (("ge", start, start > 0), ("lt", start + length, start + length < size)):
            if needed:
                there = b.pointwise(fn, at, bound)
                inside = there if inside is None else b.pointwise("logical_and", inside, there)
    behind = [n - start - m for n, start, m in zip(extents(whole), starts, extents(parts), strict=False)]
    wide = b.pad(parts, [*starts, 0], [*behind, 0])
    made = wide if inside is None else b.where(inside, wide, source)
    return call_of(b, NUMBERS, made, extents(whole), whole.dtype)


def made_parts(b: Builder, value: Value) -> Value | None:
    """Both parts of numbers that are one everywhere, or were put together from parts."""
    maker, dtype = b.producers.get(value.name), PARTS.get(value.dtype)
    if maker is None or dtype is None:
        return None
    if maker.get("target") == NUMBERS:
        return b.values[str(maker.inputs[0])]
    number = maker.get("fill")
    if number is None:
        return None
    return b.fill((*extents(value), 2), number, dtype) if number == 0 else None


def _parts_of(b: Builder, value: Value) -> Value | None:
    """Both parts of what a call has made."""
    maker = maker_of(b, value)
    if value.dtype not in PARTS or maker is None or maker.op != "library":
        return None
    return pairs_of(b, value)


def maker_of(b: Builder, value: Value) -> Node | None:
    """What made a value, or what that is a view of."""
    maker = b.producers.get(value.name)
    while maker is not None and maker.op == "view":
        maker = b.producers.get(str(maker.inputs[0]))
    return maker


def waits(b: Builder) -> bool:
    """Whether something in the program may have its conjugation still to do."""
    return any(node.op == "library" and _may_wait(str(node["target"])) for node in b.nodes)


def _may_wait(target: str) -> bool:
    """Whether a result may be a look at its operand with its conjugation or its sign still to do."""
    return any(word in target for word in ("conj", "neg_view", "adjoint"))


def pairs_of(b: Builder, value: Value) -> Value:
    """Both parts as PyTorch shows them, once for each value."""
    for node in b.nodes:
        if node.op == "library" and node["target"] == PAIRS and node.inputs == (value.name,):
            return b.values[node.output]
    made = call_of(b, PAIRS, value, (*extents(value), 2), PARTS[value.dtype])
    return b.restrided(made, [*(2 * step.value for step in value.stride), 1])


def call_of(b: Builder, target: str, value: Value, shape: Sequence[int], dtype: str) -> Value:
    more = {"target": target, "arguments": (Operand(0),), "keywords": {}}
    return b.one("library", [value], shape, dtype, target.removeprefix("torch."), **more)


RULES: dict[str, Rule] = {"real": _part(0), "imag": _part(1)}
