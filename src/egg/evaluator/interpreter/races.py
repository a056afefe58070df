"""Races between the programs of one launch.

The interpreter runs programs one after another, so a conflict that a GPU resolves at random
always resolves the same way here. It is found instead by remembering, for every element
touched, who stored to it and who loaded it: a *shadow* of each storage. Programs conflict
on an element if one stores what another loads, or if two store different values; float
atomics conflict with another program's plain store (an "initialise, then accumulate" inside
one launch). Two programs storing equal values is only worth a note, and atomics among
themselves are what atomics are for.

A launch that uses atomics on *another* buffer may order its programs by them (locks,
counters, "the last one finishes"). No shadow can tell whether it does so correctly, so its
conflicts become notes. For that the verdict has to wait until the launch is over.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from egg.evaluator.interpreter.fault import KernelFault
from egg.evaluator.interpreter.memory import Region, Touched
from egg.evaluator.interpreter.session import Session

_NOBODY = 0
_SEVERAL = -1

Selection = np.ndarray | slice


class Shadow:
    """Per element of a storage: the program (from 1) that last stored, loaded, accumulated."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.granule = region.itemsize
        self.stored: np.ndarray | None = None
        self.loaded: np.ndarray | None = None
        self.accumulated: np.ndarray | None = None

    def track(self, kind: str) -> np.ndarray:
        """The array of one kind, made when first needed (most storages are only ever read)."""
        array = getattr(self, kind)
        if array is None:
            array = np.zeros(-(-self.region.nbytes // self.granule), dtype=np.int32)
            setattr(self, kind, array)
        return array

    def select(self, part: Touched, itemsize: int) -> Selection:
        """Which shadow elements an access covers; a slice where it is one unbroken run."""
        if itemsize < self.granule or (part.low - self.region.start) % self.granule:
            self._refine(1 if (part.low - self.region.start) % itemsize else itemsize)
        addresses = part.addresses.ravel()
        shift = np.uint64(self.granule.bit_length() - 1)
        count = addresses.size
        if part.high - part.low == (count - 1) * itemsize and (
            count == 1 or (addresses[1:] - addresses[:-1] == np.uint64(itemsize)).all()
        ):
            first = (part.low - self.region.start) // self.granule
            return slice(first, first + count * itemsize // self.granule)
        index = ((addresses - np.uint64(self.region.start)) >> shift).astype(np.int64)
        if itemsize == self.granule:
            return index
        return (index[:, None] + np.arange(itemsize // self.granule)).ravel()

    def _refine(self, granule: int) -> None:
        """Split every element: the storage is also accessed through a narrower type."""
        for kind in ("stored", "loaded", "accumulated"):
            array = getattr(self, kind)
            if array is not None:
                setattr(self, kind, np.repeat(array, self.granule // granule))
        self.granule = granule


class RaceDetector:
    """Watches one launch. Told of each access before it happens; judges when the launch is over."""

    def __init__(self, session: Session, kernel: str, read_only: set[str]) -> None:
        self.session = session
        self.kernel = kernel
        self.program = 1
        self.grid: tuple[int, ...] = (1, 1, 1)
        self._read_only = read_only
        self._shadows: dict[Region, Shadow] = {}
        self._conflicts: dict[Region, str] = {}
        self._agreed: set[Region] = set()
        self._atomic: set[Region] = set()
        self._stored: set[Region] = set()

    def load(self, part: Touched, itemsize: int) -> None:
        """A load conflicts with another program's earlier store; otherwise remember the reader.

        An argument that no earlier launch of this kernel stored to is not remembered: most
        of the cost would go into inputs.
        """
        region = part.region
        unwatched = region.name in self._read_only and region not in self._stored
        if unwatched or region in self._conflicts:
            return
        shadow = self._shadow(region)
        where = shadow.select(part, itemsize)
        if shadow.stored is not None:
            self._check(shadow, where, shadow.stored, "loads what {other} stores")
        readers = shadow.track("loaded")
        before = readers[where]
        if not before.any():
            readers[where] = self.program
        else:
            mine = (before == _NOBODY) | (before == self.program)
            readers[where] = np.where(mine, self.program, _SEVERAL)

    def store(
        self, part: Touched, itemsize: int, current: Callable[[], np.ndarray], values: np.ndarray
    ) -> None:
        """A store conflicts with other programs' loads, unequal stores and float atomics.

        ``current`` reads what memory holds now; it is asked for only where stores overlap.
        """
        region = part.region
        self._stored.add(region)
        if region in self._conflicts:
            return
        shadow = self._shadow(region)
        where = shadow.select(part, itemsize)
        if shadow.loaded is not None:
            self._check(shadow, where, shadow.loaded, "stores what {other} loads")
        if shadow.accumulated is not None:
            self._check(shadow, where, shadow.accumulated, "stores what {other} accumulates atomically")
        writers = shadow.track("stored")
        before = writers[where]
        if before.any() and (overlap := self._others(before)).any():
            self._agreed.add(region)
            differs = np.repeat(_differ(current(), values), itemsize // shadow.granule)
            self._report(
                shadow, where, before, overlap & differs, "stores, with another value, what {other} stores"
            )
        writers[where] = self.program

    def atomic(self, part: Touched, itemsize: int, accumulates: bool) -> None:
        """Atomics are exempt, but a float accumulation needs a start that nobody stores meanwhile."""
        region = part.region
        self._atomic.add(region)
        if not accumulates or region in self._conflicts:
            return
        shadow = self._shadow(region)
        where = shadow.select(part, itemsize)
        if shadow.stored is not None:
            self._check(shadow, where, shadow.stored, "accumulates atomically what {other} stores")
        adders = shadow.track("accumulated")
        before = adders[where]
        mine = (before == _NOBODY) | (before == self.program)
        adders[where] = np.where(mine, self.program, _SEVERAL)

    def stored_arguments(self) -> set[str]:
        return {region.name for region in self._stored | self._atomic}

    def finish(self) -> None:
        """Judge the launch: the first conflict is a fault unless atomics elsewhere may have ordered it."""
        for region in self._agreed - self._conflicts.keys():
            self.session.note(
                f"kernel {self.kernel}: programs store equal values to the same elements of {region.name!r}"
            )
        for region, text in self._conflicts.items():
            if self._atomic - {region}:
                self.session.note(f"{text}; atomics on another buffer may order the programs: not judged")
            else:
                raise KernelFault("race", text)

    def _shadow(self, region: Region) -> Shadow:
        shadow = self._shadows.get(region)
        if shadow is None:
            shadow = self._shadows[region] = Shadow(region)
        return shadow

    def _others(self, programs: np.ndarray) -> np.ndarray:
        return (programs != _NOBODY) & (programs != self.program)

    def _check(self, shadow: Shadow, where: Selection, programs: np.ndarray, verb: str) -> None:
        found = programs[where]
        if found.any():
            self._report(shadow, where, found, self._others(found), verb)

    def _report(
        self, shadow: Shadow, where: Selection, found: np.ndarray, guilty: np.ndarray, verb: str
    ) -> None:
        """Keep the first guilty element as the region's conflict."""
        region = shadow.region
        if region in self._conflicts or not guilty.any():
            return
        position = int(np.argmax(guilty))
        element = int(where.start + position if isinstance(where, slice) else where[position])
        origin = next(iter(region.arguments.values()))
        offset = (region.start + element * shadow.granule - origin) // region.itemsize
        culprit = int(found[position])
        other = "several other programs" if culprit == _SEVERAL else f"program {self._coordinates(culprit)}"
        self._conflicts[region] = (
            f"kernel {self.kernel}: program {self._coordinates(self.program)} "
            f"{verb.format(other=other)}: argument {region.name!r}, element offset {offset}"
        )

    def _coordinates(self, program: int) -> tuple[int, ...]:
        x, rest = divmod(program - 1, self.grid[1] * self.grid[2])
        return (x, *divmod(rest, self.grid[2]))


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Unequal as memory: NaN equals itself, and 0.0 is not -0.0."""
    bits = np.dtype(f"u{a.itemsize}")
    return np.ascontiguousarray(a).ravel().view(bits) != np.ascontiguousarray(b).ravel().view(bits)
