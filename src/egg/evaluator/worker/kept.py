"""Tensors that a candidate keeps between calls, and whether its answers follow from what they hold.

A kernel may compare its inputs with a copy of them from the last call, and leave the answer of that call
where it lies: the same kernels are launched, and no value comes to the host. So the judge notes what every
kept tensor holds behind one call, and which elements another call changed: those follow from the inputs. Each
such tensor alone then gets back what it held before, and the second call is repeated. Work space is
overwritten by it, and weights that were packed, tables and zeros around an input were never changed.

What lies in one tensor with a copy of the inputs is found where only the rest of it is put back; with another
key it is not found so. In the interpreter loads are watched besides (:mod:`egg.evaluator.interpreter.left`):
two calls on different inputs start from the same contents of everything that is kept, and bytes that they
leave different follow from the inputs. A counter of calls is the same behind both.

Tensors are found where Python's collector keeps them, wherever a file put them: on its module, in a global, a
closure, a dictionary. Values are put back that the tensor held before, so that an index stays one.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

KINDS = (torch.Tensor, nn.Parameter, nn.Buffer)
MOST_BYTES = 256 << 20
"""Of one tensor's memory that is noted."""
WORD = 4
LEAST_COPIED = 4
"""Words that are among the inputs' by more than chance."""


@dataclass
class Kept:
    """What kept tensors held behind one call, by the address of their memory."""

    noted: dict[int, torch.Tensor] = field(default_factory=dict)
    other: dict[int, torch.Tensor] = field(default_factory=dict)
    """What they held behind the next call, on other inputs."""
    changed: list[tuple[int, int]] = field(default_factory=list)
    """Memory that holds something else, and where that was noted which it stands for."""

    def note(self, spared: Collection[int]) -> None:
        """Note what is held now; ``spared`` are addresses of memory that the judge owns or compares."""
        self.noted, self.other = {at: held.clone() for at, held in _memories(spared)}, {}

    def compare(self, spared: Collection[int]) -> int:
        """How many of them hold something else by now.

        A tensor that is new stands for one of its size that has gone: a file may keep what it made last.
        """
        self.other = {at: held.clone() for at, held in _memories(spared)}
        gone = {at: held for at, held in self.noted.items() if at not in self.other}
        pairs: list[tuple[int, int]] = []
        for at, held in self.other.items():
            place = (
                at if at in self.noted else next((p for p, was in gone.items() if _alike(held, was)), None)
            )
            if place is not None and _alike(held, self.noted[place]):
                gone.pop(place, None)
                pairs.append((at, place))
        self.changed = [(at, p) for at, p in pairs if bool((self.other[at] != self.noted[p]).any())]
        return len(self.changed)

    @property
    def new(self) -> int:
        """How many came between the two calls."""
        return len(self.other.keys() - self.noted.keys())

    def put_back(self, number: int, spared: Collection[int], inputs: Sequence[torch.Tensor] = ()) -> None:
        """The elements of one of them that had changed, as they were.

        Those that are among the values of ``inputs`` stay: a copy of them may be the key by which the others
        are found. Without such a copy nothing is put back beside it.
        """
        at, place = self.changed[number]
        held, noted = dict(_memories(spared)).get(at), self.noted[place]
        if held is None or not _alike(held, noted):
            return
        if not inputs:
            held.copy_(noted)
            return
        now, before = _words(held), _words(noted)
        keys = torch.isin(now, torch.cat([_words(tensor) for tensor in inputs]))
        if int((keys & (now != before)).sum()) >= LEAST_COPIED:
            now.copy_(torch.where(keys, now, before))

    def rewind(self, spared: Collection[int]) -> None:
        """All of them as they were noted."""
        for at, held in _memories(spared):
            if at in self.noted and _alike(held, self.noted[at]):
                held.copy_(self.noted[at])

    def left(self, spared: Collection[int]) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """All memory that is kept now, and which bytes of it follow from inputs.

        Those are other ones than behind the call on other inputs, and all of a tensor that was not there.
        """
        found = {}
        for at, held in _memories(spared):
            other = self.other.get(at)
            known = other is not None and _alike(held, other)
            found[at] = (held, held != other if known else torch.ones_like(held, dtype=torch.bool))
        return found

    def copies(self) -> Iterator[torch.Tensor]:
        """Memory of this value's own."""
        yield from self.noted.values()
        yield from self.other.values()


def _memories(spared: Collection[int]) -> Iterator[tuple[int, torch.Tensor]]:
    """Every memory behind a live tensor, once, as a row of bytes."""
    seen = set(spared)
    for found in gc.get_objects():
        if type(found) not in KINDS or found.layout is not torch.strided or found.device.type == "meta":
            continue
        storage = found.untyped_storage()
        at, size = storage.data_ptr(), storage.nbytes()
        if at and at not in seen and size <= MOST_BYTES:
            seen.add(at)
            raw: Any = torch.empty(0, dtype=torch.uint8, device=found.device)
            yield at, raw.set_(storage, 0, (size,))


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor in a row, in words of four bytes; of one in a row in the same memory."""
    row = tensor.contiguous().view(-1).view(torch.uint8)
    return row[: row.numel() // WORD * WORD].view(torch.int32)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.device == other.device
