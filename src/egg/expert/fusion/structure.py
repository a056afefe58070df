"""From a graph to groups: what is fused with what, and which pattern writes it.

The rule of an expert, applied greedily: products and convolutions are where the time goes, so each is an
anchor and takes along whatever can ride on its result for free; what is left is memory traffic, so as much
of it as possible shares one pass. Whether something can ride along is not guessed here: the pattern is
asked to write the larger group, and what it cannot write it says (:class:`~egg.expert.parts.Unfit`).

Groups never wait for each other in a circle: a group takes a node only if nothing on a path between the
two lies outside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from egg.expert.fusion.chained_cat import chained
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.extremes import widened
from egg.expert.fusion.local import local, own_names, signature
from egg.expert.fusion.placing import makers, placed, rooms_first
from egg.expert.fusion.purpose import group_name
from egg.expert.fusion.recompute import moves_nothing, recomputed, repeats
from egg.expert.fusion.sharing import written
from egg.expert.fusion.unit_order import UnitOrder
from egg.expert.graph import Graph, Node, Origin
from egg.expert.parts import Group, Part, Target, Unfit
from egg.expert.pattern import FREE, Pattern, Patterns
from egg.expert.patterns import PATTERNS
from egg.expert.sizes import ONE

SPREADING = frozenset({"pointwise", "where", "triangle"})
SPREAD = 8
"""How many times more elements such nodes make than they read, for a product to compute them by the way."""
ACTING = frozenset({"update", "random"})
"""What is done even if its result is not read."""
LARGEST_STEP = 12
"""Nodes that are looked at for where a diamond closes."""
MOST_COUNTERS = 24
"""Numbers that one launch counts up, at most."""
FILE, IN_PLACE = "file", "in_place"
"""The setting that decides whether pieces of concatenations are stored in place."""
MOST_TRIES = 3
"""Partitions that are tried with fewer and fewer pieces in place."""
MOST_PIECES = 16
"""Tensors that a group joins, at most: no pattern writes more, so none is asked."""


def structured(
    graph: Graph, target: Target, patterns: Patterns = PATTERNS, choices: Choices | None = None
) -> Structure:
    """Partition ``graph`` and write every group."""
    choices = choices or Choices()
    plain = _Partition(widened(chained(_live(graph))), target, patterns, choices)
    plain.divide()
    plain = plain.with_copies() or plain
    return (plain.with_rooms() or plain).finished()


def _live(graph: Graph) -> Graph:
    """Without nodes that nothing depends on: no result, no buffer that is written, no random number drawn."""
    needed = set(graph.results)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.op in ACTING or not node.outputs or not needed.isdisjoint(node.outputs):
            kept.append(node)
            needed.update(name for name in node.inputs if name is not None)
    return graph if len(kept) == len(graph.nodes) else graph.rebuilt(tuple(reversed(kept)))


def _made(node: Node) -> str:
    """By what choices mean an operator: the first value that it makes."""
    return node.outputs[0] if node.outputs else ""


def _would_repeat(group: Sequence[Node], node: Node) -> bool:
    """Windows that overlap would choose for each of their elements which of the joined tensors it is in."""
    return node.op == "pool" and any(len(member.inputs) > 2 for member in group if member.op == "cat")


class _Partition:
    """The state of one partition: which group each node is in, so far."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        patterns: Patterns,
        choices: Choices,
        answers: dict[Any, bool] | None = None,
    ) -> None:
        self._graph = graph
        self._target = target
        self._patterns = patterns
        self._streamed = patterns.streaming.streams
        """What passes over memory: any of them may share a pass."""
        self._choices = choices
        self._order = {id(node): at for at, node in enumerate(graph.nodes)}
        self._units = UnitOrder(graph)
        self._home: dict[int, list[Node]] = {}
        """The group of each node that has one; groups are lists that grow."""
        self._pattern: dict[int, Pattern] = {}
        """By the identity of a group's list."""
        self._answers: dict[Any, bool] = {} if answers is None else answers
        """Whether a pattern writes groups like one."""

    def divide(self) -> None:
        """Give every node a group."""
        for node in self._graph.nodes:
            if self._patterns.around(node.op):
                self._grow_anchor(node)
        for node in self._graph.nodes:
            if id(node) not in self._home and node.op in self._streamed:
                self._join_loop(node)
        self._join_counters()
        for node in self._graph.nodes:
            if id(node) not in self._home:
                self._settle([node], self._patterns.fallback)

    def with_copies(self) -> _Partition | None:
        """A partition in which groups compute for themselves what is cheaper not to store; ``None`` where
        there is nothing like that, or where it makes more groups."""
        refused: set[str] = set()
        for _ in range(MOST_TRIES):
            graph, copies = recomputed(self._graph, self._home_of, refused)
            if not copies:
                return None
            other = _Partition(_live(graph), self._target, self._patterns, self._choices, self._answers)
            other.divide()
            odd = {whose for name, whose in copies.items() if other._is_read_elsewhere(name)}
            if not odd:
                return other if other._number_of_groups() <= self._number_of_groups() else None
            refused |= odd
        return None

    def _is_read_elsewhere(self, name: str) -> bool:
        """A copy that nothing makes any more (its reader got a copy of its own) is read nowhere."""
        if name not in self._graph.producers:
            return False
        inside = {id(member) for member in self._home_of(self._graph.producers[name])[1]}
        return any(id(reader) not in inside for reader in self._graph.consumers[name])

    def _number_of_groups(self) -> int:
        return len({id(group) for group in self._home.values()})

    def with_rooms(self) -> _Partition | None:
        """A partition with pieces of concatenations stored in place; ``None`` where there are none."""
        if not self._choices.settings.get(FILE, {}).get(IN_PLACE, True):
            return None
        streaming = self._patterns.streaming.name
        kept = {name for pattern, name in self._choices.left | self._choices.apart if pattern == streaming}
        refused: set[str] = set()
        for _ in range(MOST_TRIES):
            graph = placed(self._graph, self._home_of, self._target.gpu, refused, kept)
            if graph is self._graph:
                return None
            other = _Partition(graph, self._target, self._patterns, self._choices, self._answers)
            other.divide()
            stored = makers(graph).items()
            odd = {name for name, node in stored if not other._home_of(node)[0].stores_by_strides}
            if not odd:
                return other
            refused |= odd
        return None

    def _home_of(self, node: Node) -> tuple[Pattern, Sequence[Node]]:
        group = self._home[id(node)]
        return self._pattern[id(group)], group

    # -- anchors -----------------------------------------------------------------------------------

    def _grow_anchor(self, node: Node) -> None:
        """The anchor alone first; then what comes before it and what follows, as far as it can be written."""
        around = self._patterns.around(node.op)
        patterns = (p for p in around if (p.name, _made(node)) not in self._choices.left)
        pattern = next(p for p in patterns if p.fallback or self._writes([node], p))
        group = self._settle([node], pattern)
        if pattern.fallback or self._alone(pattern, node):
            return
        self._take_producers(group, node, pattern)
        self._take_followers(group, node, pattern)

    def _alone(self, pattern: Pattern, node: Node) -> bool:
        """Whether a group is to take nothing along."""
        return pattern.name in self._choices.alone or (pattern.name, _made(node)) in self._choices.apart

    def _take_producers(self, group: list[Node], node: Node, pattern: Pattern) -> None:
        """Producers that only this group reads, nearest first."""
        taken: list[Node] = []
        waiting = [name for name in node.inputs if name is not None]
        while waiting:
            producer = self._graph.producer(waiting.pop())
            if producer is None or producer.op not in self._streamed or id(producer) in self._home:
                continue
            held = [*group, *taken]
            if any(producer is member for member in held) or not self._only_read_by(producer, held):
                continue
            if self._writes([*held, producer], pattern):
                taken.append(producer)
                waiting += [name for name in producer.inputs if name is not None]
        passing = self._streamed - FREE
        passes = [n for n in self._graph.nodes if n.op in passing and id(n) not in self._home]
        self._add(group, *pattern.producers(self._graph, node, taken, passes))

    def _take_followers(self, group: list[Node], last: Node, pattern: Pattern) -> None:
        """Step by step, as long as all that a step reads besides is there before.

        Some followers wait for what comes behind them: they may fit only together with that.
        """
        waiting: list[Node] = []
        while len(last.outputs) == 1 and (step := self._next_step(last)):
            held = [*group, *waiting]
            side = [node for reader in step for node in self._side_producers(reader, [*held, *step])]
            if pattern.spreads_operands:
                side += [n for reader in step for n in self._spread_producers(reader, [*held, *step])]
            side = list({id(node): node for node in side}.values())
            grown = [*held, *side, *step]
            if self._units.circular(grown) or any(self._waits_for_gather(reader, grown) for reader in step):
                return
            if self._writes(grown, pattern):
                self._add(group, *waiting, *side, *step)
                waiting = []
            elif pattern.waits_for((*waiting, *step)):
                waiting += [*side, *step]
            else:
                return
            if len(waiting) > LARGEST_STEP:
                return
            last = step[-1]

    def _next_step(self, last: Node) -> list[Node]:
        """The fewest nodes behind ``last`` with one value going out: its only reader, or a diamond such as
        ``x * sigmoid(x)`` up to where it closes. Empty where there are none."""
        taken: list[Node] = []
        while True:
            inside = {id(node) for node in taken}
            made = [last.output, *(node.output for node in taken)]
            leaving = [
                name
                for name in made
                if name in self._graph.results
                or any(id(r) not in inside for r in self._graph.consumers[name])
            ]
            if taken and leaving == [taken[-1].output]:
                return taken
            if (
                not leaving
                or any(name in self._graph.results for name in leaving)
                or len(taken) >= LARGEST_STEP
            ):
                return []
            readers = (r for name in leaving for r in self._graph.consumers[name] if id(r) not in inside)
            reader = min(readers, key=lambda node: self._order[id(node)])
            if reader.op not in self._streamed or id(reader) in self._home or len(reader.outputs) != 1:
                return []
            if reader.op == "cat" and len(reader.inputs) > MOST_PIECES:
                return []
            taken = sorted([*taken, reader], key=lambda node: self._order[id(node)])

    def _side_producers(self, reader: Node, group: list[Node]) -> list[Node]:
        """Free producers of a reader's other operands (views of parameters, constants), which come along."""
        found: list[Node] = []
        waiting = [name for name in reader.inputs if name is not None]
        while waiting:
            producer = self._graph.producer(waiting.pop())
            if producer is None or producer.op not in FREE or id(producer) in self._home or producer in group:
                continue
            found.append(producer)
            waiting += [name for name in producer.inputs if name is not None]
        return list(reversed(found))

    def _waits_for_gather(self, reader: Node, group: list[Node]) -> bool:
        """Whether an operand of a reader is gathered for it alone. It would be stored by a pass of its own
        and read again; a pass behind the anchor gathers in registers and goes on with what follows."""
        taken, waiting = list[Node](), list(reader.inputs)
        while waiting and len(taken) < LARGEST_STEP:
            name = waiting.pop()
            node = self._graph.producer(name) if name is not None else None
            inside = [*group, *taken]
            if node is None or node in inside or id(node) in self._home or node.op not in self._streamed:
                continue
            if self._only_read_by(node, inside):
                if node.op == "gather":
                    return True
                taken.append(node)
                waiting += node.inputs
        return False

    def _spread_producers(self, reader: Node, group: list[Node]) -> list[Node]:
        """What computes another operand of a reader, and nothing else, from far fewer elements (differences
        of all pairs, a mask from places): as cheap to compute where it is read, and it need not be stored.
        """
        found: list[Node] = []
        for operand in reader.inputs:
            taken, waiting, read = list[Node](), [operand], 0
            while waiting:
                name = waiting.pop()
                node = self._graph.producer(name) if name is not None else None
                inside = [*group, *found, *taken]
                if node is not None and node in inside:
                    continue
                if (
                    node is not None
                    and id(node) not in self._home
                    and (node.op in FREE or node.op in SPREADING)
                    and self._only_read_by(node, inside)
                ):
                    taken.append(node)
                    waiting += node.inputs
                elif name is not None:
                    read += self._graph.value(name).elements.value
            made = self._graph.value(operand).elements.value if operand is not None else 0
            if any(node.op in SPREADING for node in taken) and read * SPREAD <= made:
                found += taken
        return found

    # -- loops -------------------------------------------------------------------------------------

    def _join_loop(self, node: Node) -> None:
        """With the groups of its producers where one pass can do it all; else with one, the latest first.

        A view of something in memory waits for its reader: there it is an offset and strides.
        """
        streaming, fallback = self._patterns.streaming, self._patterns.fallback
        if (streaming.name, _made(node)) in self._choices.left:
            self._settle([node], fallback)
            return
        apart = self._alone(streaming, node)
        producing = [] if apart else self._producing_groups(node)
        together = [producing] if len(producing) > 1 else []
        for groups in (*together, *([group] for group in producing), []):
            members = [member for group in groups for member in group]
            views = [] if apart else self._views_before(node, members)
            for taken in (views, []) if views else ([],):
                grown = [*members, *taken, node]
                if repeats(self._graph, grown) or self._units.circular(grown):
                    continue
                if self._writes(grown, streaming):
                    self._add(groups[0] if groups else self._settle([node], streaming), *grown)
                    return
        if not moves_nothing(self._graph, node) or node.output in self._graph.results:
            self._settle([node], fallback)

    def _views_before(self, reader: Node, group: list[Node]) -> list[Node]:
        """Views that have no home yet, by which a reader and the group that it would join read memory."""
        found: list[Node] = []
        waiting = list(reader.inputs)
        while waiting:
            name = waiting.pop()
            view = self._graph.producer(name) if name is not None else None
            if view is None or id(view) in self._home or view.op != "view":
                continue
            if self._only_read_by(view, [*group, *found, reader]):
                found.append(view)
                waiting += view.inputs
        return found

    def _join_counters(self) -> None:
        """Single numbers that follow from the module's own (batches that were counted) share a launch."""
        found = {id(group): group for group in self._home.values() if self._is_counter(group)}
        counters = list(found.values())
        for start in range(0, len(counters), MOST_COUNTERS):
            first, *others = counters[start : start + MOST_COUNTERS]
            more = [node for group in others for node in group]
            together = [*first, *more]
            if (
                more
                and not self._units.circular(together)
                and self._writes(together, self._patterns.streaming)
            ):
                self._add(first, *more)

    def _is_counter(self, group: list[Node]) -> bool:
        made = {name for node in group for name in node.outputs}
        read = {name for node in group for name in node.inputs if name is not None} - made
        return (
            bool(self._pattern[id(group)].streams)
            and any(node.op == "update" for node in group)
            and all(self._graph.value(name).origin is Origin.PARAMETER for name in read)
            and all(self._graph.value(name).elements == ONE for name in made | read)
        )

    def _producing_groups(self, node: Node) -> list[list[Node]]:
        """Also of constants behind views that wait for their reader."""
        seen: list[list[Node]] = []
        producers = [p for name in node.inputs if name is not None and (p := self._graph.producer(name))]
        for view in (p for p in producers if p.op == "view" and id(p) not in self._home):
            source = self._graph.producer(str(view.inputs[0]))
            if source is not None and all(n.op in FREE for n in self._home.get(id(source), [source])):
                producers.append(source)
        for producer in sorted(producers, key=lambda p: -self._order[id(p)]):
            group = self._home.get(id(producer))
            if (
                group is not None
                and self._pattern[id(group)].streams
                and not any(g is group for g in seen)
                and not _would_repeat(group, node)
            ):
                seen.append(group)
        return seen

    # -- questions ---------------------------------------------------------------------------------

    def _writes(self, nodes: list[Node], pattern: Pattern) -> bool:
        """Whether a pattern can write these nodes as one group; its answer for another like it counts."""
        if pattern.name in self._choices.without:
            return False
        group = self._group(nodes, pattern)
        settings = self._choices.settings.get(group.name, {})
        key = pattern.name, tuple(settings.items()), signature(self._graph, group.nodes, exact=False)
        if key not in self._answers:
            own = local(self._graph, group, own_names(self._graph, group.nodes))
            try:
                self._written(own.graph, own.group)
            except Unfit:
                self._answers[key] = False
            else:
                self._answers[key] = True
        return self._answers[key]

    def _written(self, graph: Graph, group: Group) -> Part:
        grade = self._choices.grades.get(group.pattern)
        graded = {} if grade is None else {"grade": grade}
        settings = {**graded, **self._target.settings, **self._choices.settings.get(group.name, {})}
        return self._patterns[group.pattern].write(graph, group, Target(self._target.gpu, settings))

    def _only_read_by(self, node: Node, group: list[Node]) -> bool:
        inside = {id(member) for member in group}
        return all(
            name not in self._graph.results and all(id(r) in inside for r in self._graph.consumers[name])
            for name in node.outputs
        )

    # -- bookkeeping -------------------------------------------------------------------------------

    def _settle(self, nodes: list[Node], pattern: Pattern) -> list[Node]:
        group = list(nodes)
        self._pattern[id(group)] = pattern
        for node in group:
            self._home[id(node)] = group
        return group

    def _add(self, group: list[Node], *nodes: Node) -> None:
        inside = {id(member) for member in group}
        group += (node for node in nodes if id(node) not in inside)
        group.sort(key=lambda member: self._order[id(member)])
        self._units.join(group)
        for node in nodes:
            self._home[id(node)] = group

    def _group(self, nodes: Iterable[Node], pattern: Pattern) -> Group:
        ordered = tuple(sorted(nodes, key=lambda node: self._order[id(node)]))
        return Group(group_name(ordered), ordered, pattern.name)

    def finished(self) -> Structure:
        """Groups by first need, named and written."""
        members = [(unit, self._home_of(unit[0])[0].name) for unit in self._units.ordered()]
        groups, parts = written(self._graph, members, self._written, self._patterns)
        order = rooms_first(self._graph, [unit for unit, _ in members])
        ordered = tuple(groups[at] for at in order), tuple(parts[at] for at in order)
        return Structure(self._graph, *ordered, self._patterns)
