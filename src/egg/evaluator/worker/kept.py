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
closure, a dictionary. Values are put back that the tensor held before, so that an index stays one. Of memory
in which a weight lies only the weight's own elements are spared: a file may lay it into a larger storage.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True)
class Spared:
    """What is not looked at: the judge's own memory, by address, and weights, which it compares."""

    addresses: frozenset[int]
    weights: tuple[torch.Tensor, ...] = ()


@dataclass(frozen=True)
class Memory:
    """One storage as a row of bytes, and which of them are looked at; ``None``: all."""

    row: torch.Tensor
    free: torch.Tensor | None = None

    def copy(self) -> torch.Tensor:
        """With zeros for what is spared."""
        return self.row.clone() if self.free is None else self.row * self.free

    def write(self, values: torch.Tensor) -> None:
        self.row.copy_(values if self.free is None else torch.where(self.free, values, self.row))


@dataclass
class Kept:
    """What kept tensors held behind one call, by the address of their memory."""

    noted: dict[int, torch.Tensor] = field(default_factory=dict)
    other: dict[int, torch.Tensor] = field(default_factory=dict)
    """What they held behind the next call, on other inputs."""
    changed: list[tuple[int, int]] = field(default_factory=list)
    """Memory that holds something else, and where that was noted which it stands for."""
    rewound: bool = False
    """Whether they got back what was noted since."""

    def note(self, spared: Spared) -> None:
        """Note what is held now."""
        self.noted, self.other = {at: held.copy() for at, held in _memories(spared)}, {}
        self.rewound = False

    def compare(self, spared: Spared) -> int:
        """How many of them hold something else by now.

        A tensor that is new stands for one of its size that has gone: a file may keep what it made last.
        """
        self.other = {at: held.copy() for at, held in _memories(spared)}
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

    def put_back(self, number: int, spared: Spared, inputs: Sequence[torch.Tensor] = ()) -> None:
        """The elements of one of them that had changed, as they were.

        Those that are among the values of ``inputs`` stay: a copy of them may be the key by which the others
        are found. Without such a copy nothing is put back beside it.
        """
        at, place = self.changed[number]
        held, noted = dict(_memories(spared)).get(at), self.noted[place]
        if held is None or not _alike(held.row, noted):
            return
        if not inputs:
            held.write(noted)
            return
        wanted = held.copy()
        now, before = _words(wanted), _words(noted)
        keys = torch.isin(now, torch.cat([_words(tensor) for tensor in inputs]))
        if int((keys & (now != before)).sum()) >= LEAST_COPIED:
            now.copy_(torch.where(keys, now, before))
            held.write(wanted)

    def rewind(self, spared: Spared) -> None:
        """All of them as they were noted."""
        self.rewound = True
        for at, held in _memories(spared):
            if at in self.noted and _alike(held.row, self.noted[at]):
                held.write(self.noted[at])

    def left(self, spared: Spared) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """All memory that is kept now, and which bytes of it follow from inputs.

        Those are other ones than behind the call on other inputs, and all of a tensor that was not there.
        Where nothing was rewound a counter of calls is another one too: it grew alike in each of them.
        """
        found = {}
        for at, held in _memories(spared):
            other, row = self.other.get(at), held.row
            marks = torch.ones_like(row, dtype=torch.bool)
            if other is not None and _alike(row, other):
                marks = row != other
                if not self.rewound and at in self.noted and _alike(row, self.noted[at]):
                    marks = marks & ~_counters(self.noted[at], other, row)
            found[at] = (row, marks if held.free is None else marks & held.free)
        return found

    def copies(self) -> Iterator[torch.Tensor]:
        """Memory of this value's own."""
        yield from self.noted.values()
        yield from self.other.values()


def _memories(spared: Spared) -> Iterator[tuple[int, Memory]]:
    """Every memory behind a live tensor, once, by its address."""
    seen, weights = set(spared.addresses), _by_storage(spared.weights)
    for found in gc.get_objects():
        if type(found) not in KINDS or found.layout is not torch.strided or found.device.type == "meta":
            continue
        storage = found.untyped_storage()
        at, size = storage.data_ptr(), storage.nbytes()
        if not at or at in seen or size > MOST_BYTES:
            continue
        seen.add(at)
        raw: Any = torch.empty(0, dtype=torch.uint8, device=found.device)
        row, own = raw.set_(storage, 0, (size,)), weights.get(at, [])
        if not any(weight.is_contiguous() and weight.nbytes == size for weight in own):
            yield at, Memory(row, _beside(row, own) if own else None)


def _by_storage(weights: Sequence[torch.Tensor]) -> dict[int, list[torch.Tensor]]:
    found: dict[int, list[torch.Tensor]] = {}
    for weight in weights:
        found.setdefault(weight.untyped_storage().data_ptr(), []).append(weight)
    return found


def _beside(row: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
    """Of each byte of a storage, whether no element of ``weights`` lies there."""
    free = torch.ones_like(row, dtype=torch.bool)
    for weight in weights:
        size = weight.element_size()
        steps = (*(stride * size for stride in weight.stride()), 1)
        torch.as_strided(free, (*weight.shape, size), steps, weight.storage_offset() * size).fill_(False)
    return free


def _counters(first: torch.Tensor, second: torch.Tensor, third: torch.Tensor) -> torch.Tensor:
    """Of each byte, whether it belongs to a word that grew by the same number twice."""
    one, two, three = map(_words, (first, second, third))
    grown = ((two - one) == (three - two)).repeat_interleave(WORD)
    return torch.nn.functional.pad(grown, (0, first.numel() - grown.numel()))


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor in a row, in words of four bytes; of one in a row in the same memory."""
    row = tensor.contiguous().view(-1).view(torch.uint8)
    return row[: row.numel() // WORD * WORD].view(torch.int32)


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and one.device == other.device
