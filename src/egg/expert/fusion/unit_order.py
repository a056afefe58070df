"""An executable order of a graph whose nodes are joined into units one after the other.

Whether a unit may take another node is asked thousands of times in a large network, and the answer is no only
if a path leaves the unit and comes back. Every edge leads to a higher place of the order, so a path that
comes back runs between the lowest and the highest place of what is joined: only that window is searched, and
only that window is set in order again after joining.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from egg.expert.graph import Graph, Node


class UnitOrder:
    """Units of nodes, each at its place."""

    def __init__(self, graph: Graph) -> None:
        self._first = {id(node): place for place, node in enumerate(graph.nodes)}
        self._after = {
            id(node): [r for name in node.outputs for r in graph.consumers[name]] for node in graph.nodes
        }
        for node in graph.nodes:
            if node.op == "update":  # what reads the buffer reads what was there before
                for reader in graph.consumers[str(node.inputs[0])]:
                    if self._first[id(reader)] < self._first[id(node)]:
                        self._after[id(reader)].append(node)
        self._units: list[tuple[Node, ...]] = [(node,) for node in graph.nodes]
        self._place = dict(self._first)

    def circular(self, nodes: Sequence[Node]) -> bool:
        """Whether a path leaves these nodes, which hold whole units, and comes back."""
        inside = {self._place[id(node)] for node in nodes}
        return not inside.isdisjoint(self._behind(inside))

    def join(self, nodes: Sequence[Node]) -> None:
        """Make one unit of these nodes, which are not :meth:`circular`."""
        inside = {self._place[id(node)] for node in nodes}
        if len(inside) == 1:
            return
        behind = self._behind(inside)
        window = range(min(inside), max(inside) + 1)
        units = [self._units[place] for place in window if place not in inside and place not in behind]
        units.append(tuple(sorted(nodes, key=lambda node: self._first[id(node)])))
        units += [self._units[place] for place in window if place in behind]
        units += [()] * (len(window) - len(units))
        for place, unit in zip(window, units, strict=True):
            self._units[place] = unit
            for node in unit:
                self._place[id(node)] = place

    def _behind(self, inside: set[int]) -> set[int]:
        """Places below the highest of ``inside`` that a path from there leads to."""
        highest = max(inside)
        found: set[int] = set()
        waiting = [self._units[place] for place in inside]
        while waiting:
            own = self._place[id(waiting[-1][0])]
            for node in waiting.pop():
                for reader in self._after[id(node)]:
                    place = self._place[id(reader)]
                    if place != own and place <= highest and place not in found:
                        if not (place in inside and own in inside):
                            found.add(place)
                        if place not in inside:
                            waiting.append(self._units[place])
        return found

    def ordered(self) -> list[tuple[Node, ...]]:
        """The units in an order that can be executed, and otherwise as the program has them."""
        units = sorted((unit for unit in self._units if unit), key=lambda unit: self._first[id(unit[0])])
        number = {id(node): place for place, unit in enumerate(units) for node in unit}
        after: list[set[int]] = [{number[id(r)] for r in self._readers(unit)} - {at}
                                 for at, unit in enumerate(units)]  # fmt: skip
        missing = [0] * len(units)
        for places in after:
            for place in places:
                missing[place] += 1
        ready = [place for place, count in enumerate(missing) if count == 0]
        heapify(ready)
        done: list[tuple[Node, ...]] = []
        while ready:
            at = heappop(ready)
            done.append(units[at])
            for place in after[at]:
                missing[place] -= 1
                if missing[place] == 0:
                    heappush(ready, place)
        assert len(done) == len(units), "units wait for each other"
        return done

    def _readers(self, unit: Iterable[Node]) -> Iterable[Node]:
        return (reader for node in unit for reader in self._after[id(node)])
