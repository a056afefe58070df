"""Captures in which sizes and arguments change one by one, beside those at other integers of the source.

One integer of a source may stand for several sizes (a batch and a width of 512), and a small one is not moved
at all. So every dimension that the program takes at other sizes on its own (:mod:`egg.evaluator.task.
dimensions`) gets a value of its own in further captures, and every number that the constructor or ``forward``
is given another value. All captures together become one graph again. What could not be varied, or changes
what the program does, stays the number it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from egg.core.errors import MachineError, TaskError
from egg.evaluator.task.dataless import calls_without_data
from egg.evaluator.task.dimensions import RUNS, Axis, Place, Rehearsal, axes_of, fresh
from egg.evaluator.task.program import Program
from egg.expert.algebra.simplify import simplify
from egg.expert.graph import Graph, Origin, Usage
from egg.expert.reading.apart import alike, moved_axis
from egg.expert.reading.axes import has_both_parities, is_batch, is_separate, still_fixed
from egg.expert.reading.branches import bounds, callers, decides, limits_in, pinned, sizes_at
from egg.expert.reading.formats import formats
from egg.expert.reading.least import heads_within, least_sizes, selections_within, slices_within
from egg.expert.reading.points import Changes, Variant
from egg.expert.reading.roles import input_names
from egg.expert.reading.usage import arguments_of, entangled, ties_of, values_of, with_modes
from egg.expert.reading.variants import LARGE, Variants
from egg.expert.sizes import Symbol

Row = tuple[Any, ...]
Naming = Callable[[Variants, list[Variant], Mapping[Row, str]], Graph | None]
RUNS_FOR_BRANCHES = 24
"""Forwards without data that looking for branches may always take."""
MOST_PLACES = 4
"""Dimensions that are tried, each for itself, together with an argument."""


def widened(variants: Variants, graph: Graph, points: list[Variant], naming: Naming) -> Graph:
    """``graph``, which ``points`` became, with a name for every size and number that can change alone."""
    with Program.load(variants.task) as program:
        rehearsal = Rehearsal(program, min(RUNS, variants.rehearsals))
        work = _Widening(variants, program, rehearsal, naming, graph, points)
        work.dimensions()
        work.integers()
        work.fractions()
        work.values()
        work.equalities()
        work.branches()
        usage = with_modes(work.usage(), variants, work.base, rehearsal.module)
        usage = replace(usage, outputs=formats(work.graph, rehearsal))
    rules = (slices_within, heads_within, selections_within)
    return replace(work.graph, usage=usage, within=tuple(pair for rule in rules for pair in rule(work.graph)))


@dataclass
class _Widening:
    variants: Variants
    program: Program
    rehearsal: Rehearsal
    naming: Naming
    graph: Graph
    points: list[Variant]
    free: set[str] = field(default_factory=set)
    """Arguments of the constructor that were varied alone."""
    doubtful: set[str] = field(default_factory=set)
    """Those that the program separates, and the captures do not."""
    given: set[str] = field(default_factory=set)
    """Numbers of ``forward`` that were varied alone."""
    least: dict[str, int] = field(default_factory=dict)
    axes: tuple[Axis, ...] | None = None
    """``None`` while they are not known, or not all of them."""
    _records: dict[Changes, list[str] | None] = field(default_factory=dict)

    @property
    def base(self) -> Variant:
        return self.points[0]

    # -- dimensions ------------------------------------------------------------------------------------

    def dimensions(self) -> None:
        """All axes at once, else as many as go together, the first dimensions first."""
        if not self.rehearsal.runs({}):
            return
        found = axes_of(self.rehearsal)
        self.axes = found if self.rehearsal.left > 0 else None
        known = [a for a in found if is_separate(self.graph, a) and has_both_parities(self.graph, a)]
        wanted = [a for a in found if (a.size > 1 or is_batch(a)) and a not in known]
        if not wanted or self._with_axes(wanted):
            return
        joined = alike(wanted)
        if len(joined) < len(wanted) and self._with_axes(joined):
            return
        kept: list[Axis] = []
        for axis in sorted(wanted, key=lambda a: (min(p.dim for p in a.places), a.places)):
            if len(wanted) > 1 and self._with_axes([*kept, axis], settle=False):
                kept.append(axis)
        if kept:
            self._with_axes(kept)

    def _rounded(self) -> list[Symbol]:
        """Sizes that moved with an integer of the source and that alone move a little, and not far: a pool
        rounds them to what a layer after it takes."""
        places = {place for axis in self.axes or () for place in axis.places}
        found: list[Symbol] = []
        for symbol in callers(self.graph) if self.axes is not None else ():
            own = symbol.values[0]
            near, *far = (sizes_at(self.graph, symbol, n) for n in (own + 1, 2 * own + 3, own // 2))
            if places.isdisjoint(near) and self.rehearsal.runs(near):
                found += [] if any(self.rehearsal.runs(sizes) for sizes in far) else [symbol]
        return found

    def _with_axes(self, chosen: Sequence[Axis], settle: bool = True) -> bool:
        count = (3 if len(self.points) == 1 else 2) - (len(self.base.graph.nodes) > LARGE)
        others: list[Variant] = []
        used: dict[Place, set[int]] = {}
        for number in range(count):
            sizes = self._apart(chosen, number, used)
            if sizes is None or not self.rehearsal.runs(sizes):
                return False
            point = self.variants.changed(Changes(sizes=tuple(sorted(sizes.items()))), self.base)
            if point is None:
                return False
            others.append(point)
        return self._together(others, settle)

    def _apart(
        self, chosen: Sequence[Axis], number: int, used: dict[Place, set[int]]
    ) -> dict[Place, int] | None:
        """A value for each axis that no other size has; in the first two captures another one each."""
        values = self.base.graph.values.values()
        taken = {size.value for v in values if v.origin is not Origin.NODE for size in v.shape}
        sizes: dict[Place, int] = {}
        for place, axis in enumerate(chosen):
            before = used.setdefault(axis.places[0], set())
            value = moved_axis(axis, place, number, taken | before if number < 2 else taken)
            if value is None:
                return None
            before.add(value)
            taken.add(value)
            sizes |= axis.at(value)
        return sizes

    def _together(self, others: Sequence[Variant], settle: bool = True, simple: bool = False) -> bool:
        points = [*self.points, *others]
        graph = self.naming(self.variants, points, input_names([p.graph for p in points]))
        if graph is None or (simple and _kinds(simplify(graph)) != _kinds(simplify(self.graph))):
            return False
        if settle:
            self.graph, self.points = replace(graph, fixed=still_fixed(graph, self.graph.fixed)), points
        return True

    # -- arguments of the constructor ------------------------------------------------------------------

    def integers(self) -> None:
        """Whole numbers that moved with others only: each for itself, where the program takes that.

        Where it does, and the captures do not become one graph, it is not known which of the two a number of
        the graph follows: both stay as they are.
        """
        for pair in entangled(self.points):
            if pair not in entangled(self.points):
                continue
            for name in pair:
                ways = list(self._ways(name))
                if ways and any(self._with_changes(way) for way in ways):
                    break
                if ways:
                    self.doubtful |= set(pair)

    def _ways(self, name: str) -> Iterator[Changes]:
        """Changes of one argument that the program takes: alone, or with dimensions that have its size."""
        value = self.base.capture.arguments[name]
        equal = [
            Place(path, dim)
            for path, given in self.graph.places
            if given is not None
            for dim, size in enumerate(self.base.graph.value(given).shape)
            if size.value == value
        ]
        groups = [(), *((place,) for place in equal[:MOST_PLACES]), tuple(equal)]
        for group in dict.fromkeys(groups):
            for other in (fresh(value + 1, value, {value}), 3 * value):
                sizes = tuple((place, other) for place in group)
                changes = Changes(sizes=sizes, arguments=((name, other),))
                if self._runs(changes):
                    yield changes
                    break

    def _runs(self, changes: Changes) -> bool:
        return self._record(changes) is not None

    def _record(self, changes: Changes) -> list[str] | None:
        """What the program calls after ``changes``; ``None`` where it does not run. A question that was asked
        before counts among the forwards that are left, so that the answers of all others are the same."""
        if self.rehearsal.left <= 0:
            return None
        self.rehearsal.left -= 1
        if changes not in self._records:
            try:
                self._records[changes] = calls_without_data(changes.applied(self.program))
            except (TaskError, MachineError):
                self._records[changes] = None
        return self._records[changes]

    def fractions(self) -> None:
        """Fractions that the constructor is given, all at once, else one by one.

        Not those with values at which the program does something else: a bound of 0 that stands for none. And
        not those whose value the algebra needs: a program that is known at one factor may be much smaller.
        """
        given = {name: v for name, v in self.base.capture.arguments.items() if type(v) is float}
        wanted = {name: _other(value, at) for at, (name, value) in enumerate(given.items())}
        alone = {name: Changes(arguments=((name, value),)) for name, value in wanted.items()}
        steady = [
            n for n in wanted if self.variants.changed(alone[n], self.base) and self._steady(n, given[n])
        ]
        joint = Changes(arguments=tuple((name, wanted[name]) for name in steady))
        if steady and self._with_changes(joint, simple=True):
            self.free |= set(steady)
            return
        for name in steady if len(steady) > 1 else ():
            if self._with_changes(alone[name], simple=True):
                self.free.add(name)

    def _steady(self, name: str, value: float) -> bool:
        """Whether the program does the same at values that often mean something else."""
        own = self._record(Changes())
        specials = (self._record(Changes(arguments=((name, n),))) for n in (0.0, 1.0, -value))
        return all(record in (None, own) for record in specials)

    def equalities(self) -> None:
        """Whole numbers of the constructor that mean something else where they equal another one, or what the
        source compares with: a block that adds its input only where the channels are as many."""
        source, given = self.variants.task.source, self.base.capture.arguments
        moving = [a.name for a in arguments_of(self.points, (), self.doubtful) if a.free]
        if not moving or not decides(source):
            return
        limits = limits_in(source, vars(self.program.module), self.base.capture.numbers, everywhere=True)
        own = self._record(Changes())
        for name in moving:
            others = [given[other] for other in moving if other != name]
            near = [n + by for n in limits for by in (-1, 0, 1)]
            for value in dict.fromkeys([*others, 1, *near]):
                if value == given[name] or value < 1:
                    continue
                for changes in self._followed(name, value):
                    record = self._record(changes)
                    if record is not None and record != own and not self.variants.changed(changes, self.base):
                        self.doubtful.add(name)

    def _followed(self, name: str, value: int) -> list[Changes]:
        """One argument at another value, alone and with the dimensions that follow it."""
        row = tuple(point.capture.arguments[name] for point in self.points)
        places = [
            Place(path, dim)
            for path, given in self.graph.places
            if given is not None
            for dim in range(self.graph.value(given).rank)
            if row == tuple(point.graph.value(given).shape[dim].value for point in self.points)
        ]
        alone = Changes(arguments=((name, value),))
        return [replace(alone, sizes=tuple((place, value) for place in places)) if places else alone]

    # -- arguments of forward --------------------------------------------------------------------------

    def values(self) -> None:
        """Numbers that ``forward`` is given, one by one; those in containers stay as they are."""
        names = list(self.base.capture.values)
        paths = [path for path, name in self.graph.places if name is None]
        for name, (place, *within) in zip(names, paths, strict=True):
            value = self.base.capture.values[name]
            if type(value) not in (int, float) or type(place) is not int or within:
                continue
            other = _other(value, 0) if type(value) is float else value + 3
            specials = [self._record(Changes(values=((place, type(value)(n)),))) for n in (0, 1, -value)]
            if any(record not in (None, self._record(Changes())) for record in specials):
                continue
            if self._with_changes(Changes(values=((place, other),))):
                self.given.add(name)

    def _with_changes(self, changes: Changes, simple: bool = False) -> bool:
        point = self.variants.changed(changes, self.base)
        return point is not None and self._together([point], simple=simple)

    # -- sizes that change the program -----------------------------------------------------------------

    def branches(self) -> None:
        """Sizes at which the program does something else stay as they are, or get a least value."""
        source, module = self.variants.task.source, vars(self.program.module)
        limits = limits_in(source, module, self.base.capture.numbers)
        self.rehearsal.left = max(self.rehearsal.left, RUNS_FOR_BRANCHES)
        if rounded := self._rounded():
            self.graph = pinned(self.graph, rounded)
        self.least, changing = bounds(self.graph, self.rehearsal, limits, self._same_at)
        if changing:
            self.graph = pinned(self.graph, changing)
        free = callers(self.graph)
        if limits and free and not self._holds(free, limits):
            wrong = [s for s in free if len(free) == 1 or not self._holds([s], limits)]
            self.graph = pinned(self.graph, wrong)

    def _same_at(self, sizes: dict[Place, int]) -> bool:
        return self.variants.changed(Changes(sizes=tuple(sorted(sizes.items()))), self.base) is not None

    def _holds(self, symbols: Sequence[Symbol], limits: Sequence[int]) -> bool:
        """Whether captures on both sides of each limit become one graph with the others."""
        others: list[Variant] = []
        for value in dict.fromkeys(n for limit in limits for n in (limit - 1, limit + 1)):
            sizes: dict[Place, int] = {}
            for symbol in symbols:
                sizes |= sizes_at(self.graph, symbol, value)
            if not self.rehearsal.runs(sizes):
                if len(symbols) > 1:
                    return False
                continue
            point = self.variants.changed(Changes(sizes=tuple(sorted(sizes.items()))), self.base)
            if point is None:
                return False
            others.append(point)
        return not others or self._together(others, settle=False)

    def usage(self) -> Usage:
        arguments = tuple(arguments_of(self.points, self.free, self.doubtful))
        return Usage(
            tuple(values_of(self.base, self.given)),
            arguments,
            least=self._least(),
            ties=dict(ties_of(self.graph, self.points, [a.name for a in arguments if a.free])),
        )

    def _least(self) -> dict[str, int]:
        """Below, the program does something else, or nothing is left of a size that it computes."""
        found = least_sizes(self.graph)
        for name in self.least.keys() & self.graph.symbols.keys():
            found[name] = max(found.get(name, 1), self.least[name])
        return found


def _kinds(graph: Graph) -> list[tuple[str, Any]]:
    """What a graph computes, one by one; a division by a number and a product are one kind."""
    alike = {"div": "mul"}
    return [(n.op, alike.get(n.get("fn"), n.get("fn"))) for n in graph.nodes if n.op != "view"]


def _other(value: float, place: int) -> float:
    """Another fraction on the same side of zero and of one, a different one for each place."""
    share = 0.75 - 0.0625 * (place % 8)
    if 0.0 <= value <= 1.0:
        return value * share + 0.125 * (1.0 - share)
    return value * (2.0 - share) if value else share
