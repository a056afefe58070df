"""Group and instance norms of a convolution's result: their statistics, from where the sums are.

Such a norm needs its row twice, once for the statistics and once to apply them, so whatever follows it waits
for a pass over memory. Instead each tile of the convolution leaves mean and sum of squared deviations of its
positions, per channel, from the registers that it stores its results from. A small kernel joins those of all
tiles of a row (Chan's formula for many parts at once: the common mean first, then all deviations from it)
into one mean and one factor per channel. What is left of the norm is pointwise, and shares its pass with what
follows: a mean over space, or a reduction over channels.

It pays where a reduction follows, where the result is larger than the L2 cache, and where a row of the norm
is too long for registers. Batch norms are left as they are: there the two reductions cost as much as the
pass that they would save.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from egg.expert.emit.kernel import tuple_text
from egg.expert.emit.names import underscored
from egg.expert.emit.reader import is_fixed_norm
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.parts import Constant, Group, Launch, Part, Target, Unfit, spelled
from egg.expert.patterns.convolution.pooled import downstream
from egg.expert.patterns.convolution.sums import ROWS, TILE_MOMENTS, WASTED, Writer
from egg.expert.patterns.convolution.triton.norm_join import Join
from egg.expert.patterns.loops import write as loops
from egg.expert.sizes import ONE, Size, as_size, named, product

LARGE = 2**26
"""Bytes of a result that the L2 cache does not keep until the norm reads it."""
RESIDENT = 2**14
"""Elements of a row that stay in registers: read once, statistics included."""
WIDEST = 64
"""Channels with statistics in common, at most."""


def write_norms(graph: Graph, group: Group, target: Target, write: Writer) -> Part | None:
    """The group in three parts around its first norm; ``None`` where it has none."""
    conv = next((node for node in group.nodes if node.op == "conv"), None)
    behind = list(downstream(group.nodes, conv)) if conv is not None else []
    norm = next((node for node in behind if node.op == "norm" and not is_fixed_norm(node)), None)
    if conv is None or norm is None:
        return None
    x = graph.value(str(norm.inputs[0]))
    if norm["kind"] not in ("group", "instance") or len(norm.outputs) > 1:
        raise Unfit(f"a {norm['kind']} norm after a convolution")
    if x.shape != graph.result(conv).shape or x.dtype != "float32":
        raise Unfit("a norm of something else than the convolution's positions, or of 16-bit numbers")
    cut = Cut(graph, group, norm, x, int(target.settings.get("BLOCK_P", ROWS)))
    plane = cut.positions.value
    if x.bytes < LARGE or plane * cut.width.value <= RESIDENT:
        raise Unfit("what stays in the cache or in registers is as well read again")
    if 2 * sum(graph.value(name).bytes for name in group.writes(graph)) > x.bytes:
        raise Unfit("nothing that follows the norm makes less of it")
    if -(-plane // cut.rows) * cut.rows > WASTED * plane:
        raise Unfit(f"images of {plane} positions are too small for tiles of their own")
    return cut.written(target, write)


@dataclass(frozen=True)
class Cut:
    """A group around its norm."""

    graph: Graph
    group: Group
    norm: Node
    x: Value
    rows: int
    """Positions of a tile."""

    @property
    def positions(self) -> Size:
        """Of an image."""
        return product(self.x.shape[2:])

    @property
    def width(self) -> Size:
        """Channels with statistics in common."""
        if self.norm["kind"] == "instance":
            return ONE
        shared = self.x.shape[1].over(as_size(self.norm["groups"]))
        if shared is None or shared.value > WIDEST:
            raise Unfit("groups of too many channels, or of a number without a name")
        return shared

    def written(self, target: Target, write: Writer) -> Part:
        early, late = self._sides()
        front = write(*self._front(early), target)
        rear = loops.write(*self._rear(late), Target(target.gpu))
        join, call = self._join()
        shown = (*self.x.shape, self.width)
        named_here = (symbol.name for size in shown for symbol in size.factors if symbol.name.isidentifier())
        constants = (Constant(c.name, c.value, (), c.why) for c in rear.constants)
        return Part(
            kernels={**front.kernels, f"{self.group.name}_join": join, **rear.kernels},
            call=(*front.call, *call, *rear.call),
            constants=(*front.constants, *constants),
            helpers={**front.helpers, **rear.helpers},
            functions=(*front.functions, *rear.functions),
            sizes=tuple(dict.fromkeys((*front.sizes, *named_here, *rear.sizes))),
            summary=f"{front.summary}; its tiles leave the statistics of the norm behind, too",
            launches=(*front.launches, Launch(f"{self.group.name}_join"), *rear.launches),
            uses=front.uses | rear.uses,
            counts=(*front.counts, *rear.counts),
        )

    def _sides(self) -> tuple[list[Node], list[Node]]:
        """What comes before the norm, and what after; what the norm does not wait for goes after."""
        needed = {name for name in self.norm.inputs[:1] if name is not None}
        early: list[Node] = []
        for node in reversed(self.group.nodes):
            if not needed.isdisjoint(node.outputs):
                early.insert(0, node)
                needed.update(name for name in node.inputs if name is not None)
        taken = {id(node) for node in early} | {id(self.norm)}
        return early, [node for node in self.group.nodes if id(node) not in taken]

    def _name(self, word: str) -> str:
        return underscored(f"{self.norm.output}_{word}", self.graph.values)

    def _front(self, early: list[Node]) -> tuple[Graph, Group]:
        """The convolution, its result, and what its tiles leave."""
        graph, x = self.graph, self.x
        block = f"{self.group.name.upper()}_BLOCK_P"
        counts = tuple(-(-value // self.rows) for value in self.positions.values)
        tiles = named(f"triton.cdiv({self.positions}, {block})", counts)
        shape = (x.shape[0], tiles, Size(2), x.shape[1])
        parts = Value(self._name("parts"), shape, "float32", contiguous_stride(shape))
        nodes = (*early, Node(TILE_MOMENTS, (x.name,), (parts.name,), {}, self.norm.label))
        made = {name for each in early for name in each.outputs} - {x.name}
        results = (*(name for name in self.group.writes(graph) if name in made), x.name, parts.name)
        used = {name for each in nodes for name in (*each.inputs, *each.outputs)} | set(graph.arguments)
        kept = {name: value for name, value in graph.values.items() if name in used}
        whole = replace(graph, values={**kept, parts.name: parts}, nodes=nodes, results=results)
        return whole, Group(self.group.name, nodes, self.group.pattern)

    def _statistic(self, word: str) -> Value:
        """One number per image and channel."""
        shape = (*self.x.shape[:2], *(ONE,) * (self.x.rank - 2))
        name = self._name(word)
        return Value(name, shape, "float32", contiguous_stride(shape), Origin.INPUT, name)

    def _rear(self, late: list[Node]) -> tuple[Graph, Group]:
        """The norm as pointwise operators, and what follows."""
        graph, norm, x = self.graph, self.norm, self.x
        mean, scale = self._statistic("mean"), self._statistic("scale")
        values = {**graph.values, mean.name: mean, scale.name: scale}
        steps = {"sub": mean.name, "mul": scale.name}
        nodes: list[Node] = []
        bias = (*norm.inputs[1:3], None, None)[1]
        if bias is not None:
            shape = (ONE, x.shape[1], *(ONE,) * (x.rank - 2))
            spread = Value(self._name("bias"), shape, graph.value(bias).dtype, contiguous_stride(shape))
            values[spread.name] = spread
            nodes.append(Node("view", (bias,), (spread.name,), {"how": "reshape"}))
            steps["add"] = spread.name
        last = x.name
        for fn, other in steps.items():
            name = norm.output if fn == list(steps)[-1] else self._name(fn)
            values.setdefault(name, replace(graph.value(norm.output), name=name))
            nodes.append(Node("pointwise", (last, other), (name,), {"fn": fn}))
            last = name
        nodes += late
        made = {name for node in nodes for name in node.outputs}
        read = {name for node in nodes for name in node.inputs if name is not None} - made
        for name in read:
            if values[name].origin is Origin.NODE:
                values[name] = replace(values[name], origin=Origin.INPUT, path=name)
        values = {name: value for name, value in values.items() if name in made | read}
        arguments = tuple(name for name in values if values[name].origin is Origin.INPUT)
        results = tuple(name for name in self.group.writes(graph) if name in made)
        whole = Graph(values, tuple(nodes), arguments, results, "tuple", graph.symbols)
        return whole, Group(f"{self.group.name}_apply", tuple(nodes), "loops")

    def _join(self) -> tuple[str, list[str]]:
        """The kernel that joins the tiles' statistics, and the lines that call it."""
        mean, scale, parts = (self._name(word) for word in ("mean", "scale", "parts"))
        weight = (*self.norm.inputs[1:3], None)[0]
        channels, width = self.x.shape[1], self.width
        launch = Join(
            name=f"{self.group.name}_join",
            tensors={"parts_ptr": parts, "mean_ptr": mean, "scale_ptr": scale},
            weight=None if weight is None else spelled(self.graph, weight),
            sizes={"tiles": f"{parts}.shape[1]", "positions": self.positions.code()},
            channels=channels,
            width=width,
            positions_each=f"{self.group.name.upper()}_BLOCK_P",
            eps=float(self.norm["eps"]),
        )
        shape = tuple_text(self._statistic("mean").shape)
        call = [
            f"{mean} = torch.empty({shape}, device={parts}.device, dtype=torch.float32)",
            f"{scale} = torch.empty_like({mean})",
            *launch.launch(f"({self.x.shape[0]} * {channels.over(width)},)"),
        ]
        return launch.definition(), call
