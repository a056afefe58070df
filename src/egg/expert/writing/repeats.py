"""Blocks of ``forward`` that repeat become a loop over a table.

The layers of a network are captured one by one, so ``forward`` would spell out every launch of every layer.
Here runs of blocks are found that look alike up to their slots (:mod:`egg.expert.writing.slots`), at least
:data:`FEWEST` times one after the other. What differs from one pass to the next becomes a column of the
table; a value that a pass reads from the pass before is carried in a variable. A run becomes a loop only
where it computes the same by construction:

- a value that a pass reads is made earlier in the same pass, or by the pass before (in the first pass: before
  the loop), or before the loop;
- no later block, and no result, reads a value of any pass but the last;
- every variable is assigned to once in ``forward``, so renaming confuses no two of them.

What the table holds is read before the first pass. That is safe: blocks that assign to ``self`` are never
part of a loop, and in-place operations change what a tensor holds, not which tensor it is.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from egg.expert.emit.names import edited
from egg.expert.emit.words import RESERVED
from egg.expert.writing.columns import Columns
from egg.expert.writing.heading import wrapped
from egg.expert.writing.layout import laid_out
from egg.expert.writing.slots import Block, Kind, Slot, block_of
from egg.expert.writing.tidy import double_quoted

FEWEST = 3
"""Passes from which on there is a loop."""
LEAST_SAVED = 8
"""Lines that a loop has to save."""
MOST_COLUMNS = 6
"""Of a table: a loop with more is harder to read than what it replaces."""
LONGEST_COMMENT = 90


@dataclass(frozen=True)
class Loop:
    """A run of blocks as one, and what variables of its last pass are called from now on."""

    block: Block
    names: dict[str, str]
    saved: int


@dataclass(frozen=True)
class TooMany(Exception):
    """A run cannot be a loop; one of fewer passes may."""

    passes: int


def rolled(
    blocks: Iterable[tuple[str, list[str]]], results: Iterable[str], taken: Iterable[str]
) -> tuple[list[list[str]], dict[str, str]]:
    """The lines of each block or loop, and what results are called after them.

    ``taken`` are names that no variable of a loop may have: of arguments, sizes and functions.
    """
    run = _Run([block_of(comment, "\n".join(lines)) for comment, lines in blocks], results, taken)
    names: dict[str, str] = {}
    while best := run.best():
        start, stop, loop = best
        run.replace(start, stop, loop)
        names |= loop.names
    return [lines_of(block) for block in run.blocks], names


def lines_of(block: Block) -> list[str]:
    return list(_lines(block.comment, block.text))


@lru_cache(maxsize=4096)
def _lines(comment: str, text: str) -> tuple[str, ...]:
    comments = (f"        # {line}" for line in wrapped(comment, LONGEST_COMMENT))
    return (*comments, *laid_out(double_quoted(text), 8))


def _length(block: Block) -> int:
    """Lines of a block, with the blank one after it."""
    return len(_lines(block.comment, block.text)) + 1


class _Run:
    """All blocks of ``forward`` in their order."""

    def __init__(self, blocks: list[Block], results: Iterable[str], taken: Iterable[str]) -> None:
        self.blocks = blocks
        self._results = set(results)
        self._taken = {*taken, *RESERVED, *self._results}.union(*(block.names for block in blocks))
        self._given = set(taken)
        self._above = [0]
        """Lines above each block, and above the end."""

    def replace(self, start: int, stop: int, loop: Loop) -> None:
        later = [block.renamed(loop.names) for block in self.blocks[stop:]]
        self.blocks = [*self.blocks[:start], loop.block, *later]
        self._results = {loop.names.get(name, name) for name in self._results}
        self._taken |= loop.block.names

    def best(self) -> tuple[int, int, Loop] | None:
        """The loop that saves most, between its first block and the one after its last."""
        self._above = [0, *accumulate(map(_length, self.blocks))]
        assigned = Counter(name for block in self.blocks for name in block.assigned)
        waiting = [(-bound, start, period, passes) for bound, start, period, passes in self._candidates()]
        heapq.heapify(waiting)
        best: tuple[int, int, Loop] | None = None
        while waiting and (best is None or best[2].saved < -waiting[0][0]):
            _, start, period, passes = heapq.heappop(waiting)
            try:
                loop = self._loop(start, period, passes, assigned)
            except TooMany as fewer:
                if fewer.passes >= FEWEST:
                    bound = self._bound(start, period, fewer.passes)
                    heapq.heappush(waiting, (-bound, start, period, fewer.passes))
                continue
            if loop.saved >= LEAST_SAVED and (best is None or loop.saved > best[2].saved):
                best = start, start + period * passes, loop
        return best

    def _candidates(self) -> Iterator[tuple[int, int, int, int]]:
        """What could be saved at most, the first block, the blocks of a pass and the passes of every run."""
        forms = [block.form for block in self.blocks]
        for period in range(1, len(forms) // FEWEST + 1):
            alike = 0
            for start in range(len(forms) - period - 1, -1, -1):
                same = forms[start] is not None and forms[start] == forms[start + period]
                alike = alike + 1 if same else 0
                passes = alike // period + 1
                if passes >= FEWEST:
                    bound = self._bound(start, period, passes)
                    if bound >= LEAST_SAVED:
                        yield bound, start, period, passes

    def _bound(self, start: int, period: int, passes: int) -> int:
        return self._above[start + period * passes] - self._above[start + period]

    def _loop(self, start: int, period: int, passes: int, assigned: Counter[str]) -> Loop:
        stop = start + period * passes
        rows = [self.blocks[at : at + period] for at in range(start, stop, period)]
        body = _Body(rows, self._taken)
        later = self._results.union(*(block.names for block in self.blocks[stop:]))
        for number, bound in enumerate(body.bound):
            if any(assigned[name] > 1 or name in self._given for name in bound):
                raise TooMany(number)
            if number + 1 < passes and not later.isdisjoint(bound):
                raise TooMany(number + 1)
        if len(body.columns) > MOST_COLUMNS:
            raise TooMany(passes - 1)
        block = block_of("", body.text())
        old = self._above[stop] - self._above[start]
        names = {last: first for first, last in zip(body.bound[0], body.bound[-1], strict=True)}
        clutter = 2 * (len(body.columns) + len(body.carried))
        return Loop(replace(block, form=None), names, old - _length(block) - clutter)


class _Body:
    """The passes of a run as one body: how it spells each slot, and what it carries."""

    def __init__(self, rows: Sequence[Sequence[Block]], taken: set[str]) -> None:
        self._rows = rows
        self._slots = [list(_numbered(row)) for row in rows]
        self.bound = [
            {slot.text: at for at, slot in enumerate(slots) if slot.kind is Kind.BOUND}
            for slots in self._slots
        ]
        """By pass: the variables it assigns to, in their order, and the slots where it does."""
        self._made = {
            name: (number, at) for number, bound in enumerate(self.bound) for name, at in bound.items()
        }
        self.columns = Columns(len(rows), taken)
        self.carried: dict[tuple[int, str], list[int]] = {}
        """By the slot that makes a value and the variable that the first pass reads: where it is read."""
        self._spelled = [self._spelling(at) for at in range(len(self._slots[0]))]

    def _spelling(self, at: int) -> str:
        slots = [row[at] for row in self._slots]
        first = slots[0]
        if first.kind is Kind.BOUND:
            return first.text
        if first.kind is not Kind.NAME:
            return self.columns.spelled(slots)
        own = self.bound[0].get(first.text)
        before = self.bound[0].get(slots[1].text)
        for number, slot in enumerate(slots):
            made = self._made.get(slot.text)
            if own is not None:
                fits = made == (number, own)
            elif before is not None and number:
                fits = made == (number - 1, before)
            else:
                fits = made is None
            if not fits:
                raise TooMany(number)
        if own is not None:
            return first.text
        if before is not None:
            self.carried.setdefault((before, first.text), []).append(at)
            return first.text
        return self.columns.spelled(slots)

    def text(self) -> str:
        """The loop, with what is carried set before it."""
        made, spelled = [slot.text for slot in self._slots[0]], list(self._spelled)
        before: list[str] = []
        after: list[str] = []
        makers = Counter(maker for maker, _ in self.carried)
        for (maker, start), reads in self.carried.items():
            slots = self._slots[0]
            in_time = all(slots[read].statement <= slots[maker].statement for read in reads)
            name = made[maker]
            if makers[maker] > 1 or not in_time:
                name = self.columns.free(f"earlier_{name}")
                after.append(f"{name} = {made[maker]}")
            before.append(f"{name} = {start}")
            for read in reads:
                spelled[read] = name
        inner = "\n\n".join([*self._blocks(spelled), *(["\n".join(after)] if after else [])])
        body = "\n".join(f"    {line}" if line else "" for line in inner.split("\n"))
        return "\n".join([*before, self.columns.header(), body])

    def _blocks(self, spelled: list[str]) -> Iterator[str]:
        at = 0
        for place, block in enumerate(self._rows[0]):
            texts = spelled[at : at + len(block.slots)]
            at += len(block.slots)
            edits = [slot.edit(text) for slot, text in zip(block.slots, texts, strict=True)]
            comment = common_comment([row[place].comment for row in self._rows])
            heading = "".join(f"# {line}\n" for line in wrapped(comment, LONGEST_COMMENT - 4))
            yield heading + edited(block.text, edits)


def _numbered(row: Sequence[Block]) -> Iterator[Slot]:
    """The slots of a pass, with its statements counted through."""
    done = 0
    for block in row:
        for slot in block.slots:
            yield replace(slot, statement=done + slot.statement)
        done += block.statements


def common_comment(comments: Sequence[str]) -> str:
    """The comment of all passes, without the words that differ."""
    split = [comment.rstrip(".").split() for comment in comments]
    if len({len(words) for words in split}) > 1:
        shared = 0
        while all(len(words) > shared for words in split) and len({words[shared] for words in split}) == 1:
            shared += 1
        return " ".join(split[0][:shared]) + "." if shared else ""
    shared = [words[0] for words in zip(*split, strict=True) if len(set(words)) == 1]
    return " ".join(shared) + "." if shared else ""
