"""Bounds: every tensor argument lives at an address of its own that no other tensor is near.

A kernel never sees a real pointer. Each storage that reaches a launch is mapped to the
middle of its own 4 TiB slot of a virtual address space, and each access is translated back
just before it happens. An address outside its slot's storage is a fault however far it is,
on either side, and the slot says which argument it was computed from; in real memory the
same access would silently read a neighbour or kill the process.

A pointer that becomes an integer shows another address, drawn for the launch: the slots are nowhere that a
GPU's memory could be. Made into a pointer again it is the one that it was.

The valid range is the whole storage, not the argument's view: a kernel may walk from a view
to its neighbours by strides, and that is legitimate.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from egg.evaluator.interpreter.fault import KernelFault
from egg.evaluator.interpreter.session import Session
from egg.evaluator.interpreter.undefined import drawn_address
from egg.evaluator.tensors import hosts

_SLOT_BITS = 42
_SPACE = 1 << 60
_MIDDLE = 1 << (_SLOT_BITS - 1)
_ALIGNMENT_MASK = 0xFFFF
_SPIN_LIMIT = 20_000
_NEAR = 1 << 20
"""Bytes around a storage whose addresses, as integers, are still of its pointers."""


@dataclass(eq=False)
class Region:
    """One storage: where the kernel believes it is (``start``) and where it really is (``real``)."""

    start: int
    real: int
    nbytes: int
    itemsize: int
    shown: int
    """The address that a kernel finds when it takes the pointer for an integer."""
    arguments: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.start + self.nbytes

    @property
    def delta(self) -> np.uint64:
        """Subtracted (modulo 2**64) from a virtual address it gives the real one."""
        return np.uint64((self.start - self.real) % (1 << 64))

    def offset(self, address: int) -> int:
        """In elements, from the argument that brought the storage first."""
        return (address - next(iter(self.arguments.values()))) // self.itemsize

    @property
    def name(self) -> str:
        return "/".join(self.arguments)


@dataclass(frozen=True)
class Touched:
    """The part of an access that falls into one region, masked-off lanes left out."""

    region: Region
    addresses: np.ndarray
    lanes: np.ndarray | None
    low: int
    high: int


@dataclass(frozen=True)
class VirtualTensor:
    """What Triton is given in place of a tensor: the same type at a virtual address."""

    dtype: Any
    address: int

    def data_ptr(self) -> int:
        return self.address


class AddressSpace:
    """The storages of one launch, and the translation of every access to them."""

    def __init__(self, session: Session, kernel: str) -> None:
        self.session = session
        self.kernel = kernel
        self.program: tuple[int, ...] = (0, 0, 0)
        self.regions: list[Region] = []
        self._by_storage: dict[int, Region] = {}
        self._last_scalar: tuple[str, int] = ("", 0)
        self._repeats = 0
        self._counted: dict[int, Counter[tuple[str, str]]] = {}
        """Of each storage bytes, and distances from the first of an access to its others, by kind of access;
        where that is counted."""
        self.recast = False
        """Whether a pointer became one to another type: only then may lanes be misaligned by themselves."""
        self.looked = False
        """Whether the launch looked at a float's bits."""
        self.reads_bits = False
        """Whether an earlier launch of this kernel did: NaN then has the bits that a GPU gives it."""

    def map(self, tensor: Any, name: str) -> VirtualTensor:
        """Give a tensor argument its address; arguments that share a storage share a region."""
        base = tensor if isinstance(tensor, torch.Tensor) else tensor.base
        if base.device.type != "cpu":
            raise KernelFault(
                "unsupported", f"kernel {self.kernel}: argument {name!r} is on {base.device}, not on the CPU"
            )
        if hosts.on_host(base):
            raise ValueError(
                f"Pointer argument {name!r} cannot be accessed from Triton (cpu tensor?): it is not on "
                "the GPU; make it with device=x.device, or register it as a buffer"
            )
        storage = base.untyped_storage()
        real, nbytes = storage.data_ptr(), storage.nbytes()
        region = self._by_storage.get(real) if nbytes else None
        if region is None:
            slot = _SPACE + ((len(self.regions) + 1) << _SLOT_BITS)
            low = real & _ALIGNMENT_MASK
            region = Region(slot + _MIDDLE + low, real, nbytes, base.element_size(), drawn_address(low))
            self.regions.append(region)
            self._by_storage[real] = region
        region.itemsize = min(region.itemsize, base.element_size())
        region.nbytes = max(region.nbytes, nbytes)
        address = region.start + (base.data_ptr() - real if nbytes else 0)
        region.arguments.setdefault(name, address)
        return VirtualTensor(tensor.dtype, address)

    def translate(
        self, addresses: np.ndarray, mask: np.ndarray | None, itemsize: int, action: str
    ) -> tuple[np.ndarray, list[Touched]]:
        """Real addresses for all lanes, and what the active lanes touch; a fault where they may not.

        Nearly every access stays in one region, so its smallest and largest address decide.
        """
        lanes = None if mask is None or mask.all() else np.broadcast_to(mask, addresses.shape)
        active = addresses if lanes is None else addresses[lanes]
        if active.size == 0:
            return addresses, []
        low, high = int(active.min()), int(active.max())
        self._check_alignment(active, low, itemsize, action)
        self._watch_for_spinning(action, low if low == high else 0)
        region = self._region_at(low)
        if region is not None and region.start <= low and high + itemsize <= region.end:
            real, touched = addresses - region.delta, [Touched(region, active, lanes, low, high)]
        else:
            real, touched = self._translate_scattered(addresses, lanes, itemsize, action)
        if self.session.counting:
            self._count(touched, itemsize, action)
        return real, touched

    def _count(self, touched: list[Touched], itemsize: int, action: str) -> None:
        """Within each storage: how far two of them lie apart is chance."""
        for part in touched:
            counted = self._counted.setdefault(part.region.start, Counter())
            counted["bytes", action] += part.addresses.size * itemsize
            counted["distances", action] += int((part.addresses - np.uint64(part.low)).sum())

    def accesses(self) -> Counter[str]:
        """What was counted of plain stores, and of loads from storages that the launch only reads.

        How often programs look at what other programs write (flags, tickets, sums so far) depends on who
        comes first.
        """
        found: Counter[str] = Counter()
        for counted in self._counted.values():
            only_read = all(action == "load" for _, action in counted)
            for (what, action), count in counted.items():
                if only_read or action == "store":
                    found[f"{what} by {action}"] += count
        return found

    def exposed(self, addresses: np.ndarray) -> np.ndarray:
        """Pointers as integers."""
        shown = addresses.copy()
        for region, here in self._split(addresses, np.ones(addresses.shape, dtype=bool)):
            if region is not None:
                shown[here] += np.uint64((region.shown - region.start) % (1 << 64))
        return shown

    def pointed(self, numbers: np.ndarray) -> np.ndarray:
        """Integers as pointers: into the storage whose shown address is near, or what the host wrote down."""
        addresses = numbers.astype(np.uint64)
        virtual = addresses.copy()
        for region in self.regions:
            low, high = region.shown - _NEAR, region.shown + region.nbytes + _NEAR
            here = (addresses >= np.uint64(low)) & (addresses < np.uint64(high))
            virtual[here] += np.uint64((region.start - region.shown) % (1 << 64))
        return virtual

    def _check_alignment(self, active: np.ndarray, low: int, itemsize: int, action: str) -> None:
        """A GPU stops at an access whose address is no multiple of its size."""
        odd = low % itemsize or (self.recast and (active & np.uint64(itemsize - 1)).any())
        if odd and self.session.check_bounds:
            region = self._region_at(low)
            raise KernelFault(
                "undefined",
                f"kernel {self.kernel}, program {self.program}: {action} of {itemsize} bytes at an address "
                f"that is no multiple of {itemsize}"
                + (f", from argument {region.name!r}" if region is not None else ""),
            )

    def _watch_for_spinning(self, action: str, address: int) -> None:
        """Programs run in turn, so one that polls an element until another changes it would poll for ever."""
        if (action, address) != self._last_scalar or not address:
            self._last_scalar, self._repeats = (action, address), 0
            return
        self._repeats += 1
        if self._repeats > _SPIN_LIMIT and action != "store":
            self.session.waits(
                f"kernel {self.kernel}, program {self.program}: polls one element (the same {action} "
                f"{_SPIN_LIMIT} times) for another program, which is interpreted only after this one"
            )

    def _translate_scattered(
        self, addresses: np.ndarray, lanes: np.ndarray | None, itemsize: int, action: str
    ) -> tuple[np.ndarray, list[Touched]]:
        """The slow way, slot by slot: pointers chosen by ``tl.where``, pointer tables, faults."""
        real = addresses.copy()
        touched: list[Touched] = []
        everywhere = np.ones(addresses.shape, dtype=bool) if lanes is None else lanes
        for region, here in self._split(addresses, everywhere):
            active = addresses[here]
            low, high = int(active.min()), int(active.max())
            if region is None:
                touched.append(self._by_integer(active, here, itemsize, action))
                continue
            if low < region.start or high + itemsize > region.end:
                self._out_of_bounds(region, active, itemsize, action)
                real[here] = active - region.delta
                continue
            real[here] = active - region.delta
            touched.append(Touched(region, active, here, low, high))
        return real, touched

    def _by_integer(self, active: np.ndarray, here: np.ndarray, itemsize: int, action: str) -> Touched:
        """An access through a pointer made of an integer: all of it must lie in one tensor's memory.

        Tables of pointers are made of addresses that the host wrote down. Which memory is whose is
        asked of the process: a tensor that is alive there, or an argument.
        """
        low, high = int(active.min()), int(active.max())
        owner = next((t for t in _tensors_alive() if _holds(t, low)), None)
        if owner is None or not _holds(owner, high + itemsize - 1):
            raise KernelFault(
                "out_of_bounds",
                f"kernel {self.kernel}, program {self.program}: {action} through a pointer made of an "
                f"integer, {'outside every tensor' if owner is None else 'beyond the end of its tensor'}; "
                "pass tensors as arguments, and mask lanes beyond their ends",
            )
        self.map(owner, "a pointer made of an integer")
        region = self._by_storage[owner.untyped_storage().data_ptr()]
        moved = active + region.delta
        return Touched(region, moved, here, low + int(region.delta), high + int(region.delta))

    def _split(self, addresses: np.ndarray, lanes: np.ndarray) -> Iterator[tuple[Region | None, np.ndarray]]:
        virtual = addresses >= np.uint64(_SPACE)
        slots = np.where(virtual, (addresses - np.uint64(_SPACE)) >> np.uint64(_SLOT_BITS), np.uint64(0))
        for slot in np.unique(slots[lanes]):
            here = lanes & (slots == slot)
            known = 1 <= int(slot) <= len(self.regions)
            yield (self.regions[int(slot) - 1] if known else None), here

    def _region_at(self, address: int) -> Region | None:
        slot = (address - _SPACE) >> _SLOT_BITS
        return self.regions[slot - 1] if 1 <= slot <= len(self.regions) else None

    def _out_of_bounds(self, region: Region, active: np.ndarray, itemsize: int, action: str) -> None:
        if not self.session.check_bounds:
            return
        outside = (active < np.uint64(region.start)) | (active > np.uint64(max(region.end - itemsize, 0)))
        first = int(active[outside][0])
        origin = next(iter(region.arguments.values()))
        valid = f"{(region.start - origin) // itemsize} to {(region.end - origin) // itemsize - 1}"
        raise KernelFault(
            "out_of_bounds",
            f"kernel {self.kernel}, program {self.program}: {action} out of bounds of argument "
            f"{region.name!r} at element offset {(first - origin) // itemsize} (valid: {valid}; "
            f"{int(outside.sum())} of {active.size} active lanes are outside); mask these lanes",
        )


def _tensors_alive() -> Iterator[torch.Tensor]:
    for item in gc.get_objects():
        if (
            issubclass(type(item), torch.Tensor)
            and item.device.type == "cpu"
            and item.layout == torch.strided
        ):
            yield item


def _holds(tensor: torch.Tensor, address: int) -> bool:
    storage = tensor.untyped_storage()
    return storage.data_ptr() <= address < storage.data_ptr() + storage.nbytes()
