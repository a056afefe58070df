"""Batches of small matrices as one kernel: a thread for each item (:mod:`.triton.items`).

Settings: the constants ``BLOCK`` (items of a program) and ``NUM_WARPS``.
"""

from __future__ import annotations

from egg.expert.emit.code import Code
from egg.expert.emit.failures import FAILURES, HELPERS, allocated
from egg.expert.emit.kernel import Kernel, Knobs, allocation, is_large, size_names
from egg.expert.emit.names import read_by
from egg.expert.graph import Graph, Node, Value
from egg.expert.parts import Group, Part, Target, Unfit, spelled, within_reach
from egg.expert.patterns.matrices.triton.body import OWN, write_items
from egg.expert.patterns.matrices.triton.items import ELEMENTS, FACTORED, MOST_ELEMENTS
from egg.expert.patterns.matrices.triton.tiles import Tile
from egg.expert.sizes import ONE, Size, product

FEW = 2**16
"""Items up to which a warp has a program of its own, so that as many multiprocessors as possible work."""


def write(graph: Graph, group: Group, target: Target) -> Part:
    """The group as one kernel and the lines that call it."""
    anchors = [node for node in group.nodes if node.op in FACTORED and node.get("order") is not None]
    if not anchors:
        raise Unfit("no factorisation of small matrices")
    if len({_batch(graph, node) for node in anchors}) > 1:
        raise Unfit("batches of several sizes")
    batch, written = _batch(graph, anchors[0]), [graph.value(name) for name in group.writes(graph)]
    _check(graph, group)
    tiles = [_tile(value, batch) for value in written]
    name, knobs, code = group.name, Knobs(group.name, target.settings), Code()
    small = batch.value <= FEW
    if batch == ONE:
        block, warps = "1", "1"
    else:
        block = knobs.constant(
            "BLOCK", 32 if small else 128, (32, 64, 128), "items of a program, one a thread"
        )
        warps = knobs.constant("NUM_WARPS", 1 if small else 4, (1, 2, 4))
    doc = "Each thread has the matrices of one item in registers, all loops unrolled."
    kernel = Kernel(f"{name}_kernel", doc, graph, OWN, meta={"BLOCK": block})
    raised = write_items(graph, group, kernel, batch, tiles, anchors)
    device = f"{spelled(graph, group.reads(graph)[0])}.device"
    code.call += [allocation(value, device) for value in written if not value.lent]
    if raised:
        code.call.append(allocated(device))
        code.helpers.update(HELPERS)
        kernel.results[f"{FAILURES}_ptr"] = FAILURES
    grid = "(1,)" if batch == ONE else f"(triton.cdiv({batch}, {block}),)"
    code.launch(kernel, grid, {"num_warps": warps})
    code.raises = raised
    sizes = sorted(read_by(code.call) & size_names(graph))
    counts = within_reach(graph.value(n).elements for n in (*group.reads(graph), *group.writes(graph)))
    return code.part(
        knobs.constants(), "small matrices in the registers of a thread", sizes=sizes, counts=counts
    )


def _batch(graph: Graph, node: Node) -> Size:
    """How many items there are."""
    made = graph.value(node.outputs[0])
    return product(made.shape[: made.rank - ELEMENTS[node.op]])


def _check(graph: Graph, group: Group) -> None:
    values = [graph.value(name) for name in (*group.reads(graph), *group.writes(graph))]
    if not group.reads(graph):
        raise Unfit("nothing is read")
    if any(is_large(value) for value in values):
        raise Unfit("tensors beyond the reach of 32 bits")
    if any(value.padded for value in values):
        raise Unfit("rows with gaps")


def _tile(value: Value, batch: Size) -> Tile:
    """Leading dimensions of a result are the batch, the others are few."""
    if any(stride.value == 0 and size != ONE for stride, size in zip(value.stride, value.shape, strict=True)):
        raise Unfit("a result would be stored more than once")
    tile = Tile.of(value, batch)
    if tile is None:
        raise Unfit(f"a result of {value.shape} for {batch} items")
    if tile.count > MOST_ELEMENTS:
        raise Unfit("a result of many elements for each item")
    return tile
