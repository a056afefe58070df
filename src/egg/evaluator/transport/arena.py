"""Memory that the oracle owns and a candidate can see: inputs, weights and outputs travel here.

On a CPU it is an anonymous file (``memfd``) mapped by both processes; on a GPU one
allocation of its own, opened by the other process through CUDA IPC. It is never carved out
of PyTorch's caching allocator: an IPC handle shares a whole allocation, and the expected
outputs could lie in the same one.

Each :class:`Slot` becomes a tensor with a storage of its own, so that a bounds check sees
the tensor's true extent and not the whole arena.
"""

from __future__ import annotations

import base64
import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch

from egg.evaluator.transport.slots import Slot
from egg.evaluator.transport.together import Group

ALIGNMENT = 512
OUT_OF_MEMORY = 2
"""As the driver says it."""
_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 1033, 1, 2, 4


def extent(shape: Iterable[int], stride: Iterable[int], itemsize: int) -> int:
    """Bytes from the first to the last element of a strided tensor."""
    sizes = tuple(shape)
    if 0 in sizes:
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(sizes, stride, strict=True))) * itemsize


def size_of(tensor: torch.Tensor) -> int:
    """Bytes that exist: an expanded tensor repeats, and does not hold, its elements."""
    return extent(tensor.shape, tensor.stride(), tensor.element_size())


