"""The body of a kernel whose threads have one item of the batch each."""

from __future__ import annotations

import re
from collections.abc import Sequence

from egg.expert.emit.failures import CODES, FAILURES, FIRST, slot
from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import address
from egg.expert.emit.triton.scalar import stored
from egg.expert.graph import Graph, Node
from egg.expert.index import Expr, loop_index, unflat
from egg.expert.parts import Group, Unfit
from egg.expert.patterns.matrices.triton.items import ELEMENTS, MOST_OPERATIONS, Items
from egg.expert.patterns.matrices.triton.tiles import Tile
from egg.expert.sizes import ONE, Size

OPERATION = re.compile(r"tl\.\w+\(| [-+*/><&] | == ")
OWN = frozenset({"at", "at_mask", f"{FAILURES}_ptr", "BLOCK"})


def write_items(
    graph: Graph, group: Group, kernel: Kernel, batch: Size, tiles: Sequence[Tile], anchors: Sequence[Node]
) -> tuple[str, ...]:
    """The kernel's body; the functions that PyTorch's errors name where one of its factorisations fails."""
    line, body = kernel.body.line, kernel.body
    single = batch == ONE
    if not single:
        line("at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)")
        line(f"at_mask = at < {batch}")
    codes: list[tuple[str, str, Expr | None]] = []
    reader = Items(
        graph, group.nodes, body, {} if single else {"at": "at_mask"},
        batch=batch, failed=lambda name, code, item: codes.append((name, code, item)),
    )  # fmt: skip
    texts = [
        {place: reader.read(tile.value.name, tile.index(place)) for place in tile.places} for tile in tiles
    ]
    for node in anchors:  # what nothing reads may fail all the same
        if node.get("raises"):
            made = graph.value(node.outputs[0])
            reader.whole(node, unflat(loop_index("at", batch), made.shape[: made.rank - ELEMENTS[node.op]]))
    for tile, elements in zip(tiles, texts, strict=True):
        pointer = body.name(f"{tile.value.name}_ptr")
        kernel.results[pointer] = tile.value.name
        if not single and tile.count > 1 and tile.is_dense and tile.value.dtype == "float32":
            tile.store(pointer, body, elements)
            continue
        for place, text in elements.items():
            at = address(tile.value, tile.index(place))
            where = f"{pointer} + {at}" if at.terms else pointer
            line(f"tl.store({where}, {stored(text, tile.value.dtype)}{'' if single else ', mask=at_mask'})")
    for name, code, item in codes:
        # The largest number is that of the first item.
        number = code if item is None else f"({FIRST} - ({item}).to(tl.int64)) * {CODES} + {code}"
        failed = f"{code} > 0" if single else f"at_mask & ({code} > 0)"
        line(f"tl.atomic_max({FAILURES}_ptr + {slot(name)} + {code} * 0, {number}, mask={failed})")
    if sum(len(OPERATION.findall(text)) for text in body.lines) > MOST_OPERATIONS:
        raise Unfit(f"more than {MOST_OPERATIONS} operations for an item")
    kernel.add_pointers(reader.pointers)
    return tuple(dict.fromkeys(name for name, _, _ in codes))
