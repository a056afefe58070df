"""Who touched each element of a storage: arrays beside its memory, each made when it is first needed."""

from __future__ import annotations

import numpy as np

from egg.evaluator.interpreter.lanes import Selection, lane_codes
from egg.evaluator.interpreter.memory import Region, Touched


class Shadow:
    """Per element of a storage: the program (from 1) that last stored or loaded it, looked at it or changed
    it atomically; its lanes; whether the copy engine stored it last."""

    KINDS = ("stored", "loaded", "looked", "accumulated", "storing", "loading", "adding", "looping", "copied")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.granule = region.itemsize
        self.stored: np.ndarray | None = None
        self.loaded: np.ndarray | None = None
        self.looked: np.ndarray | None = None
        self.accumulated: np.ndarray | None = None
        self.storing: np.ndarray | None = None
        self.loading: np.ndarray | None = None
        self.adding: np.ndarray | None = None
        self.looping: np.ndarray | None = None
        self.copied: np.ndarray | None = None

    def track(self, kind: str) -> np.ndarray:
        """The array of one kind, made when first needed (most storages are only ever read)."""
        array = getattr(self, kind)
        if array is None:
            array = np.zeros(-(-self.region.nbytes // self.granule), dtype=np.int64)
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

    def codes(self, part: Touched, itemsize: int) -> np.ndarray:
        """Of each shadow element that an access covers, the lane."""
        codes = lane_codes(part)
        return np.repeat(codes, itemsize // self.granule) if itemsize > self.granule else codes

    def first(self, where: Selection, guilty: np.ndarray) -> int:
        """The element offset of the first guilty element."""
        position = int(np.argmax(guilty))
        element = int(where.start + position if isinstance(where, slice) else where[position])
        return self.region.offset(self.region.start + element * self.granule)

    def _refine(self, granule: int) -> None:
        """Split every element: the storage is also accessed through a narrower type."""
        for kind in self.KINDS:
            array = getattr(self, kind)
            if array is not None:
                setattr(self, kind, np.repeat(array, self.granule // granule))
        self.granule = granule
