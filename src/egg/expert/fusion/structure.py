"""From a graph to groups: what is fused with what, and which pattern writes it.

The rule of an expert, applied greedily: products and convolutions are where the time goes, so each is an
anchor and takes along whatever can ride on its result for free; what is left is memory traffic, so as much
of it as possible shares one pass. Whether something can ride along is not guessed here: the pattern is
asked to write the larger group, and what it cannot write it says (:class:`~egg.expert.parts.Unfit`).

Groups never wait for each other in a circle: a group takes a node only if nothing on a path between the
two lies outside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from egg.expert.algebra.places import own_indices
from egg.expert.fusion.chained_cat import chained
from egg.expert.fusion.choices import Choices, Structure
from egg.expert.fusion.extremes import widened
from egg.expert.fusion.groups import Groups
from egg.expert.fusion.long_selections import cut_selections
from egg.expert.fusion.neighbours import (
    LARGEST_STEP,
    MOST_PIECES,
    gathered_producers,
    next_step,
    producing_groups,
    seen_in_memory,
    side_producers,
    spread_producers,
    views_before,
    waits_for_gather,
)
from egg.expert.fusion.placing import makers, placed, rooms_first
from egg.expert.fusion.recompute import moves_nothing, recomputed, repeats
from egg.expert.fusion.sharing import written
from egg.expert.fusion.siblings import few_tensors, siblings
from egg.expert.fusion.whole import grow_whole, own_views
from egg.expert.graph import Graph, Node, Origin
from egg.expert.moves import FILE
from egg.expert.parts import Group, Part, Target
from egg.expert.pattern import FREE, Pattern, Patterns
from egg.expert.patterns import PATTERNS
from egg.expert.sizes import ONE

ACTING = frozenset({"update", "random"})
"""What is done even if its result is not read."""
MOST_COUNTERS = 24
"""Numbers that one launch counts up, at most."""
IN_PLACE = "in_place"
"""The setting that decides whether pieces of concatenations are stored in place."""
MOST_TRIES = 3
"""Partitions that are tried with fewer and fewer pieces in place."""


def structured(
    graph: Graph,
    target: Target,
    patterns: Patterns = PATTERNS,
    choices: Choices | None = None,
    answers: dict[Any, int | None] | None = None,
) -> Structure:
    """Partition ``graph`` and write every group.

    ``answers``: what these patterns answered about groups of other partitions, to go on with.
    """
    choices = choices or Choices()
    read = own_views(cut_selections(chained(_live(own_indices(graph)))), patterns)
    plain = _Partition(Groups(widened(read), target, patterns, choices, answers))
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


def _has_many_pieces(node: Node) -> bool:
    """Whether a concatenation is of so many tensors that an operand's elements are not looked for in all of
    them: each costs a comparison and a load for every element, and writing a kernel time for each."""
    return node.op == "cat" and len(node.inputs) > MOST_PIECES


def _made(node: Node) -> str:
    """By what choices mean an operator: the first value that it makes."""
    return node.outputs[0] if node.outputs else ""


class _Partition:
    """Gives the nodes of a graph their groups: around anchors first, then in passes over memory."""

    def __init__(self, groups: Groups, copies: frozenset[str] = frozenset()) -> None:
        """``copies``: values that a reader is to compute for itself from what lies in memory."""
        self._groups, self._copies = groups, copies
        self._graph, self._patterns, self._choices = groups.graph, groups.patterns, groups.choices

    def divide(self) -> None:
        """Give every node a group."""
        anchors = [node for node in self._graph.nodes if self._patterns.around(node.op)]
        for node in sorted(anchors, key=lambda node: not self._patterns.around(node.op)[0].takes_neighbours):
            self._grow_anchor(node)
        for node in self._graph.nodes:
            if self._groups.is_free_pass(node):
                self._join_loop(node)
        self._join_siblings()
        self._join_counters()
        for node in self._graph.nodes:
            if id(node) not in self._groups.home:
                self._groups.settle([node], self._patterns.fallback)

    def with_copies(self) -> _Partition | None:
        """A partition in which groups compute for themselves what is cheaper not to store; ``None`` where
        there is nothing like that, or where it makes more groups."""
        refused: set[str] = set()
        for _ in range(MOST_TRIES):
            graph, copies = recomputed(self._graph, self._groups.home_of, refused)
            if not copies:
                return None
            other = _Partition(self._groups.of(_live(graph)), frozenset(copies))
            other.divide()
            odd = {whose for name, whose in copies.items() if other._groups.is_read_elsewhere(name)}
            if not odd:
                return other if other._groups.count() <= self._groups.count() else None
            refused |= odd
        return None

    def with_rooms(self) -> _Partition | None:
        """A partition with pieces of concatenations stored in place; ``None`` where there are none."""
        if not self._choices.settings.get(FILE, {}).get(IN_PLACE, True):
            return None
        streaming = self._patterns.streaming.name
        kept = {name for pattern, name in self._choices.left | self._choices.apart if pattern == streaming}
        refused: set[str] = set()
        for _ in range(MOST_TRIES):
            graph = placed(self._graph, self._groups.home_of, self._groups.target.gpu, refused, kept)
            if graph is self._graph:
                return None
            other = _Partition(self._groups.of(graph), self._copies)
            other.divide()
            stored = makers(graph).items()
            odd = {name for name, node in stored if not other._groups.home_of(node)[0].stores_by_strides}
            if not odd:
                return other
            refused |= odd
        return None

    # -- anchors -----------------------------------------------------------------------------------

    def _grow_anchor(self, node: Node) -> None:
        """The anchor alone first; then what comes before it and what follows, as far as it can be written.

        What no pattern around it writes waits for the passes over memory, where one leaves it to them.
        """
        if id(node) in self._groups.home:
            return
        around = self._patterns.around(node.op)
        patterns = (p for p in around if (p.name, _made(node)) not in self._choices.left)
        pattern = next(p for p in patterns if p.fallback or self._groups.writes([node], p))
        if pattern.fallback and any(p.leaves_passes for p in around):
            return
        group = self._groups.settle([node], pattern)
        if pattern.fallback or self._alone(pattern, node):
            return
        if pattern.takes_neighbours:
            grow_whole(self._groups, group, pattern)
            return
        self._take_producers(group, node, pattern)
        self._take_followers(group, node, pattern)

    def _alone(self, pattern: Pattern, node: Node) -> bool:
        """Whether a group is to take nothing along."""
        return pattern.name in self._choices.alone or (pattern.name, _made(node)) in self._choices.apart

    def _take_producers(self, group: list[Node], node: Node, pattern: Pattern) -> None:
        """Producers that only this group reads, nearest first."""
        taken = self._producers(group, [node], pattern)
        passing = self._groups.streamed - FREE
        passes = [n for n in self._graph.nodes if n.op in passing and id(n) not in self._groups.home]
        self._groups.add(group, *pattern.producers(self._graph, node, taken, passes))

    def _producers(self, group: list[Node], readers: list[Node], pattern: Pattern) -> list[Node]:
        """What makes the operands of some members, and what makes those, as far as only ``group`` reads it
        and the pattern writes it. What it cannot write alone it may with views and constants of it alone."""
        taken: list[Node] = []
        waiting = [name for node in readers for name in node.inputs if name is not None]
        while waiting:
            producer = self._graph.producer(waiting.pop())
            if producer is None or not self._groups.is_free_pass(producer) or _has_many_pieces(producer):
                continue
            held = [*group, *taken]
            if any(producer is member for member in held) or not self._groups.only_read_by(producer, held):
                continue
            free = self._own_free(producer, held) if pattern.takes_operands else []
            for more in ([producer], [producer, *free]) if free else ([producer],):
                if self._groups.writes([*held, *more], pattern):
                    taken += more
                    waiting += [name for one in more for name in one.inputs if name is not None]
                    break
        return taken

    def _own_free(self, node: Node, group: list[Node]) -> list[Node]:
        """Views and constants that a node reads, and nothing outside of a group with it."""
        free = side_producers(self._groups, node, group)
        return [one for one in free if self._groups.only_read_by(one, [*group, node, *free])]

    def _take_followers(self, group: list[Node], last: Node, pattern: Pattern) -> None:
        """Step by step, as long as all that a step reads besides is there before.

        Some followers wait for what comes behind them: they may fit only together with that.
        """
        waiting: list[Node] = []
        while len(last.outputs) == 1 and (step := next_step(self._groups, last)):
            held = [*group, *waiting]
            side = [node for reader in step for node in side_producers(self._groups, reader, [*held, *step])]
            if pattern.spreads_operands:
                side += [n for reader in step for n in spread_producers(self._groups, reader, [*held, *step])]
            if pattern.takes_rows:
                side += [
                    n for reader in step for n in gathered_producers(self._groups, reader, [*held, *step])
                ]
            side = list({id(node): node for node in side}.values())
            grown = [*held, *side, *step]
            if self._groups.units.circular(grown):
                return
            gathers = any(waits_for_gather(self._groups, reader, grown) for reader in step)
            if gathers and not pattern.takes_operands:
                return
            if self._groups.writes(grown, pattern):
                self._groups.add(group, *waiting, *side, *step)
                waiting = []
                if pattern.takes_operands:
                    self._groups.add(group, *self._producers(group, [*side, *step], pattern))
            elif pattern.waits_for((*waiting, *step)):
                waiting += [*side, *step]
            else:
                return
            if len(waiting) > LARGEST_STEP:
                return
            last = step[-1]

    # -- loops -------------------------------------------------------------------------------------

    def _join_loop(self, node: Node) -> None:
        """With the groups of its producers where one pass can do it all; else with one, the latest first.

        A view of something in memory waits for its reader: there it is an offset and strides, and a library
        reads a transposed operand as well as any. The first step of a copy is made for its reader, so it does
        not go back to what makes its operand.
        """
        streaming, fallback = self._patterns.streaming, self._patterns.fallback
        if (streaming.name, _made(node)) in self._choices.left:
            self._groups.settle([node], fallback)
            return
        if seen_in_memory(self._groups, node):
            return
        apart = self._alone(streaming, node) or self._begins_copy(node)
        producing = [] if apart else producing_groups(self._groups, node)
        together = [producing] if len(producing) > 1 else []
        for groups in (*together, *([group] for group in producing), []):
            members = [member for group in groups for member in group]
            views = [] if apart else views_before(self._groups, node, members)
            for taken in (views, []) if views else ([],):
                grown = [*members, *taken, node]
                if repeats(self._graph, grown) or self._groups.units.circular(grown):
                    continue
                if self._groups.writes(grown, streaming):
                    self._groups.add(groups[0] if groups else self._groups.settle([node], streaming), *grown)
                    return
        if not moves_nothing(self._graph, node) or node.output in self._graph.results:
            self._groups.settle([node], fallback)

    def _begins_copy(self, node: Node) -> bool:
        copied = not self._copies.isdisjoint(node.outputs) and node.op != "view"
        return copied and self._copies.isdisjoint(str(name) for name in node.inputs)

    def _join_siblings(self) -> None:
        """Passes that read the same tensors share one, where that takes a single launch."""
        streaming = self._patterns.streaming
        for one, other in siblings(self._groups):
            if self._groups.home[id(one[0])] is not one or self._groups.home[id(other[0])] is not other:
                continue
            together = [*one, *other]
            if any(self._alone(streaming, node) for node in together) or not few_tensors(
                self._graph, together
            ):
                continue
            if self._groups.units.circular(together) or self._groups.launches(together, streaming) != 1:
                continue
            self._groups.add(one, *other)

    def _join_counters(self) -> None:
        """Single numbers that follow from the module's own (batches that were counted) share a launch."""
        found = {id(group): group for group in self._groups.home.values() if self._is_counter(group)}
        counters = list(found.values())
        for start in range(0, len(counters), MOST_COUNTERS):
            first, *others = counters[start : start + MOST_COUNTERS]
            more = [node for group in others for node in group]
            together = [*first, *more]
            if (
                more
                and not self._groups.units.circular(together)
                and self._groups.writes(together, self._patterns.streaming)
            ):
                self._groups.add(first, *more)

    def _is_counter(self, group: list[Node]) -> bool:
        made = {name for node in group for name in node.outputs}
        read = {name for node in group for name in node.inputs if name is not None} - made
        return (
            bool(self._groups.pattern[id(group)].streams)
            and any(node.op == "update" for node in group)
            and all(self._graph.value(name).origin is Origin.PARAMETER for name in read)
            and all(self._graph.value(name).elements == ONE for name in made | read)
        )

    # -- the end -----------------------------------------------------------------------------------

    def finished(self) -> Structure:
        """Groups by first need, named and written."""
        members = [(unit, self._groups.home_of(unit[0])[0].name) for unit in self._groups.units.ordered()]
        groups, parts = written(self._graph, members, self._groups.written, self._patterns)
        order = rooms_first(self._graph, [unit for unit, _ in members])
        ordered = tuple(groups[at] for at in order)
        return Structure(
            self._graph, ordered, self._shared(ordered, [parts[at] for at in order]), self._patterns
        )

    def _shared(self, groups: Sequence[Group], parts: list[Part]) -> tuple[Part, ...]:
        """What the groups of a pattern have in common is done by the first of them."""
        for name in {group.pattern for group in groups}:
            own = [at for at, group in enumerate(groups) if group.pattern == name]
            for at, part in zip(own, self._patterns[name].shared([parts[at] for at in own]), strict=True):
                parts[at] = part
        return tuple(parts)
