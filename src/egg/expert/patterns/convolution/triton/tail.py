"""What becomes of a convolution's sums: what follows in the group, where the sums are, and the stores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from egg.expert.emit.code import Code
from egg.expert.emit.host import Host
from egg.expert.emit.kernel import Kernel, Knobs, allocation
from egg.expert.emit.reader import Reader, address, beyond_view, is_fixed_norm
from egg.expert.emit.triton.scalar import stored
from egg.expert.graph import BYTES, Node, Value
from egg.expert.index import Expr, Index, flat, loop_index
from egg.expert.parts import Part, Unfit, spelled
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.sums import TILE_MOMENTS, TILED
from egg.expert.patterns.convolution.tiles import Tile
from egg.expert.patterns.convolution.triton import pools
from egg.expert.patterns.convolution.triton.channels import MOST_CHANNELS, REDUCTIONS, over_channels
from egg.expert.patterns.convolution.triton.frame import counted
from egg.expert.patterns.convolution.triton.tile_sums import tile_left, tile_stores
from egg.expert.sizes import ONE

SECTOR = 32
"""Bytes that memory writes at once."""


@dataclass
class Tail:
    """What follows the convolution in its group, computed where the sums are."""

    form: Form
    index: Index
    places: dict[str, Index] = field(default_factory=dict)
    """For each value that depends on the sums: its index in terms of theirs."""
    operations: list[Node] = field(default_factory=list)
    """What is computed over all output channels of a position, pools, and batch norms with running
    statistics."""
    levels: dict[str, int] = field(default_factory=dict)
    """For each value: how many pools it is behind."""
    narrow: set[str] = field(default_factory=set)
    """Values with one number for all channels."""
    left: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What the tile leaves of itself, by the value that it belongs to: one number or two."""

    @classmethod
    def of(cls, form: Form, index: Index | None = None) -> Tail:
        tail = cls(form, index or form.output_index())
        tail.places[form.result.name] = tail.index
        if index is not None and form.windows is not None:
            raise Unfit("positions that are counted in an order of their own")
        for node in form.group.nodes:
            if node is form.node or not any(name in tail.places for name in node.inputs):
                continue
            if len(node.outputs) != 1:
                raise Unfit(f"{node.op} with {len(node.outputs)} results after a convolution")
            reached = [str(name) for name in node.inputs if name in tail.places]
            tail.levels[node.output] = max(tail.levels.get(name, 0) for name in reached) + (node.op == "pool")
            tail.places[node.output] = tail._beyond(node)
            if (node in tail.operations and node.op == "reduce") or not tail.narrow.isdisjoint(reached):
                tail.narrow.add(node.output)
        if odd := [value.name for value in tail.writes if value.name not in tail.places]:
            raise Unfit(f"{odd[0]} is needed outside, but is computed only in passing")
        last = len(form.windows.pools) if form.windows is not None else 0
        if any(tail.levels.get(value.name, 0) != last for value in tail.writes):
            raise Unfit("what lies before a pool is needed outside, and only its windows are computed")
        return tail

    def _beyond(self, node: Node) -> Index:
        graph, shape = self.form.graph, self.form.graph.result(node).shape
        reached = [str(name) for name in node.inputs if name in self.places]
        if node.op in ("reduce", "softmax"):
            return self._over_channels(node, self.places[reached[0]])
        if node.op == "pool":
            return self._pooled(node, self.places[reached[0]])
        if is_fixed_norm(node):
            return self._scaled(node, reached)
        if node.op in TILED:
            return self._summed(node, self.places[reached[0]])
        if node.op == "view":
            return beyond_view(graph, node, self.places[reached[0]])
        if node.op not in ("pointwise", "where"):
            raise Unfit(f"{node.op} after a convolution needs more than one tile")
        for name in reached:
            if graph.value(name).shape != shape or self.places[name] != self.places[reached[0]]:
                raise Unfit("a tail that combines different positions of the convolution")
        return self.places[reached[0]]

    def _pooled(self, node: Node, index: Index) -> Index:
        """A pool, whose windows a tile holds side by side."""
        windows, level = self.form.windows, self.levels[node.output]
        if windows is None or windows.pools[level - 1] is not node:
            raise Unfit("pools that do not follow each other")
        self._check_space(index, level - 1)
        self.operations.append(node)
        return windows.index(level, index[1])

    def _scaled(self, node: Node, reached: Sequence[str]) -> Index:
        """A batch norm with running statistics: a scale and a shift for each channel."""
        if reached != [node.inputs[0]] or reached[0] in self.narrow:
            raise Unfit("a batch norm whose statistics follow from the convolution, or of one number for all")
        self.operations.append(node)
        return self.places[reached[0]]

    def _summed(self, node: Node, index: Index) -> Index:
        """What a tile adds to a sum over space."""
        if self.form.phased or not self.narrow.isdisjoint(node.inputs):
            raise Unfit("sums over space in phases, or of one number for all channels")
        self._check_space(index, self.levels[node.output])
        self.operations.append(node)
        return Expr(), index[1], Expr()

    def _check_space(self, index: Index, level: int) -> None:
        windows, channel = self.form.windows, loop_index("c", self.form.groups * self.form.outputs)
        plain = windows.index(level, channel) if level and windows else self.index
        if index not in (plain, (plain[0], Expr(), *plain[2:])):
            raise Unfit("a reduction over something else than space")

    def _over_channels(self, node: Node, index: Index) -> Index:
        """A reduction or softmax over the output channels, all of which one tile then has."""
        form = self.form
        dims = (node["dim"],) if node.op == "softmax" else tuple(node["dims"])
        at = dims[0] % len(index)
        if node.op == "reduce" and node["fn"] not in REDUCTIONS:
            raise Unfit(f"{node['fn']} after a convolution")
        if len(dims) != 1 or index[at] != loop_index("c", form.outputs) or form.groups != ONE:
            raise Unfit(f"{node.op} after a convolution needs more than one tile")
        if form.outputs.value > MOST_CHANNELS or form.outputs == ONE:
            raise Unfit(f"no tile has {form.outputs.value} output channels")
        self.operations.append(node)
        if node.op == "softmax":
            return index
        return (*index[:at], *((Expr(),) if node["keepdim"] else ()), *index[at + 1 :])

    @property
    def block_o(self) -> str:
        """The width of a tile with all output channels, whatever their number; empty where none is needed."""
        return Host(self.form.graph, self.form.group).local("block_o") if self.whole else ""

    @property
    def whole(self) -> bool:
        """Whether something is computed over all channels."""
        return any(node.op in ("reduce", "softmax") for node in self.operations)

    def warps(self, tile: Tile) -> int:
        """Two reductions over a large tile that is stored as well need the registers of more threads."""
        reduced = any(node.op == TILE_MOMENTS for node in self.operations)
        return 8 if reduced and tile.rows * tile.columns >= 128 * 64 else tile.warps

    def preparations(self) -> list[str]:
        width = f"max(16, triton.next_power_of_2({self.form.outputs}))"
        return [*([f"{self.block_o} = {width}"] if self.whole else []), *self.allocations()]

    @property
    def writes(self) -> tuple[Value, ...]:
        return tuple(self.form.graph.value(name) for name in self.form.group.writes(self.form.graph))

    def bind(self, reader: Reader, text: str) -> None:
        """The sums, bias included, are what ``text`` says."""
        name = self.form.result.name

        def held(index: Index) -> str:
            if index != self.index:
                raise Unfit("a tail that reads other positions of the convolution")
            return text

        reader.bound[name] = held
        for node in self.operations:
            source = str(node.inputs[0])
            x = reader.read(source, self.places[source])
            if node.op == "pool" and self.form.windows is not None:
                level, rows = self.levels[node.output], "1" if source in self.narrow else "BLOCK_O"
                pools.define_level(self.form.windows, reader.body, level)
                text = pools.pooled(self.form.windows, reader.body, level, x, rows)
            elif node.op in TILED:
                left = tile_left(reader.body, node, x, self._inside(node.output), counted(self.form))
                self.left[node.output], text = left, left[0]
            elif is_fixed_norm(node):
                text = reader.fixed_norm(node, x, self.places[source][1])
            else:
                text = over_channels(reader.body, node, x, self.form.outputs.code())
            self._hold(reader, node.output, text)

    def _hold(self, reader: Reader, name: str, text: str) -> None:
        def held(index: Index) -> str:
            if index != self.places[name]:
                raise Unfit(f"{name} is needed at another place than it is computed at")
            return text

        reader.bound[name] = held

    def store(self, kernel: Kernel, reader: Reader, mask: str, tiled: bool = False) -> None:
        texts = [(value, reader.read(value.name, self.places[value.name])) for value in self.writes]
        kernel.add_pointers(reader.pointers)
        for value, text in texts:
            pointer = kernel.body.name(f"{value.name}_ptr")
            kernel.operands[pointer] = value.name
            if value.name in self.left:
                for line in tile_stores(value, pointer, self.left[value.name]):
                    kernel.body.line(line)
                continue
            inside = self._inside(value.name)
            shown = (
                inside if value.name in self.narrow else mask if inside == "inside" else f"{inside} & kept"
            )
            at = self._address(value)
            # one channel in all: c is 0 where it counts, and gives the addresses a tile's shape
            alone = tiled and value.name not in self.narrow and "c" not in at.symbols()
            where = f"{at} + c" if alone else f"{at}"
            if tiled and not at.symbols() - {"c"}:  # one position in all
                where += f" + tl.zeros((1, {self._columns(value)}), tl.int32)"
            parts = [where, stored(text, value.dtype), shown]
            if tiled and self._scattered(value):
                parts = [f"tl.reshape({part}, (BLOCK_O * {self._columns(value)},))" for part in parts]
            kernel.body.line(f"tl.store({pointer} + {parts[0]}, {parts[1]}, mask={parts[2]})")

    def _scattered(self, value: Value) -> bool:
        """Whether the compiler sees no runs in the addresses of a tile of channels by positions.

        Then Triton 3.6 puts lanes along the tile's first dimension, the channels, and each writes four bytes
        of another row. In one dimension there is no such choice: lanes follow positions. Where the channels
        are last, the first dimension is the one to follow: lanes along positions would each write four bytes
        of another sector.
        """
        symbols = {symbol for place in self.places[value.name] for symbol in place.symbols()}
        if value.name in self.narrow or "c" not in symbols or not any(s[0] in "qs" for s in symbols):
            return False
        if self._channels_last(value):
            return False
        if self.form.phased or self.levels.get(value.name, 0):
            return True
        return self.form.plane.value % 2 == 1

    def _channels_last(self, value: Value) -> bool:
        """Whether the channels of a position lie side by side and fill a sector."""
        run = self.form.outputs.value * BYTES.get(value.dtype, 4)
        return self._address(value).stride_of("c") == ONE and run >= SECTOR

    def _columns(self, value: Value) -> str:
        """Of a tile, at the value's level."""
        windows, level = self.form.windows, self.levels.get(value.name, 0)
        if windows is not None and level:
            return f"(BLOCK_P // {windows.positions(level)})"
        return f"BLOCK_P * {self.form.width}" if self.form.width > 1 else "BLOCK_P"

    def _inside(self, name: str) -> str:
        """Which columns of a tile count, at the value's level."""
        level = self.levels.get(name, 0)
        return f"inside{level}" if level else "inside"

    def _address(self, value: Value) -> Expr:
        index = self.places[value.name]
        if value.contiguous:
            return flat(index, value.shape)
        return address(value, index)

    def allocations(self) -> list[str]:
        device = f"{spelled(self.form.graph, self.source)}.device"
        return [allocation(value, device) for value in self.writes if not value.lent]

    @property
    def source(self) -> str:
        """A tensor that is there before the group."""
        return self.form.group.reads(self.form.graph)[0]