class Layout:
    """Hands out slots one behind the other; tells how large the arena must be."""

    def __init__(self) -> None:
        self.size = 0

    def place(self, tensor: torch.Tensor) -> Slot:
        nbytes = size_of(tensor)
        dtype = str(tensor.dtype).removeprefix("torch.")
        slot = Slot(
            self.size, nbytes, tuple(tensor.shape), tuple(tensor.stride()), dtype, learns=tensor.requires_grad
        )
        self.size += -(-max(nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return slot

    def place_group(self, group: Group, tensors: Sequence[torch.Tensor]) -> dict[int, Slot]:
        """Parts of one storage, as far from one another as they are there."""
        dtype = tensors[group.members[0]].dtype
        region = self.place(torch.empty(group.size, dtype=dtype, device="meta"))
        found = {}
        for at, lead in zip(group.members, group.leads, strict=True):
            shape, stride = tuple(tensors[at].shape), tuple(tensors[at].stride())
            learns = tensors[at].requires_grad
            found[at] = replace(region, shape=shape, stride=stride, lead=lead, learns=learns)
        return found


class Arena(Protocol):
    """Bytes seen by two processes."""

    def view(self, slot: Slot) -> torch.Tensor: ...
    def handle(self) -> dict[str, Any]: ...
    def fds(self) -> tuple[int, ...]: ...
    def close(self) -> None: ...


def create(size: int, device: torch.device) -> Arena:
    size = max(size, ALIGNMENT)
    return CudaArena.create(size, device) if device.type == "cuda" else HostArena.create(size)


def attach(handle: dict[str, Any], fds: list[int]) -> Arena:
    if handle["kind"] == "cuda":
        return CudaArena.attach(handle)
    return HostArena(fds[0], int(handle["size"]))


def poison(tensor: torch.Tensor) -> None:
    """Fill with what no honest result contains: NaN, or the most negative integer."""
    if tensor.is_floating_point() or tensor.is_complex():
        tensor.fill_(float("nan"))
    elif tensor.dtype is torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


def _shaped(raw: torch.Tensor, slot: Slot) -> torch.Tensor:
    return raw.view(getattr(torch, slot.dtype)).as_strided(slot.shape, slot.stride, slot.lead)


class HostArena:
    """An anonymous file in memory; nothing is left behind when both ends close it.

    Its size is sealed: a candidate that could truncate it would kill the oracle by SIGBUS.
    """

    def __init__(self, fd: int, size: int) -> None:
        self._fd = fd
        self._size = size
        self._map = mmap.mmap(fd, size)

    @classmethod
    def create(cls, size: int) -> HostArena:
        fd = os.memfd_create("egg-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, _ADD_SEALS, _SEAL_SEAL | _SEAL_SHRINK | _SEAL_GROW)
        return cls(fd, size)

    def view(self, slot: Slot) -> torch.Tensor:
        if slot.nbytes == 0:
            return torch.empty(slot.shape, dtype=getattr(torch, slot.dtype))
        raw = torch.frombuffer(self._map, dtype=torch.uint8, count=slot.nbytes, offset=slot.offset)
        return _shaped(raw, slot)

    def handle(self) -> dict[str, Any]:
        return {"kind": "host", "size": self._size}

    def fds(self) -> tuple[int, ...]:
        return (self._fd,)

    def close(self) -> None:
        os.close(self._fd)


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_byte * 64),)


class _DeviceBytes:
    """Raw device memory in the form PyTorch adopts without a copy."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (pointer, False), "version": 3,
        }  # fmt: skip


def device_view(pointer: int, slot: Slot, device: torch.device) -> torch.Tensor:
    """Device memory at ``pointer`` as a tensor laid out like ``slot``, with a storage of its own."""
    return _shaped(torch.as_tensor(_DeviceBytes(pointer, slot.nbytes), device=device), slot)


class CudaArena:
    """One device allocation, shared by CUDA IPC through the driver."""

    def __init__(self, pointer: int, size: int, device: torch.device, owner: bool) -> None:
        self._pointer, self._size, self._device, self._owner = pointer, size, device, owner

    @classmethod
    def create(cls, size: int, device: torch.device) -> CudaArena:
        _context(device)
        pointer = ctypes.c_uint64()
        code = _driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        if code != 0:
            raise torch.OutOfMemoryError(f"out of memory: cuMemAlloc of {size} bytes failed with {code}")
        return cls(pointer.value, size, device, owner=True)

    @classmethod
    def attach(cls, handle: dict[str, Any]) -> CudaArena:
        device = torch.device("cuda", int(handle["device"]))
        _context(device)
        ipc = _IpcHandle.from_buffer_copy(base64.b64decode(handle["ipc"]))
        pointer = ctypes.c_uint64()
        open_handle = _driver().cuIpcOpenMemHandle_v2
        open_handle.argtypes = [ctypes.c_void_p, _IpcHandle, ctypes.c_uint]
        code = open_handle(ctypes.byref(pointer), ipc, 1)
        if code != 0:
            why = "out of memory: " if code == OUT_OF_MEMORY else ""
            raise RuntimeError(f"{why}cuIpcOpenMemHandle failed with {code}")
        return cls(pointer.value, int(handle["size"]), device, owner=False)

    def view(self, slot: Slot) -> torch.Tensor:
        if slot.nbytes == 0:
            return torch.empty(slot.shape, dtype=getattr(torch, slot.dtype), device=self._device)
        return device_view(self._pointer + slot.offset, slot, self._device)

    def handle(self) -> dict[str, Any]:
        ipc = _IpcHandle()
        code = _driver().cuIpcGetMemHandle(ctypes.byref(ipc), ctypes.c_uint64(self._pointer))
        if code != 0:
            raise RuntimeError(f"cuIpcGetMemHandle failed with {code}")
        encoded = base64.b64encode(bytes(ipc)).decode()
        return {"kind": "cuda", "device": self._device.index or 0, "size": self._size, "ipc": encoded}

    def fds(self) -> tuple[int, ...]:
        return ()

    def close(self) -> None:
        torch.cuda.synchronize(self._device)
        driver = _driver()
        free = driver.cuMemFree_v2 if self._owner else driver.cuIpcCloseMemHandle
        free(ctypes.c_uint64(self._pointer))


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _context(device: torch.device) -> None:
    """Make PyTorch's context on ``device`` the current one of this thread."""
    torch.cuda.set_device(device)
    torch.zeros(1, device=device)
