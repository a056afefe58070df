"""A choice that nearly always falls the same way, as a branch of the whole program."""

from __future__ import annotations

from egg.expert.emit.reader import fitted
from egg.expert.graph import Node
from egg.expert.index import Index
from egg.expert.patterns.loops.triton.reader import LoopReader


def chosen_rarely(reader: LoopReader, node: Node, index: Index, guards: tuple[str, ...]) -> str:
    """What is chosen, where the second operand is computed only if the tile holds a place for it.

    The old elements are on their way while the program looks, and both ways end in one store, so no element
    is written twice.
    """
    graph, body = reader.graph, reader.body
    condition, new, old = (graph.value(str(name)) for name in node.inputs)
    kept = reader.read(old.name, fitted(old, index), guards)
    at = fitted(condition, index)
    chosen = reader.read(condition.name, at, guards)
    made = body.let(node.label or "chosen", kept)
    any_chosen = f"tl.max(({chosen}).to(tl.int32)) > 0" if reader.varies(at) else chosen
    with reader.only_if(any_chosen):
        text = reader.read(new.name, fitted(new, index), guards)
        body.line(f"{made} = {reader.language.where(chosen, text, made)}")
    return made


def loaded_where_chosen(
    reader: LoopReader, node: Node, place: int, index: Index, guards: tuple[str, ...]
) -> str:
    """What is chosen between a number and the operand at ``place``, which is loaded only where it is chosen,
    as long as whole runs are or are not."""
    graph = reader.graph
    condition, *sides = (graph.value(str(name)) for name in node.inputs)
    at, value = fitted(condition, index), sides[place - 1]
    chosen = reader.read(condition.name, at, guards)
    more = reader.guard_along(chosen, at, value, index)
    if more and place == 2:
        more = f"~{more}"
    texts = [
        reader.read(side.name, fitted(side, index), (*guards, more) if more and side is value else guards)
        for side in sides
    ]
    return reader.body.let(node.label or "chosen", reader.language.where(chosen, *texts))
