"""Loads of what an earlier call left behind.

A candidate may keep work space, and stores to it in a call before it loads from it there. One that remembers
loads first: a copy of its last inputs, a hash of them, the answer. So bytes of kept memory that follow from
the inputs of an earlier call are marked. A store takes the mark away, and a load of a byte that still has it
is what a file that computes everything in each call never makes. How the file keeps and compares things does
not matter: in one tensor or several, for one earlier call or many, by values or by a hash of them.

It need not even keep a tensor: a GPU's allocator hands out the memory that the last call gave back, with what
that left there. So memory that a call takes and has not written is marked too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import torch

from egg.evaluator.interpreter.memory import Touched
from egg.evaluator.interpreter.session import Session

FOLLOWS = "what an earlier call left there, which follows from its inputs"
UNWRITTEN = "before anything is stored there: on a GPU new memory holds what an earlier call left"
Marked = tuple[torch.Tensor, torch.Tensor]
"""The memory of one storage in bytes, and for each byte whether it was left by an earlier call."""


class Left:
    """Marked bytes by the address of their memory, and the first load of one of them meanwhile."""

    def __init__(self, marked: Mapping[int, Marked], session: Session) -> None:
        self._session = session
        self._memory = [memory for memory, _ in marked.values()]
        """Held, so that no address is given to another tensor meanwhile."""
        self._marks = {at: marks.numpy() for at, (_, marks) in marked.items()}
        self._fresh: set[int] = set()
        self.found = ""

    def __enter__(self) -> Left:
        self._session.left = self
        return self

    def __exit__(self, *error: object) -> None:
        self._session.left = None

    def fresh(self, tensor: torch.Tensor) -> None:
        """Elements of memory that was just taken; with what lies between them, where it begins there."""
        storage = tensor.untyped_storage()
        at, before = storage.data_ptr(), self._marks.get(storage.data_ptr())
        if before is None:
            self._fresh.add(at)
        if before is None or len(before) < storage.nbytes():
            known = np.zeros(0, dtype=bool) if before is None else before
            self._marks[at] = np.pad(known, (0, storage.nbytes() - len(known)))
            self._memory.append(tensor.detach())
        if tensor.storage_offset() == 0:
            self._marks[at][...] = True
            return
        marks = self._of(tensor)
        if marks is not None:
            marks[...] = True

    def touch(self, kernel: str, parts: Iterable[Touched], itemsize: int, action: str) -> None:
        """A ``load``, ``store`` or ``atomic`` of a kernel; an atomic does both."""
        for part in parts:
            marks = self._marks.get(part.region.real)
            if marks is None:
                continue
            first = (part.addresses.ravel() - np.uint64(part.region.start)).astype(np.int64)
            where = first[:, None] + np.arange(itemsize)
            if action != "store" and not self.found and marks[where].any():
                what = UNWRITTEN if part.region.real in self._fresh else FOLLOWS
                self.found = f"kernel {kernel} loads from {part.region.name!r} {what}"
            if action != "load":
                marks[where] = False

    def read(self, operator: str, tensor: torch.Tensor, *, written: bool = False) -> None:
        """By an operator of PyTorch. One that writes a part of new memory makes nothing of the rest."""
        fresh = tensor.untyped_storage().data_ptr() in self._fresh
        marks = self._of(tensor)
        if marks is not None and not self.found and not (fresh and written) and marks.any():
            self.found = f"operator {operator} reads {UNWRITTEN if fresh else FOLLOWS}"

    def asks(self, tensor: torch.Tensor) -> bool:
        """Whether it matters which elements an operator writes."""
        marks = self._of(tensor)
        return marks is not None and bool(marks.any())

    def write(self, tensor: torch.Tensor, covered: torch.Tensor | None = None) -> None:
        """By an operator of PyTorch; ``covered``: the elements, where it is not all of them."""
        marks = self._of(tensor)
        if marks is not None:
            marks[... if covered is None else covered.numpy()] = False

    def _of(self, tensor: torch.Tensor) -> np.ndarray | None:
        """The marks of the elements that a tensor looks at."""
        marks = self._marks.get(tensor.untyped_storage().data_ptr())
        if marks is None or not tensor.numel():
            return None
        size = tensor.element_size()
        steps = (*(stride * size for stride in tensor.stride()), 1)
        first = marks[tensor.storage_offset() * size :]
        return np.lib.stride_tricks.as_strided(first, (*tensor.shape, size), steps)
