"""Races: between the programs of one launch, and between the lanes of one program.

The interpreter runs programs one after another, so a conflict that a GPU resolves at random
always resolves the same way here. It is found instead by remembering, for every element
touched, who stored to it and who loaded it: a *shadow* of each storage. Programs conflict
on an element if one stores what another loads, or if two store different values, and if one changes
atomically what another loads or stores plainly (an "initialise, then accumulate" inside one launch, a
sum that the last program loads). Two programs storing equal values is only worth a note, and atomics
among themselves are what atomics are for.

Atomics order programs (:mod:`~egg.evaluator.interpreter.ordering`): what a program did before
a release is settled for every program that acquires from the same element later. A conflict that is
ordered so is none. An atomic on a buffer that has nothing to do with it orders nothing.

Lanes of one program are threads (:mod:`~egg.evaluator.interpreter.lanes`). A lane may load what *it*
stored; what another lane of the same program touched is settled only behind a barrier. Two
lanes of one store that write different values to one element leave either. Iterations of a loop may
overlap, too (:mod:`~egg.evaluator.interpreter.pipelines`). The copy engine, which loads tiles through a
descriptor, sees nothing of what threads stored in the same launch: no barrier orders the two.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import numpy as np

from egg.evaluator.interpreter import lanes
from egg.evaluator.interpreter.fault import KernelFault
from egg.evaluator.interpreter.lanes import Selection
from egg.evaluator.interpreter.memory import Region, Touched
from egg.evaluator.interpreter.ordering import EPOCH_SHIFT, PROGRAM, SEVERAL, Order
from egg.evaluator.interpreter.pipelines import Pipelines
from egg.evaluator.interpreter.places import place_of
from egg.evaluator.interpreter.session import Session
from egg.evaluator.interpreter.shadow import Shadow

_MOST_SYNCHRONISING = 64
"""Elements of one atomic: larger ones add tiles up, and order no programs."""


class Accumulates(Enum):
    """What an atomic leaves of the value that it finds."""

    READS = auto()
    """All of it: an atomic load."""
    NOTHING = auto()
    COUNTS = auto()
    """An integer or an extreme: every order gives the same."""
    FLOATS = auto()


class RaceDetector:
    """Watches one launch. It hears of each access before it happens, and judges when the launch is over."""

    def __init__(self, session: Session, kernel: str, read_only: set[str]) -> None:
        self.session = session
        self.kernel = kernel
        self.program = 1
        self.grid: tuple[int, ...] = (1, 1, 1)
        self.order = Order()
        self.pipelines = Pipelines()
        self.blocks = 1
        """Of a program (``num_ctas``)."""
        self._barriers = 1
        """Before what the running program does now; the count is never the same for two programs."""
        self._count = 1
        self._met: dict[int, int] = {}
        self._read_only = read_only
        self._shadows: dict[Region, Shadow] = {}
        self._conflicts: dict[Region, str] = {}
        self._agreed: set[Region] = set()
        self._atomic: set[Region] = set()
        self._stored: set[Region] = set()
        self._last_stored: dict[int, int] = {}
        """By program: the barriers before its last store."""

    def enter(self, program: int) -> None:
        """A program begins, or goes on where it handed over."""
        self.program = program
        if program in self._met:
            self._barriers = self._met[program]
        else:
            self._meet()

    def _meet(self) -> None:
        """The lanes of the running program wait for each other."""
        self._count += 1
        self._barriers = self._met[self.program] = self._count

    def barrier(self) -> None:
        """``tl.debug_barrier``; of a program of several blocks each waits for its own threads alone."""
        if self.blocks == 1:
            self._meet()
        self.pipelines.barrier(self.program)

    def load(self, part: Touched, itemsize: int, *, copied: bool = False) -> None:
        """A load conflicts with another program's earlier store or atomic; otherwise remember the reader.

        An argument that no earlier launch of this kernel stored to is not remembered: most
        of the cost would go into inputs. One that is ``copied`` is loaded by the copy engine.
        """
        region = part.region
        self.pipelines.touch(self.program)
        changed = region in self._stored or region in self._atomic
        unwatched = region.arguments.keys() <= self._read_only and not changed
        if unwatched or region in self._conflicts:
            return
        shadow = self._shadow(region)
        where = shadow.select(part, itemsize)
        self._check(shadow, where, shadow.stored, "loads what {other} stores")
        self._check(shadow, where, shadow.accumulated, "loads what {other} changes atomically")
        if copied:
            self._check_copied(shadow, where)
        codes = shadow.codes(part, itemsize)
        self._check_lanes(shadow, where, shadow.storing, codes, "loads what {other} stores", part)
        self._check_lanes(shadow, where, shadow.adding, codes, "loads what {other} changes atomically", part)
        self._check_loop(shadow, where, part)
        lanes.leave(shadow.track("loading"), where, codes, self._barriers)
        readers = shadow.track("loaded")
        readers[where] = self.order.reading(self.program, readers[where])

    def store(
        self,
        part: Touched,
        itemsize: int,
        current: Callable[[], np.ndarray],
        values: np.ndarray,
        *,
        copied: bool = False,
    ) -> None:
        """A store conflicts with other programs' loads, unequal stores and atomics.

        ``current`` reads what memory holds now; it is asked for only where stores overlap.
        """
        region = part.region
        self.pipelines.touch(self.program)
        self._stored.add(region)
        self._last_stored[self.program] = self._barriers
        if region in self._conflicts:
            return
        shadow = self._shadow(region)
        where = shadow.select(part, itemsize)
        self._check(shadow, where, shadow.loaded, "stores what {other} loads")
        self._check(shadow, where, shadow.accumulated, "stores what {other} changes atomically")
        self._check(shadow, where, shadow.looked, "stores what {other} loads atomically")
        writers = shadow.track("stored")
        before = writers[where]
        if before.any() and (overlap := self.order.unordered(self.program, before)).any():
            self._agreed.add(region)
            differs = np.repeat(_differ(current(), values), itemsize // shadow.granule)
            self._report(
                shadow, where, before, overlap & differs, "stores, with another value, what {other} stores"
            )
        writers[where] = self.order.stamp(self.program)
        if copied or shadow.copied is not None:
            shadow.track("copied")[where] = copied
        self._leave_turn(shadow, where)
        self._own_lanes(shadow, where, part, itemsize, current, values)

    def atomic(
        self,
        part: Touched,
        itemsize: int,
        accumulates: Accumulates,
        acquires: bool = False,
        releases: bool = False,
        *,
        between: bool = True,
    ) -> None:
        """Atomics among themselves are exempt; beside plain accesses of other programs they must be ordered.

        One that is not ``between`` programs (its scope is a block) is atomic for the threads of its own
        program only, and what other programs change is a conflict. A tile releases, lane by lane, nothing
        that other lanes stored since the last barrier.

        A counter or a flag may order the programs that meet at it, and be set back by the last of them: the
        acquire comes first, and only what it does not settle is a conflict. Sums of floats order nothing
        that they add to: where one program stores their start, another may add before.
        """
        region = part.region
        self.pipelines.touch(self.program)
        self._atomic.add(region)
        scalar = lanes.is_scalar(part)
        if scalar and releases:
            self._meet()
        if region in self._conflicts:
            return
        shadow = self._shadow(region)
        where = shadow.select(part, itemsize)
        changes = accumulates is not Accumulates.READS
        self._atomic_lanes(shadow, where, shadow.codes(part, itemsize), changes)
        if scalar and acquires:
            self._meet()
        elif not scalar and self._last_stored.get(self.program) == self._barriers:
            releases = False
        if not between and changes:
            adders = shadow.track("accumulated")
            self._check(shadow, where, adders, "changes, with the scope 'cta', what {other} changes")
        meets = between and part.addresses.size <= _MOST_SYNCHRONISING and (acquires or releases)
        elements = [int(address) for address in np.unique(part.addresses)] if meets else []
        if accumulates is not Accumulates.FLOATS:
            for address in elements:
                self.order.synchronise(self.program, address, acquires, False)
        verb = "changes atomically" if changes else "loads atomically"
        self._check(shadow, where, shadow.stored, verb + " what {other} stores")
        if changes:
            self._check(shadow, where, shadow.loaded, verb + " what {other} loads")
        met = shadow.track("accumulated" if changes else "looked")
        met[where] = self.order.reading(self.program, met[where])
        if changes:
            self._leave_turn(shadow, where)
        for address in elements:
            self.order.synchronise(self.program, address, acquires, releases)

    def _atomic_lanes(self, shadow: Shadow, where: Selection, codes: np.ndarray, changes: bool) -> None:
        verb = "changes atomically" if changes else "loads atomically"
        self._check_lanes(shadow, where, shadow.storing, codes, verb + " what {other} stores")
        if changes:
            self._check_lanes(shadow, where, shadow.loading, codes, verb + " what {other} loads")
        lanes.leave(shadow.track("adding" if changes else "loading"), where, codes, self._barriers)

    @property
    def atomics(self) -> bool:
        return bool(self._atomic)

    @property
    def rereads(self) -> bool:
        """Whether an argument was both loaded and stored."""
        return any(s.stored is not None and s.loaded is not None for s in self._shadows.values())

    def stored_arguments(self) -> set[str]:
        return {name for region in self._stored | self._atomic for name in region.arguments}

    def finish(self) -> None:
        """Judge the launch by its first conflict."""
        for region in self._agreed - self._conflicts.keys():
            self.session.note(
                f"kernel {self.kernel}: programs store equal values to the same elements of {region.name!r}"
            )
        for text in self._conflicts.values():
            if self._atomic:
                text += "; no atomic that the one releases and the other acquires lies between"
            raise KernelFault("race", text)

    def _shadow(self, region: Region) -> Shadow:
        shadow = self._shadows.get(region)
        if shadow is None:
            shadow = self._shadows[region] = Shadow(region)
        return shadow

    def _check(self, shadow: Shadow, where: Selection, programs: np.ndarray | None, verb: str) -> None:
        """What ``programs`` did to these elements, ``None`` where none did, must be ordered before this."""
        if programs is not None and (found := programs[where]).any():
            self._report(shadow, where, found, self.order.unordered(self.program, found), verb)

    # lanes of one program

    def _own_lanes(
        self,
        shadow: Shadow,
        where: Selection,
        part: Touched,
        itemsize: int,
        current: Callable[[], np.ndarray],
        values: np.ndarray,
    ) -> None:
        """Remember which lane stored; no two of this store may leave different values in one element."""
        codes = shadow.codes(part, itemsize)
        self._check_lanes(shadow, where, shadow.loading, codes, "stores what {other} loads")
        self._check_lanes(shadow, where, shadow.adding, codes, "stores what {other} changes atomically")
        marks = shadow.track("storing")
        if (again := lanes.crossed(marks[where], codes, self._barriers)).any():
            again &= np.repeat(_differ(current(), values), itemsize // shadow.granule)
            self._crossed(shadow, where, again, "stores, with another value, what {other} stores")
        mine = codes | (self._barriers << lanes.LANE_BITS)
        marks[where] = mine
        if isinstance(where, slice) or (marks[where] == mine).all():
            return
        addresses = part.addresses.ravel()
        _, first, which = np.unique(addresses, return_index=True, return_inverse=True)
        given = np.ascontiguousarray(values).ravel()
        clash = _differ(given, given[first][which.ravel()])
        if clash.any():
            at = int(addresses[np.argmax(clash)])
            raise KernelFault(
                "race",
                f"kernel {self.kernel}, program {self._coordinates(self.program)}: lanes of one store write "
                f"different values to argument {shadow.region.name!r}, element offset "
                f"{shadow.region.offset(at)}",
            )

    def _check_lanes(
        self,
        shadow: Shadow,
        where: Selection,
        marks: np.ndarray | None,
        codes: np.ndarray,
        verb: str,
        loaded: Touched | None = None,
    ) -> None:
        """What another lane of this program touched since the last barrier may come before or behind this."""
        if marks is None:
            return
        if loaded is not None and lanes.is_scalar(loaded):
            self._crossed(shadow, where, lanes.crossed_by_scalar(marks[where], self._barriers), verb)
        else:
            self._crossed(shadow, where, lanes.crossed(marks[where], codes, self._barriers), verb)

    def _crossed(self, shadow: Shadow, where: Selection, guilty: np.ndarray, verb: str) -> None:
        if not guilty.any():
            return
        barrier = (
            "no tl.debug_barrier() between"
            if self.blocks == 1
            else f"nothing between that all {self.blocks} blocks of num_ctas={self.blocks} wait at"
        )
        raise KernelFault(
            "race",
            f"kernel {self.kernel}, program {self._coordinates(self.program)} "
            f"{verb.format(other='another of its lanes')}, with {barrier}: argument "
            f"{shadow.region.name!r}, element offset {shadow.first(where, guilty)}",
        )

    # iterations of one loop, and the copy engine

    def _leave_turn(self, shadow: Shadow, where: Selection) -> None:
        """Note in which iteration this was changed, if loads of its loop may run ahead."""
        if self.pipelines.ahead(self.program) is not None:
            shadow.track("looping")[where] = self.program | (self.pipelines.turn << EPOCH_SHIFT)

    def _check_loop(self, shadow: Shadow, where: Selection, part: Touched) -> None:
        """What an iteration in flight changed is not there yet for a load that runs ahead of it."""
        loop = self.pipelines.ahead(self.program)
        if loop is None or shadow.looping is None:
            return
        turns = shadow.looping[where]
        guilty = (turns >> EPOCH_SHIFT >= loop.begun[0]) & (turns >> EPOCH_SHIFT < loop.begun[-1])
        guilty &= (turns & PROGRAM) == self.program
        if not guilty.any() or (not loop.named and lanes.is_scalar(part)) or not loop.runs_ahead():
            return
        whose = "" if loop.named else " of the launch, and a tl.dot that follows from it,"
        raise KernelFault(
            "race",
            f"kernel {self.kernel}, program {self._coordinates(self.program)} loads what an earlier "
            f"iteration of the same loop changes; with num_stages={loop.stages}{whose} loads run ahead of "
            f"them: argument {shadow.region.name!r}, element offset {shadow.first(where, guilty)}; "
            "give the loop num_stages=1 by tl.range, or carry the value in a variable",
        )

    def _check_copied(self, shadow: Shadow, where: Selection) -> None:
        """What a thread stored is not ordered before what the copy engine loads; a launch between does."""
        if shadow.stored is None:
            return
        guilty = shadow.stored[where] != 0
        if shadow.copied is not None:
            guilty &= shadow.copied[where] == 0
        if guilty.any():
            raise KernelFault(
                "race",
                f"kernel {self.kernel}, program {self._coordinates(self.program)} loads through a descriptor "
                "what a plain store of the same launch wrote: the copy engine does not see it, whatever "
                f"barrier lies between: argument {shadow.region.name!r}, element offset "
                f"{shadow.first(where, guilty)}; load it by tl.load, or store it in a launch before",
            )

    # words

    def _report(
        self, shadow: Shadow, where: Selection, found: np.ndarray, guilty: np.ndarray, verb: str
    ) -> None:
        """Keep the first guilty element as the region's conflict."""
        region = shadow.region
        if region in self._conflicts or not guilty.any():
            return
        culprit = int(found[int(np.argmax(guilty))])
        several = bool(culprit & SEVERAL)
        name = "several other programs" if several else f"program {self._coordinates(culprit & PROGRAM)}"
        self._conflicts[region] = (
            f"kernel {self.kernel}: program {self._coordinates(self.program)} "
            f"{verb.format(other=name)}: argument {region.name!r}, element offset "
            f"{shadow.first(where, guilty)}"
        )

    def _coordinates(self, program: int) -> tuple[int, ...]:
        return place_of(program, self.grid)


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Unequal as memory: NaN equals itself, and 0.0 is not -0.0."""
    bits = np.dtype(f"u{a.itemsize}")
    return np.ascontiguousarray(a).ravel().view(bits) != np.ascontiguousarray(b).ravel().view(bits)
