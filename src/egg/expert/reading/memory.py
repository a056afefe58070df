"""Writes in place made explicit: which tensors share memory, and what that memory holds now.

A graph of values knows no writes. So every piece of memory is a *room* with a current value, and a tensor is
a room and the chain of views that leads from the room to it. Reading a tensor after its room was written
replays the chain on the new value. Writing into a view puts the new elements into the room's value: views
that only move elements are undone, a slice is put back between its neighbours. Bits that are taken for other
numbers (``cache.view(torch.uint8)``) are a view like the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from egg.evaluator.task.dataless import Uncaptured
from egg.expert.graph import Node, Value
from egg.expert.reading.normal.builder import Builder, Call, extents, is_bits
from egg.expert.reading.normal.spectra import block_put


@dataclass
class Room:
    """A piece of memory, by the value that it holds."""

    current: Value
    version: int = 0


@dataclass
class Tensor:
    """A look at a room: its value when last looked, and the views in between."""

    room: Room
    value: Value
    version: int
    chain: tuple[Node, ...] = ()
    beside: tuple[Room, int, str] | None = None
    """A room that it shares memory with in a way that no view shows, when it was looked at, and by what."""

    @classmethod
    def fresh(cls, value: Value) -> Tensor:
        return cls(Room(value), value, 0)

    @classmethod
    def aliasing(cls, value: Value, source: Tensor, name: str) -> Tensor:
        """Of a call that shows the memory of ``source`` in another way than by views."""
        return cls(Room(value), value, 0, (), (source.room, source.room.version, name))

    def read(self, builder: Builder) -> Value:
        if self.beside is not None and self.beside[0].version != self.beside[1]:
            raise Uncaptured(f"forward writes into a tensor of which {self.beside[2]} was taken before")
        if self.version != self.room.version:
            value = self.room.current
            for view in self.chain:
                value = replayed(builder, view, value)
            self.value, self.version = value, self.room.version
        return self.value

    def in_own_numbers(self, builder: Builder) -> Value | None:
        """What it shows, in the numbers of its room; ``None`` where these are its own."""
        shown = self.room.current
        if self.value.dtype == shown.dtype or self.beside is not None:
            return None
        for view in self.chain:
            shown = shown if is_bits(view, builder.values) else replayed(builder, view, shown)
        return shown

    def viewed(self, value: Value, views: tuple[Node, ...]) -> Tensor:
        """A further look, through nodes that lead from this one's value to ``value``."""
        return Tensor(self.room, value, self.version, (*self.chain, *views), self.beside)

    def write(self, builder: Builder, new: Value) -> None:
        """Everything that shares the memory sees it from now on. ``new`` may be in the room's numbers."""
        if self.beside is not None:
            raise Uncaptured(f"forward writes into what {self.beside[2]} shows of another tensor")
        sources, chain, shown = [self.room.current], self.chain, self.value.dtype
        if new.dtype != shown:
            chain = tuple(view for view in chain if not is_bits(view, builder.values))
        for view in chain:
            sources.append(replayed(builder, view, sources[-1]))
        value = block_put(builder, self.room.current, chain, new)
        if value is None:
            value = new
            for view, source in zip(reversed(chain), reversed(sources[:-1]), strict=True):
                value = written_through(builder, view, source, value)
        self.room.current = value
        self.room.version += 1
        self.value, self.version = builder.bits(new, shown), self.room.version


def chain_between(builder: Builder, source: Value, result: Value) -> tuple[Node, ...] | None:
    """The view nodes that lead from one value to another; ``None`` where something else lies between."""
    made = builder.producers
    found: list[Node] = []
    name = result.name
    while name != source.name:
        node = made.get(name)
        if node is None or not (node.op == "view" or is_bits(node, builder.values)):
            return None
        found.append(node)
        name = str(node.inputs[0])
    return tuple(reversed(found))


_ELEMENTS = {"copy": "src", "index_put": "values", "_index_put_impl": "values", "index_copy": "source",
             "scatter": "src"}  # fmt: skip
"""Writes that only put elements into places, and the argument that has those."""


