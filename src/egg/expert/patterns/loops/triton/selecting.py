"""The first elements of rows in order, from registers: no sort by radix, no pass through memory.

Elements are compared as whole numbers of the same order (*keys*), in which a NaN is above all numbers, as
PyTorch has it, and both zeros are one. Where the smallest are wanted the bits of a key are turned.

*Few* are taken one after the other: the largest key of a row, the first place that has it, and a key below
all others in that place. Two reductions a turn, each of 32-bit integers, which one instruction joins across a
warp. The row is gone over as often as elements are taken, but only in registers.

*Many*, and whole rows, go through a bitonic network. Key and place are one number of 64 bits then, so that
nothing has to be carried along, and of equal elements the first is first.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.emit.ordering import in_turns
from egg.expert.emit.triton.scalar import FLOATING, literal
from egg.expert.graph import HALF, Graph, Node
from egg.expert.parts import Unfit
from egg.expert.patterns.loops.domain import PICK
from egg.expert.patterns.loops.triton.gathering import Tile
from egg.expert.patterns.loops.triton.reader import LoopBody

FUNCTIONS: dict[str, str] = {
    "ordered_key": '''@triton.jit
def ordered_key(x):
    """A whole number of the same order: a NaN is above all numbers, both zeros are one."""
    bits = tl.where(x == 0.0, 0, x.to(tl.float32).to(tl.int32, bitcast=True))
    return tl.where(x == x, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFE)
''',
    "value_of_key": '''@triton.jit
def value_of_key(key):
    """The number that a key was made of."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
''',
}
"""Functions that kernels order by."""
MOST = 2**31 - 1
"""Beyond all places."""


@dataclass(frozen=True)
class Order:
    """One selection as a kernel writes it."""

    graph: Graph
    node: Node
    body: LoopBody
    tile: Tile
    """Of whole rows."""
    taken: Tile
    """Of what is taken of them."""
    position: str
    """The places along a row."""

    @property
    def dtype(self) -> str:
        return self.graph.value(str(self.node.inputs[0])).dtype

    @property
    def count(self) -> str:
        """How many elements are taken."""
        return self.graph.value(self.node.outputs[0]).shape[self.node["dim"]].code()

    @property
    def bits(self) -> int:
        """Of a key. Elements that are taken in turns leave a key below all others behind, and whole numbers
        of 32 bits have none."""
        return 64 if self.dtype == "int32" and in_turns(self.graph, self.node) else 32

    def reads(self, which: int) -> bool:
        """Whether a result is needed: the values (0) or the places (1)."""
        name = self.node.outputs[which]
        return name in self.graph.results or bool(self.graph.consumers[name])


def selected(order: Order, element: str) -> tuple[str, str]:
    """Variables with the first elements of each row and with their places; what nothing reads is empty."""
    key = order.body.let("key", _key(order, element))
    keys, places = (_turns if in_turns(order.graph, order.node) else _network)(order, key)
    if not keys:
        return "", places
    keys = keys if order.node["largest"] else f"~{keys}"
    text = f"value_of_key({keys})" if order.dtype in FLOATING else keys
    return order.body.let("values", text), places


def _key(order: Order, element: str) -> str:
    """The keys of a tile; lanes beyond the row have the least of all."""
    if order.dtype in HALF:  # rounded as in the program: what is equal there is equal here
        element = f"{element}.to(tl.{order.dtype})"
    text = f"ordered_key({element})" if order.dtype in FLOATING else f"{element}.to(tl.int{order.bits})"
    return order.tile.masked(text if order.node["largest"] else f"~{text}", _least(order))


def _least(order: Order) -> str:
    return literal(-(2 ** (order.bits - 1)))


def _turns(order: Order, key: str) -> tuple[str, str]:
    """Take the largest key, and leave the least in its place; what turn it was is the place of the result."""
    body, tile, shape = order.body, order.tile, order.taken.shape
    if order.count == "1":
        best = body.let("best", tile.across("max", key))
        return best, body.let("best_at", _first(order, key, best))
    names = [body.name(stem) if order.reads(which) else "" for which, stem in enumerate(("keys", "places"))]
    turn, found = body.name("turn"), (body.name("best"), body.name("best_at"))
    for name, bits in zip(names, (order.bits, 32), strict=True):
        if name:
            body.line(f"{name} = tl.zeros({shape}, tl.int{bits})")
    body.line(f"for {turn} in range({order.count}):")
    body.indent += 1
    body.line(f"{found[0]} = {tile.across('max', key)}")
    body.line(f"{found[1]} = {_first(order, key, found[0])}")
    for name, text in zip(names, found, strict=True):
        if name:
            body.line(f"{name} = tl.where({PICK} == {turn}, {text}, {name})")
    body.line(f"{key} = tl.where({order.position} == {found[1]}, {_least(order)}, {key})")
    body.indent -= 1
    return names[0], names[1]


def _first(order: Order, key: str, best: str) -> str:
    """The first place of each row that has its largest key."""
    return order.tile.across("min", f"tl.where({key} == {best}, {order.position}, {MOST})")


def _network(order: Order, key: str) -> tuple[str, str]:
    body, taken = order.body, order.taken
    packed = body.let("packed", f"({key}.to(tl.int64) << 32) | ({MOST} - {order.position})")
    sort = f"tl.topk({packed}, PICKS)" if taken.width == "PICKS" else f"tl.sort({packed}, descending=True)"
    ordered = body.let("ordered", sort)
    place = f"({MOST} - ({ordered} & {MOST})).to(tl.int32)"
    place = f"tl.where({taken.mask}, {place}, 0)" if taken.mask else place
    return (
        body.let("keys", f"({ordered} >> 32).to(tl.int32)") if order.reads(0) else "",
        body.let("places", place) if order.reads(1) else "",
    )


def one_of(tile: Tile, body: LoopBody, text: str, at: str, position: str, stem: str) -> str:
    """The element of each row at one place."""
    zero = f"tl.where({position} == {at}, {text}, 0)"
    return body.let(stem, tile.across("sum", zero))


def check(graph: Graph, node: Node) -> None:
    """:class:`Unfit` where elements have no keys."""
    dtype = graph.value(str(node.inputs[0])).dtype
    if dtype not in FLOATING and dtype not in ("int32", "int16", "int8", "uint8", "bool"):
        raise Unfit(f"no kernel orders {dtype}")
