"""An electric fence around every tensor of a candidate's process, at full size and for the real grid.

PyTorch's caching allocator hands out pieces of large blocks: a kernel that reads or writes a little past its
tensor stays inside memory of its own process, and nothing happens. Here every tensor has a mapping of its
own, with addresses on both sides that are reserved and never mapped. In one arrangement a tensor *ends*
where its mapping ends, in the other it *starts* where its mapping starts: one element past the end, or
before the start, is an illegal access, which the GPU itself reports.

A tensor begins on 16 bytes, as Triton and the libraries expect. Where its size is no multiple of 16, up to 15
bytes lie between its end and the end of the mapping. They are filled with 0xFF (NaN where they are read),
and whether they still are is looked at when the tensor is freed.

The allocator is installed through PyTorch's interface for custom ones before the process touches the GPU. Its
two functions are callbacks of :mod:`ctypes` on the driver's virtual memory calls. PyTorch calls them with the
GIL or without; a callback takes it, and PyTorch holds no lock of its own meanwhile. What is freed stays
mapped until :meth:`Fence.sweep`, because kernels that use it may still be under way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

ALIGNMENT = 16
CANARY = 0xFF
OUT_OF_MEMORY = 2
_PINNED, _ON_DEVICE, _READ_WRITE, _RELAXED = 1, 1, 3, 2
"""Of the driver: kind of allocation, of place, of access, and the mode of capture that lets one allocate."""


class Arrangement(StrEnum):
    """Which end of a tensor lies at an end of its mapping."""

    END = "end"
    START = "start"


@dataclass(frozen=True)
class Place:
    """Where a tensor of some size lies within a mapping of its own."""

    mapped: int
    offset: int
    slack: int
    """Bytes between the tensor's end and the unmapped range; 0 where that is not its neighbour."""