def finished(form: Form, code: Code, knobs: Knobs, summary: str, counts: Sequence[str] = ()) -> Part:
    """The part: kernels, and one function for the host, which ``forward`` calls in a line."""
    if form.windows is not None:
        code.kernels = {**pools.helpers(form.windows), **code.kernels}
    host = Host(form.graph, form.group).function(code.call, f"{summary[0].upper()}{summary[1:]}.", {})
    counts = (*form.counts, *counts)
    return code.behind(host).part(knobs.constants(), summary, sizes=host.sizes, counts=counts)


def tile_masks(form: Form) -> dict[str, str]:
    """Which of a tile's indices may overshoot."""
    masks = {"n": "inside", "s": "inside", "c": "kept"}
    masks |= form.windows.masks() if form.windows is not None else {}
    return masks | {f"q{axis.letter}": "inside" for axis in form.axes}


def finish(form: Form, kernel: Kernel, tail: Tail, pointers: dict[str, str], sums: str) -> None:
    """Bias, tail and stores."""
    reader = Reader(form.graph, form.group.nodes, kernel.body, tile_masks(form), pointers=pointers)
    if form.bias is not None:
        channel = loop_index("c", form.groups * form.outputs)
        bias = reader.read(form.bias.name, (channel,))
        sums = kernel.body.let("sums", f"{sums} + {bias}")
    tail.bind(reader, sums)
    tail.store(kernel, reader, "inside & kept", tiled=True)
