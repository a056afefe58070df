"""The oracle's side of :mod:`egg.evaluator.transport.freshen`: further draws of the generator.

Drawing takes time and memory. A task whose inputs are all loose needs two draws, because any number
of different inputs are made of them. One with lengths, masks or indices needs a draw for every
call: as many as fit are kept, and before each request as many of the oldest as there is time for
are drawn anew. On tensors of gigabytes there are few, and a candidate that remembered all of them
would meet them again; it would have to hold and to compare them too.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from egg.evaluator.task.program import map_tensors, restrided
from egg.evaluator.transport import exchange, freshen
from egg.evaluator.transport.freshen import Kind, Move

MOST = 256
"""Draws: as many as a request of the clock has calls."""
RESERVE_BYTES = 256 << 20
DRAWING_SECONDS = 0.05
"""For new draws before one request to the candidate."""
FIRST_SECONDS = 1.0
"""For the first ones, beyond two."""
TRIES = 16
"""To find moves that no call has had since its draws were made. A tensor of few elements runs out of them."""

Draw = Callable[[], list[Any]]


def how_many(kinds: Sequence[Kind], nbytes: int) -> int:
    """Draws that are kept, where one call's inputs take so many bytes; none where nothing ever changes."""
    if all(kind is Kind.FIXED for kind in kinds):
        return 0
    least, most = (2, MOST) if Kind.DRAWN in kinds else (1, 2)
    return max(least, min(most, RESERVE_BYTES // max(nbytes, 1)))


def apart(inputs: list[Any]) -> list[Any]:
    """A copy in which every tensor has memory of its own: moves through one must not show in another."""
    return map_tensors(inputs, lambda tensor: restrided(tensor, torch.clone))


@dataclass
class Reserve:
    """Draws of the task's own generator, here and, slot for slot, where the candidate finds them."""

    kinds: Sequence[Kind]
    draw: Draw
    """New inputs of the task, from a secret seed."""
    lay: Callable[[int, list[torch.Tensor]], None]
    """Put a draw where the candidate's side reads it."""
    size: int
    draws: list[list[torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order: deque[int] = deque()
        """Numbers of draws, those that were used the longest ago first."""
        self._filled: Counter[int] = Counter()
        """How often each draw was made anew."""
        self._made: set[tuple[tuple[int, ...], ...]] = set()
        """The moves of earlier calls, with what their draws were then."""

    @property
    def moving(self) -> bool:
        """Whether calls differ from one another."""
        return bool(self.size)

    @property
    def moves(self) -> int:
        """Copies that precede one call, at most."""
        return sum({Kind.FIXED: 0, Kind.DRAWN: 1, Kind.LOOSE: 4}[kind] for kind in self.kinds)

    def for_calls(self, sets: Sequence[Sequence[torch.Tensor]], calls: int) -> list[list[Move]]:
        """What precedes each of ``calls`` calls that rotate over ``sets``; the oldest draws are renewed."""
        if not self.moving:
            return [[] for _ in range(calls)]
        self._renew(calls)
        generator = random.Random(secrets.randbits(64))
        found = []
        for call in range(calls):
            chosen = self._order.popleft()
            self._order.append(chosen)
            found.append(self._new_moves(sets[call % len(sets)], chosen, generator))
        return found

    def _new_moves(
        self, tensors: Sequence[torch.Tensor], chosen: int, generator: random.Random
    ) -> list[Move]:
        """Moves from one draw that no call had before: two equal ones would be the same inputs."""
        others = [draw for draw in range(len(self.draws)) if draw != chosen] or [chosen]
        moves: list[Move] = []
        for _ in range(TRIES):
            sources = (chosen, generator.choice(others))
            moves = freshen.draw(tensors, self.kinds, sources, generator)
            made = tuple((*move, self._filled[move[3]]) for move in moves)
            if made not in self._made:
                self._made.add(made)
                break
        return moves

    def forget(self) -> None:
        """Hold nothing until the next calls: what was drawn may be gigabytes."""
        self.draws.clear()
        self._order.clear()
        self._made.clear()

    def follow(self, tensors: Sequence[torch.Tensor], moves: Sequence[Move]) -> None:
        """Make the same moves on the oracle's own copies."""
        freshen.apply(tensors, self.draws, moves)

    def _renew(self, calls: int) -> None:
        """Draw the first ones; then anew as many as there will be calls, while there is time."""
        started = time.perf_counter()
        target, made = min(self.size, max(calls, 2)), 0
        while len(self.draws) < target:
            if len(self.draws) >= 2 and time.perf_counter() - started > FIRST_SECONDS:
                break
            self._order.appendleft(len(self.draws))
            self.draws.append([])
            self._fill(len(self.draws) - 1)
            made += 1
        started = time.perf_counter()
        for number in list(self._order)[made:calls]:
            if time.perf_counter() - started > DRAWING_SECONDS:
                break
            self._fill(number)

    def _fill(self, number: int) -> None:
        self._filled[number] += 1
        self.draws[number] = []  # or there would be one draw more than was counted on
        _, tensors = exchange.pack(apart(self.draw()))
        self.draws[number] = tensors
        self.lay(number, tensors)
