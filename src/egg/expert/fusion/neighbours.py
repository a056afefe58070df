"""What lies around a group while a graph is partitioned: nodes and groups that it may take along.

Nothing is decided here. Each function finds candidates by who reads what; whether a pattern writes the larger
group is asked afterwards (:mod:`egg.expert.fusion.structure`).
"""

from __future__ import annotations

from collections.abc import Sequence

from egg.expert.emit.reader import address, through_view
from egg.expert.fusion.groups import Groups
from egg.expert.graph import Graph, Node
from egg.expert.index import Index, loop_index
from egg.expert.pattern import FREE

SPREADING = frozenset({"pointwise", "where", "triangle"})
SPREAD = 8
"""How many times more elements such nodes make than they read, for a product to compute them by the way."""
TABLE = 2
"""How many times more elements are gathered than the table has, at least, for a product to gather them."""
LARGEST_STEP = 12
"""Nodes that are looked at for where a diamond closes."""
MOST_PIECES = 16
"""Tensors that a group joins, at most: no pattern writes more, so none is asked."""


def next_step(groups: Groups, last: Node) -> list[Node]:
    """The fewest nodes behind ``last`` with one value going out: its only reader, or a diamond such as
    ``x * sigmoid(x)`` up to where it closes. Empty where there are none."""
    taken: list[Node] = []
    while True:
        inside = {id(node) for node in taken}
        made = [last.output, *(node.output for node in taken)]
        leaving = [
            name
            for name in made
            if name in groups.graph.results or any(id(r) not in inside for r in groups.graph.consumers[name])
        ]
        if taken and leaving == [taken[-1].output]:
            return taken
        if not leaving or any(name in groups.graph.results for name in leaving) or len(taken) >= LARGEST_STEP:
            return []
        readers = (r for name in leaving for r in groups.graph.consumers[name] if id(r) not in inside)
        reader = min(readers, key=lambda node: groups.order[id(node)])
        if not groups.is_free_pass(reader) or len(reader.outputs) != 1:
            return []
        if reader.op == "cat" and len(reader.inputs) > MOST_PIECES:
            return []
        taken = sorted([*taken, reader], key=lambda node: groups.order[id(node)])


def side_producers(groups: Groups, reader: Node, group: list[Node]) -> list[Node]:
    """Free producers of a reader's other operands (views of parameters, constants), which come along."""
    found: list[Node] = []
    waiting = [name for name in reader.inputs if name is not None]
    while waiting:
        producer = groups.graph.producer(waiting.pop())
        if producer is None or producer.op not in FREE or id(producer) in groups.home or producer in group:
            continue
        found.append(producer)
        waiting += [name for name in producer.inputs if name is not None]
    return list(reversed(found))


def waits_for_gather(groups: Groups, reader: Node, group: list[Node]) -> bool:
    """Whether an operand of a reader is gathered for it alone. It would be stored by a pass of its own
    and read again; a pass behind the anchor gathers in registers and goes on with what follows."""
    taken, waiting = list[Node](), list(reader.inputs)
    while waiting and len(taken) < LARGEST_STEP:
        name = waiting.pop()
        node = groups.graph.producer(name) if name is not None else None
        inside = [*group, *taken]
        if node is None or node in inside or not groups.is_free_pass(node):
            continue
        if groups.only_read_by(node, inside):
            if node.op == "gather":
                return True
            taken.append(node)
            waiting += node.inputs
    return False


def gathered_producers(groups: Groups, reader: Node, group: list[Node]) -> list[Node]:
    """Gathers that make an operand of a reader, and nothing else, of tables that are far smaller: tables
    stay in the L2 cache, and what is gathered of them need not be stored.

    None where only scatters read the result: their pass gathers, too, and computes what the reader does.
    """
    found: list[Node] = []
    readers = groups.graph.consumers.get(reader.outputs[0], ())
    if readers and all(one.op == "scatter" for one in readers):
        return found
    for name in reader.inputs:
        node = groups.graph.producer(name) if name is not None else None
        if node is None or node.op != "gather" or node in group or id(node) in groups.home:
            continue
        table, rows = groups.graph.value(str(node.inputs[0])), groups.graph.result(node)
        small = TABLE * table.elements.value <= rows.elements.value
        if small and groups.only_read_by(node, [*group, *found]):
            found.append(node)
    return found


