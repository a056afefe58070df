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

Values are put back that the tensor held before, so that an index stays one. A memory too large to copy is
noted by a digest of every page of it (:mod:`egg.evaluator.worker.memories`): it is not put back, but pages
that two calls leave different are watched as other memory is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from egg.evaluator.worker.memories import PAGE, Memory, Spared, by_page, memories

MOST_COPIED = 256 << 20
"""Bytes of one memory of which a copy is noted."""
MOST_WATCHED = 4 << 30
"""Bytes of one memory of which the loads are watched, by a mark for each."""
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
    pages: dict[int, torch.Tensor] = field(default_factory=dict)
    """Of large memories: the digests of their pages behind the first call."""
    other_pages: dict[int, torch.Tensor] = field(default_factory=dict)
    rewound: bool = False
    """Whether they got back what was noted since."""

    def note(self, spared: Spared) -> None:
        """Note what is held now."""
        self.noted, self.pages = _contents(spared)
        self.other, self.other_pages = {}, {}
        self.rewound = False

    def compare(self, spared: Spared) -> int:
        """How many of them hold something else by now.

        A tensor that is new stands for one of its size that has gone: a file may keep what it made last.
        """
        self.other, self.other_pages = _contents(spared)
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
        """How many came between the two calls, or are large and hold something else."""
        return len(self.other.keys() - self.noted.keys()) + len(self._large())

    @property
    def unwatched(self) -> int:
        """Bytes of the largest memory that holds something else and is too large to be watched."""
        sizes = (self.other_pages[at].numel() * PAGE for at in self._large())
        return max((size for size in sizes if size > MOST_WATCHED), default=0)

    def _large(self) -> list[int]:
        return [at for at, pages in self.other_pages.items() if not _same(pages, self.pages.get(at))]

    def put_back(self, number: int, spared: Spared, inputs: Sequence[torch.Tensor] = ()) -> None:
        """The elements of one of them that had changed, as they were.

        Those that are among the values of ``inputs`` stay: a copy of them may be the key by which the others
        are found. Without such a copy nothing is put back beside it.
        """
        at, place = self.changed[number]
        held, noted = dict(memories(spared)).get(at), self.noted[place]
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
        for at, held in memories(spared):
            if at in self.noted and _alike(held.row, self.noted[at]):
                held.write(self.noted[at])

    def left(self, spared: Spared) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """All memory that is kept now, and which bytes of it follow from inputs.

        Those are other ones than behind the call on other inputs, and all of a tensor that was not there.
        Where nothing was rewound a counter of calls is another one too: it grew alike in each of them.
        """
        watched = ((at, held) for at, held in memories(spared) if held.size <= MOST_WATCHED)
        return {at: (held.row, self._follows(at, held)) for at, held in watched}

    def _follows(self, at: int, held: Memory) -> torch.Tensor:
        """Of each byte of a memory, whether it follows from inputs."""
        row, noted, other, pages = held.row, self.noted.get(at), self.other.get(at), self.other_pages.get(at)
        marks = torch.ones_like(row, dtype=torch.bool)
        if other is not None and _alike(row, other):
            marks = row != other
            if not self.rewound and noted is not None and _alike(row, noted):
                marks = marks & ~_counters(noted, other, row)
        elif pages is not None and len(pages) == -(-held.size // PAGE):
            marks = by_page(held.digests() != pages, held.size)
        return marks if held.free is None else marks & held.free

    def copies(self) -> Iterator[torch.Tensor]:
        """Memory of this value's own."""
        yield from self.noted.values()
        yield from self.other.values()


def _contents(spared: Spared) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor]]:
    """Copies of memories, and of large ones the digests of their pages."""
    copies: dict[int, torch.Tensor] = {}
    pages: dict[int, torch.Tensor] = {}
    for at, held in memories(spared):
        if held.size <= MOST_COPIED:
            copies[at] = held.copy()
        else:
            pages[at] = held.digests()
    return copies, pages


def _same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.equal(one, other)


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
