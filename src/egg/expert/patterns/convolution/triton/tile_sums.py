"""What a tile of a convolution leaves of itself: its share of a sum over space, or of a norm's statistics."""

from __future__ import annotations

from egg.expert.emit.reader import Body
from egg.expert.graph import Node, Value
from egg.expert.patterns.convolution.sums import TILE_SUMS
from egg.expert.sizes import ONE, Size


def tile_left(body: Body, node: Node, x: str, inside: str, counted: str) -> tuple[str, ...]:
    """What a tile leaves, one column per channel: a number, or two."""
    total = f"tl.sum(tl.where({inside}, {x}, 0.0), axis=1, keep_dims=True)"
    if node.op == TILE_SUMS:
        over: Size = node["over"]
        return (body.let("tile_sum", total if over == ONE else f"{total} / ({over})"),)
    count = body.let("count", f"tl.minimum({counted} - pid * BLOCK_P, BLOCK_P).to(tl.float32)")
    mean = body.let("tile_mean", f"{total} / {count}")
    apart = body.let("apart", f"tl.where({inside}, {x} - {mean}, 0.0)")
    squares = body.let("tile_squares", f"tl.sum({apart} * {apart}, axis=1, keep_dims=True)")
    return mean, squares


def tile_stores(value: Value, pointer: str, numbers: tuple[str, ...]) -> list[str]:
    """Lines that store it: by images, tiles, numbers and channels."""
    width = f"{len(numbers)} * {value.shape[-1]}" if len(numbers) > 1 else value.shape[-1].code()
    starts = ["", f" + {value.shape[-1]}"]
    return [
        f"tl.store({pointer} + (image * tiles + pid) * ({width}){start} + c, {number}, mask=kept)"
        for start, number in zip(starts, numbers, strict=False)
    ]
