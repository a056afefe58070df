"""Sums and means over space behind a convolution, begun where its sums are.

A tile then holds positions of one image only and leaves one number per channel: what it adds to the sum. A
small kernel adds those up, in a fixed order, and does what follows. The result of the convolution is never
written. To the convolution the numbers of the tiles are a value like any other, made by a node ``tile_sums``;
to what follows they are an operand, and the reduction over space is one over tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from egg.expert.emit.kernel import size_names
from egg.expert.emit.names import underscored
from egg.expert.graph import Graph, Node, Origin, Value, contiguous_stride
from egg.expert.parts import Constant, Group, Part, Target, Unfit
from egg.expert.patterns.convolution.pooled import Windows, downstream
from egg.expert.patterns.loops import write as loops
from egg.expert.sizes import ONE, Size, named, product

Writer = Callable[[Graph, Group, Target], Part]

TILE_SUMS = "tile_sums"
TILE_MOMENTS = "tile_moments"
"""Mean and sum of squared deviations: see :mod:`~egg.expert.patterns.convolution.norms`."""
TILED = (TILE_SUMS, TILE_MOMENTS)
"""What a tile leaves of itself, one number or two per channel."""
ROWS = 128
"""Positions of a tile, unless the settings say how many."""
WASTED = 1.25
"""How many times the positions of an image its tiles may have."""


def write_sums(graph: Graph, group: Group, target: Target, write: Writer) -> Part | None:
    """The group in two parts around its first reduction over space; ``None`` where it has none."""
    conv = next((node for node in group.nodes if node.op == "conv"), None)
    if conv is None:
        return None
    rank = graph.result(conv).rank
    behind = list(downstream(group.nodes, conv))
    found = next((node for node in behind if _reduces_space(graph, node, rank)), None)
    if found is None:
        return None
    source = graph.value(str(found.inputs[0]))
    before = behind[: behind.index(found)]
    windows = Windows.of(graph, (conv, *before), conv, False)
    count = product(source.shape[2:]) * (windows.positions(len(windows.pools)) if windows else 1)
    rows = int(target.settings.get("BLOCK_P", ROWS))
    if -(-count.value // rows) * rows > WASTED * count.value:
        raise Unfit(f"images of {count.value} positions are too small for tiles of their own")
    return _Cut(graph, group, found, count, rows).written(target, write)


def _reduces_space(graph: Graph, node: Node, rank: int) -> bool:
    source = graph.value(str(node.inputs[0])) if node.op == "reduce" else None
    return (
        source is not None
        and node["fn"] in ("sum", "mean")
        and source.rank == rank
        and set(range(2, rank)) <= {dim % rank for dim in node["dims"]}
    )


class _Cut:
    """A group around one of its reductions."""

    def __init__(self, graph: Graph, group: Group, found: Node, count: Size, rows: int) -> None:
        self._graph, self._group, self._found = graph, group, found
        self._source = graph.value(str(found.inputs[0]))
        late = {id(found), *(id(node) for node in downstream(group.nodes, found))}
        self._late = [node for node in group.nodes if id(node) in late]
        needed = {found.inputs[0], *(set(group.writes(graph)) - {n for x in self._late for n in x.outputs})}
        self._early: list[Node] = []
        for node in reversed(group.nodes):
            if id(node) not in late and not needed.isdisjoint(node.outputs):
                self._early.insert(0, node)
                needed.update(name for name in node.inputs if name is not None)
        rest = {id(node) for node in (*self._early, *self._late)}
        side = {id(node) for node in group.nodes if id(node) not in rest}
        self._late = [node for node in group.nodes if id(node) in side or id(node) in late]
        self._name = underscored(f"{found.output}_parts", graph.values)
        self._count = count
        self._tiles = tuple(-(-value // rows) for value in count.values)

    def written(self, target: Target, write: Writer) -> Part:
        front = write(*self._front(), target)
        rear = loops.write(*self._rear(), Target(target.gpu, {"mode": "looped"}))
        size = self._size_name()
        constants = (Constant(c.name, c.value, (), c.why) for c in rear.constants)
        return Part(
            kernels={**front.kernels, **rear.kernels},
            call=(*front.call, f"{size} = {self._name}.shape[1]", *rear.call),
            constants=(*front.constants, *constants),
            helpers={**front.helpers, **rear.helpers},
            functions=(*front.functions, *rear.functions),
            sizes=tuple(dict.fromkeys(name for name in (*front.sizes, *rear.sizes) if name != size)),
            summary=f"{front.summary}; what a tile adds to the sum over space is all that is written of it",
            launches=(*front.launches, *rear.launches),
            uses=front.uses | rear.uses,
            counts=(*front.counts, *rear.counts),
        )

    def _size_name(self) -> str:
        return underscored("tiles", {*size_names(self._graph), *self._graph.values})

    def _parts(self, tiles: Size, origin: Origin) -> Value:
        shape = (self._source.shape[0], tiles, self._source.shape[1])
        path = self._name if origin is Origin.INPUT else ""
        return Value(self._name, shape, "float32", contiguous_stride(shape), origin, path)

    def _front(self) -> tuple[Graph, Group]:
        graph, found = self._graph, self._found
        block = f"{self._group.name.upper()}_BLOCK_P"
        parts = self._parts(named(f"triton.cdiv({self._count}, {block})", self._tiles), Origin.NODE)
        over = product(self._source.shape[dim] for dim in found["dims"]) if found["fn"] == "mean" else ONE
        node = Node(TILE_SUMS, (self._source.name,), (self._name,), {"over": over}, found.label)
        nodes = (*self._early, node)
        made = {name for each in self._early for name in each.outputs}
        results = (*(name for name in self._group.writes(graph) if name in made), self._name)
        used = {name for each in nodes for name in (*each.inputs, *each.outputs)} | set(graph.arguments)
        values = {name: value for name, value in graph.values.items() if name in used}
        whole = replace(graph, values={**values, self._name: parts}, nodes=nodes, results=results)
        return whole, Group(self._group.name, nodes, self._group.pattern)

    def _rear(self) -> tuple[Graph, Group]:
        graph, found = self._graph, self._found
        parts = self._parts(named(self._size_name(), self._tiles), Origin.INPUT)
        rank = self._source.rank
        dims = {0: 0, 1: 2} | dict.fromkeys(range(2, rank), 1)
        over = tuple(sorted({dims[dim % rank] for dim in found["dims"]}))
        kept = tuple(size for dim, size in enumerate(parts.shape) if dim not in over)
        result = graph.result(found)
        values = {**graph.values, self._name: parts}
        how = {"fn": "sum", "dims": over, "keepdim": False}
        if result.shape == kept:
            first = [Node("reduce", (self._name,), found.outputs, how, found.label)]
        else:
            total = f"{self._name}_sum"
            values[total] = Value(total, kept, "float32", contiguous_stride(kept))
            first = [
                Node("reduce", (self._name,), (total,), how, found.label),
                Node("view", (total,), found.outputs, {"how": "reshape"}),
            ]
        later = [node for node in self._late if node is not found]
        place = self._late.index(found)
        nodes = (*later[:place], *first, *later[place:])
        made = {name for node in nodes for name in node.outputs}
        read = {name for node in nodes for name in node.inputs if name is not None} - made
        for name in read - {self._name}:
            value = graph.value(name)
            if value.origin is Origin.NODE:
                values[name] = replace(value, origin=Origin.INPUT, path=name)
        arguments = (*(name for name in graph.arguments if name in read), self._name)
        results = tuple(name for name in self._group.writes(graph) if name in made)
        values = {name: value for name, value in values.items() if name in made | read}
        whole = Graph(values, nodes, arguments, results, "tuple", graph.symbols)
        return whole, Group(f"{self._group.name}_finish", nodes, "loops")