def spread_producers(groups: Groups, reader: Node, group: list[Node]) -> list[Node]:
    """What computes another operand of a reader, and nothing else, from far fewer elements (differences
    of all pairs, a mask from places): as cheap to compute where it is read, and it need not be stored.
    """
    found: list[Node] = []
    for operand in reader.inputs:
        taken, waiting, read = list[Node](), [operand], 0
        while waiting:
            name = waiting.pop()
            node = groups.graph.producer(name) if name is not None else None
            inside = [*group, *found, *taken]
            if node is not None and node in inside:
                continue
            if (
                node is not None
                and id(node) not in groups.home
                and (node.op in FREE or node.op in SPREADING)
                and groups.only_read_by(node, inside)
            ):
                taken.append(node)
                waiting += node.inputs
            elif name is not None:
                read += groups.graph.value(name).elements.value
        made = groups.graph.value(operand).elements.value if operand is not None else 0
        if any(node.op in SPREADING for node in taken) and read * SPREAD <= made:
            found += taken
    return found


def views_before(groups: Groups, reader: Node, group: list[Node]) -> list[Node]:
    """Views that have no home yet, by which a reader and the group that it would join read memory."""
    found: list[Node] = []
    waiting = list(reader.inputs)
    while waiting:
        name = waiting.pop()
        view = groups.graph.producer(name) if name is not None else None
        if view is None or id(view) in groups.home or view.op != "view":
            continue
        if groups.only_read_by(view, [*group, *found, reader]):
            found.append(view)
            waiting += view.inputs
    return found


def seen_in_memory(groups: Groups, node: Node) -> bool:
    """Whether a node is a view of a tensor that a group stores in any case, in the same places of memory, and
    only products, convolutions and the like read it: they read that tensor, with other strides."""
    graph = groups.graph
    if node.op != "view" or not _for_anchors(groups, node):
        return False
    views = [node]
    while (before := graph.producer(str(views[0].inputs[0]))) is not None and before.op == "view":
        views.insert(0, before)
    root = str(views[0].inputs[0])
    others = [reader for reader in graph.consumers[root] if reader is not views[0]]
    stored = root in graph.results or any(_is_anchored(groups, reader) for reader in others)
    made = before is not None and id(before) in groups.home
    return made and stored and _lies_as(graph, views)


def _lies_as(graph: Graph, views: Sequence[Node]) -> bool:
    """Whether the last of some views, each of the one before, has its elements where the first operand has
    them."""
    if any(view["how"] not in ("reshape", "permute") for view in views):
        return False
    made = graph.result(views[-1])
    index: Index = tuple(loop_index(f"d{dim}", size) for dim, size in enumerate(made.shape))
    place = address(made, index)
    for view in reversed(views):
        index = through_view(graph, view, index)
    return (address(graph.value(str(views[0].inputs[0])), index) - place).is_constant


def _for_anchors(groups: Groups, view: Node) -> bool:
    """Whether only anchors read a view, or views of it."""
    readers = groups.graph.consumers[view.output]
    return (
        bool(readers)
        and view.output not in groups.graph.results
        and all(
            _is_anchored(groups, reader) or (reader.op == "view" and _for_anchors(groups, reader))
            for reader in readers
        )
    )


def _is_anchored(groups: Groups, node: Node) -> bool:
    """Whether a node is in a group around something else than passes over memory."""
    return id(node) in groups.home and not groups.pattern[id(groups.home[id(node)])].streams


def producing_groups(groups: Groups, node: Node) -> list[list[Node]]:
    """Also of constants behind views that wait for their reader."""
    seen: list[list[Node]] = []
    producers = [p for name in node.inputs if name is not None and (p := groups.graph.producer(name))]
    for view in (p for p in producers if p.op == "view" and id(p) not in groups.home):
        source = groups.graph.producer(str(view.inputs[0]))
        if source is not None and all(n.op in FREE for n in groups.home.get(id(source), [source])):
            producers.append(source)
    for producer in sorted(producers, key=lambda p: -groups.order[id(p)]):
        group = groups.home.get(id(producer))
        if (
            group is not None
            and groups.pattern[id(group)].streams
            and not any(g is group for g in seen)
            and not _would_repeat(group, node)
        ):
            seen.append(group)
    return seen


def _would_repeat(group: Sequence[Node], node: Node) -> bool:
    """Windows that overlap would choose for each of their elements which of the joined tensors it is in."""
    overlapping = node.op in ("pool", "resample") or (node.op == "view" and node["how"] == "windows")
    return overlapping and any(len(member.inputs) > 2 for member in group if member.op == "cat")
