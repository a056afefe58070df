"""Norms whose rows lie badly for storing: statistics by rows, normalising by a pass in another order.

The rows of a group norm are stretches of channels at all positions, those of a batch norm one channel of all
images. A kernel that walks along them stores well where memory has them in this order. Where the result has
another order than the operand (its channels last, for a library's convolution), every element goes into
another sector of memory. So the states of rows are joined by a kernel of their own, and applied by pointwise
work with whatever follows: in tiles with contiguous runs of operand and result, each element with the state
of the row that it is in. The operand is read twice either way. What there is one of for each row, like the
running statistics of a batch norm, is stored where the states are joined.
"""

from __future__ import annotations

from dataclasses import replace

from egg.expert.graph import Graph, Node
from egg.expert.index import loop_index
from egg.expert.parts import Group, Target
from egg.expert.patterns.loops.domain import Anchored
from egg.expert.patterns.loops.pointwise import pointwise_domain
from egg.expert.patterns.loops.tiles import plan_of
from egg.expert.patterns.loops.triton.reader import LoopBody, LoopReader
from egg.expert.patterns.loops.work import Plan, Work
from egg.expert.sizes import ONE

LEAST = 2**18
"""Elements from which on another launch costs less than stores all over memory do."""


def other_order(work: Work, plan: Plan, target: Target) -> Work | None:
    """The group as pointwise work behind its statistics, where that stores better; ``None`` elsewhere."""
    graph, full = work.graph, [name for name in work.writes if work.is_full(name)]
    anchors = [work.nodes[name] for name in work.anchors.splits]
    if plan.rows or "mode" in target.settings or not anchors or work.scatters:
        return None
    if work.depth != 1 or any(node.op != "norm" for node in anchors) or not full:
        return None
    main = graph.value(full[0])
    alike = all(name in work.nodes and graph.value(name).shape == main.shape for name in full)
    if not alike or main.elements.value < LEAST or main.rank < 2:
        return None
    graph, group = _only(graph, work.group, full)
    plain, passing = _pointwise(graph, group)
    if not _turns(plain, passing, full[0]):
        return None
    return Work(graph, group, pointwise_domain(plain, passing), Anchored())


def _only(graph: Graph, group: Group, full: list[str]) -> tuple[Graph, Group]:
    """The program up to these results of a group: without what there is one of for each row, which the kernel
    stores that joins the states."""
    makers = {name: node for node in group.nodes for name in node.outputs}
    waiting, needed = list(full), set[int]()
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and id(node) not in needed:
            needed.add(id(node))
            waiting += [name for name in node.inputs if name is not None]
    inside, behind = {id(node) for node in group.nodes}, set(makers)
    before, kept = list[Node](), list[Node]()
    for node in graph.nodes:
        if id(node) in needed:
            kept.append(replace(node, outputs=node.outputs[:1]) if node.op == "norm" else node)
            before.append(kept[-1])
        elif id(node) not in inside and not behind & set(node.inputs):
            before.append(node)
        else:
            behind |= set(node.outputs)
    part = replace(graph, nodes=tuple(before), results=tuple(full))
    return part, replace(group, nodes=tuple(kept))


def applying_plans(work: Work, over: Work, target: Target) -> tuple[Plan, Plan]:
    """Rows shared by programs, and the tiles that their states are applied in."""
    shared = plan_of(work, replace(target, settings={**target.settings, "mode": "split"}))
    tiles = plan_of(over, Target(target.gpu))
    return replace(shared, apart=True, tile=(tiles.block_x, tiles.block_r)), tiles


def _pointwise(graph: Graph, group: Group) -> tuple[Graph, Group]:
    """With norms that pass on their operands: how memory is met is the same."""
    attributes = {"fn": "cast", "scalars": ()}
    changed = {
        id(node): Node("pointwise", node.inputs[:1], node.outputs, attributes, node.label)
        for node in group.nodes
        if node.op == "norm"
    }
    nodes = tuple(changed.get(id(node), node) for node in graph.nodes)
    return graph.rebuilt(nodes), replace(group, nodes=tuple(changed.get(id(n), n) for n in group.nodes))


def _turns(graph: Graph, group: Group, name: str) -> bool:
    """Whether what a large operand has contiguous is another dimension than in the result."""
    main = graph.value(name)
    inner = {dim for dim in range(main.rank) if main.stride[dim] == ONE and main.shape[dim] != ONE}
    reader = LoopReader(graph, group.nodes, LoopBody(), {})
    names = [f"d{dim}" for dim in range(main.rank)]
    reader.read(name, tuple(loop_index(n, s) for n, s in zip(names, main.shape, strict=True)))
    large = [at for value, at in reader.loads if value.elements.value * 4 >= main.elements.value]
    others = [names[dim] for dim in range(main.rank) if dim not in inner]
    return bool(inner) and any(at.stride_of(name) == ONE for at in large for name in others)