def moved_bits(builder: Builder, call: Call, tensor: Tensor) -> Call:
    """A write of elements through bits that are taken for others, as a write of the room's own numbers.

    ``cache.view(torch.uint8)[slots] = rows.view(torch.uint8)`` puts rows into the cache, whatever their bits
    are called; said so, it is a store at some places of an argument like any other.
    """
    shown, name = tensor.in_own_numbers(builder), _ELEMENTS.get(call.name, "")
    new, joins = call.get(name), bool(call.get("accumulate") or call.get("reduce"))
    if shown is None or not isinstance(new, Value) or joins:
        return call
    new = builder.bits(builder.cast(new, call.dtype), shown.dtype)
    arguments = {**call.arguments, "self": shown, name: new}
    return replace(call, arguments=arguments, results=((call.shape, shown.dtype),))


def replayed(builder: Builder, view: Node, source: Value) -> Value:
    """The same view of another value."""
    shape = extents(builder.values[view.output])
    match view.get("how", "bits"):
        case "bits":
            return builder.bits(source, builder.values[view.output].dtype)
        case "permute":
            return builder.permute(source, view["dims"])
        case "flip":
            return builder.flip(source, view["dims"])
        case "expand":
            return builder.expand(source, shape)
        case "windows":
            return builder.windows(source, view["dim"], view["size"], view["step"], view["dilation"])
        case "slice":
            for dim, (start, step) in enumerate(zip(view["starts"], view["steps"], strict=True)):
                source = builder.slice(source, dim, start, shape[dim], step)
            return source
        case _:
            return builder.reshape(source, shape)


def written_through(builder: Builder, view: Node, source: Value, new: Value) -> Value:
    """``source`` with the elements that ``view`` shows replaced by ``new``."""
    match view.get("how", "bits"):
        case "bits":
            return builder.bits(new, source.dtype)
        case "permute":
            back = [0] * len(view["dims"])
            for place, dim in enumerate(view["dims"]):
                back[dim] = place
            return builder.permute(new, back)
        case "flip":
            return builder.flip(new, view["dims"])
        case "reshape":
            return builder.reshape(new, extents(source))
        case "slice":
            return _put_back(builder, view, source, new)
        case how:
            raise Uncaptured(f"a write into an {how}ed tensor")


def _put_back(builder: Builder, view: Node, source: Value, new: Value) -> Value:
    """Between what lies before and behind, one dimension after the other, the innermost slice first."""
    shape, starts, steps = extents(source), view["starts"], view["steps"]
    outer = [source]
    lengths = extents(new)
    cut = [d for d in range(source.rank) if (starts[d], lengths[d], steps[d]) != (0, shape[d], 1)]
    for dim in cut:
        outer.append(builder.slice(outer[-1], dim, starts[dim], lengths[dim], steps[dim]))
    value = builder.cast(new, source.dtype)
    for dim, whole in zip(reversed(cut), reversed(outer[:-1]), strict=True):
        start, size = starts[dim], shape[dim]
        pieces = [builder.slice(whole, dim, 0, start)] if start else []
        pieces += _spread(builder, whole, dim, start, steps[dim], value)
        end = sum(extents(piece)[dim] for piece in pieces)
        pieces += [builder.slice(whole, dim, end, size - end)] if end < size else []
        value = builder.cat(pieces, dim)
    return value


def _spread(builder: Builder, whole: Value, dim: int, start: int, step: int, new: Value) -> list[Value]:
    """What lies along ``dim`` from ``start`` on when ``new`` has every ``step``-th place: blocks of one new
    element and the old ones behind it. The last new element may have no whole block left."""
    if step == 1:
        return [new]
    length, size = extents(new)[dim], extents(whole)[dim]
    blocks = min(length, (size - start) // step)
    pieces = []
    if blocks:
        old = builder.slice(whole, dim, start, blocks * step)
        by_block = [*extents(old)[:dim], blocks, step, *extents(old)[dim + 1 :]]
        behind = builder.slice(builder.reshape(old, by_block), dim + 1, 1, step - 1)
        first = builder.unsqueeze(builder.slice(new, dim, 0, blocks), dim + 1)
        pieces.append(builder.reshape(builder.cat([first, behind], dim + 1), extents(old)))
    return [*pieces, builder.slice(new, dim, blocks, 1)] if blocks < length else pieces