def placed(size: int, granularity: int, arrangement: Arrangement) -> Place:
    """The smallest mapping that holds ``size`` bytes, and where in it they lie."""
    if size <= 0:
        raise ValueError("nothing to place")
    held = -(-size // ALIGNMENT) * ALIGNMENT
    mapped = -(-held // granularity) * granularity
    if arrangement is Arrangement.START:
        return Place(mapped, 0, 0)
    return Place(mapped, mapped - held, held - size)


class DriverError(RuntimeError):
    """A call of the driver failed."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} failed with {code}")
        self.code = code


class _Location(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("device", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("security", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("rights", ctypes.c_int))


_U64, _SIZE = ctypes.c_uint64, ctypes.c_size_t
_POINTER = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuMemGetAllocationGranularity": (_POINTER, _POINTER, ctypes.c_int),
    "cuMemAddressReserve": (_POINTER, _SIZE, _SIZE, _U64, _U64),
    "cuMemCreate": (_POINTER, _SIZE, _POINTER, _U64),
    "cuMemMap": (_U64, _SIZE, _SIZE, _U64, _U64),
    "cuMemSetAccess": (_U64, _SIZE, _POINTER, _SIZE),
    "cuMemUnmap": (_U64, _SIZE),
    "cuMemRelease": (_U64,),
    "cuMemAddressFree": (_U64, _SIZE),
    "cuMemsetD8_v2": (_U64, ctypes.c_ubyte, _SIZE),
    "cuMemcpyDtoH_v2": (_POINTER, _U64, _SIZE),
    "cuCtxSynchronize": (),
    "cuThreadExchangeStreamCaptureMode": (_POINTER,),
}


class Driver:
    """The few calls of the CUDA driver that are needed; each raises :class:`DriverError` where it fails."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        self._calls: dict[str, Callable[..., int]] = {}
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, ctypes.c_int
            self._calls[name] = function

    def call(self, name: str, *arguments: Any) -> None:
        code = self._calls[name](*arguments)
        if code != 0:
            raise DriverError(name, code)


@dataclass(frozen=True)
class _Block:
    """One tensor's memory: reserved addresses, the mapping in their middle, the tensor within that."""

    reserved: int
    span: int
    base: int
    handle: int
    size: int
    place: Place

    @property
    def pointer(self) -> int:
        return self.base + self.place.offset


def raised(device: torch.device) -> tuple[Fence | None, str]:
    """A fence around all that this process will allocate, or the reason why there is none."""
    try:
        fence = Fence(device.index or 0)
        fence.install()
    except (OSError, AttributeError, RuntimeError) as error:
        return None, f"{type(error).__name__}: {error}"
    return fence, ""


class Fence:
    """An allocator for one device. There is at most one in a process, and it lasts as long as that."""

    def __init__(self, device: int, driver: Driver | None = None) -> None:
        self.arrangement = Arrangement.END
        self.failed = ""
        """Why memory was not handed out, where it was not: PyTorch then holds a pointer to nothing."""
        self.damaged: list[str] = []
        """Tensors behind whose end something was written."""
        self._device = device
        self._driver = driver or Driver()
        self._blocks: dict[int, _Block] = {}
        self._freed: list[_Block] = []
        self._granularity = 0
        location = _Location(_ON_DEVICE, device)
        self._properties = _Properties(kind=_PINNED, location=location)
        self._access = _Access(location, _READ_WRITE)
        self._callbacks = (
            ctypes.CFUNCTYPE(_POINTER, ctypes.c_ssize_t, ctypes.c_int, _POINTER)(self._on_allocate),
            ctypes.CFUNCTYPE(None, _POINTER, ctypes.c_ssize_t, ctypes.c_int, _POINTER)(self._on_free),
        )

    def install(self) -> None:
        """Make it PyTorch's allocator; raises ``RuntimeError`` where the GPU was used before."""
        pointers = [ctypes.cast(callback, _POINTER).value or 0 for callback in self._callbacks]
        torch._C._cuda_changeCurrentAllocator(torch._C._cuda_customAllocator(*pointers))

    def _on_allocate(self, size: int, device: int, stream: int | None) -> int | None:
        """For PyTorch. No exception may leave it, so a failure is noted and nothing is handed out."""
        if size <= 0:
            return None
        try:
            try:
                return self.allocate(size)
            except DriverError as error:
                if error.code != OUT_OF_MEMORY or not self._freed:
                    raise
            self.sweep()
            return self.allocate(size)
        except BaseException as error:
            self.failed = self.failed or f"{size} bytes could not be had: {error}"
            return None

    def _on_free(self, pointer: int | None, size: int, device: int, stream: int | None) -> None:
        block = self._blocks.pop(pointer or 0, None)
        if block is not None:
            self._freed.append(block)

    def allocate(self, size: int) -> int:
        """Address of ``size`` bytes of their own, in the present arrangement."""
        mode = ctypes.c_int(_RELAXED)
        self._driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            block = self._mapped(size)
            if block.place.slack:
                self._driver.call("cuMemsetD8_v2", block.pointer + size, CANARY, block.place.slack)
        finally:
            self._driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        self._blocks[block.pointer] = block
        return block.pointer

    def _mapped(self, size: int) -> _Block:
        call = self._driver.call
        if not self._granularity:
            granularity = _SIZE()
            call(
                "cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(self._properties), 0
            )
            self._granularity = granularity.value
        place = placed(size, self._granularity, self.arrangement)
        reserved, handle = _U64(), _U64()
        span = place.mapped + 2 * self._granularity
        call("cuMemCreate", ctypes.byref(handle), place.mapped, ctypes.byref(self._properties), 0)
        call("cuMemAddressReserve", ctypes.byref(reserved), span, 0, 0, 0)
        base = reserved.value + self._granularity
        call("cuMemMap", base, place.mapped, 0, handle.value, 0)
        call("cuMemSetAccess", base, place.mapped, ctypes.byref(self._access), 1)
        return _Block(reserved.value, span, base, handle.value, size, place)

    def sweep(self) -> None:
        """Wait for the GPU, look at the canaries of all tensors, and give back what was freed."""
        self._driver.call("cuCtxSynchronize")
        for block in (*self._blocks.values(), *self._freed):
            self._look_at(block)
        while self._freed:
            block = self._freed.pop()
            self._driver.call("cuMemUnmap", block.base, block.place.mapped)
            self._driver.call("cuMemRelease", block.handle)
            self._driver.call("cuMemAddressFree", block.reserved, block.span)

    def _look_at(self, block: _Block) -> None:
        if not block.place.slack or len(self.damaged) >= 8:
            return
        found = (ctypes.c_ubyte * block.place.slack)()
        self._driver.call(
            "cuMemcpyDtoH_v2", ctypes.byref(found), block.pointer + block.size, block.place.slack
        )
        if any(byte != CANARY for byte in found):
            place = f"behind the end of a tensor of {block.size} bytes"
            if place not in self.damaged:
                self.damaged.append(place)
