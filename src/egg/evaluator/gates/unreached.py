"""Answers that do not depend on what is no number: what lies behind a mask is skipped, or multiplied by zero.

The question is asked again with finite numbers at the places of the NaN. Where two different numbers lead
to the same exact answer, it is not reached from there, and a candidate that skips these places has it. Beside
a place that is skipped there may be one that is not, in the same row: an infinite key that gets no weight,
beside a key that is masked. So numbers are put at all places at once, and then at halves of them, drawn by
lot, while the others stay what they are.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

TWO_NUMBERS = (0.5, -1.5)
"""Put in turn at the places of the NaN: what does not move is not reached from there."""
HALVES = 32
"""Drawn at most. Two places of one row are told apart by one in four, three by one in eight."""
SECONDS = 10.0
"""For these at most: a program that takes long for one answer is asked for few."""

Answers = list[torch.Tensor | None]
"""The outputs, in order; ``None`` for what cannot be compared."""


@dataclass(frozen=True)
class Unreached:
    """The exact outputs of one question where they do not depend on what is no number, and NaN elsewhere."""

    answer: Callable[[Collection[int], float], Answers]
    """The exact outputs with a number in place of the NaN at the places of these numbers."""
    places: int

    @cached_property
    def of_all(self) -> Answers:
        """With numbers at all places."""
        return self._with(range(self.places))

    def each(self) -> Iterator[Answers]:
        """With numbers at all places, and then at ever other halves of them."""
        yield self.of_all
        began, lots = time.monotonic(), random.Random(secrets.randbits(64))
        for _ in range(HALVES if self.places > 1 else 0):
            if time.monotonic() - began > SECONDS:
                return
            yield self._with([place for place in range(self.places) if lots.random() < 0.5])

    def _with(self, places: Collection[int]) -> Answers:
        one, other = (self.answer(places, number) for number in TWO_NUMBERS)
        return [
            torch.where(first == second, first, math.nan)
            if first is not None and second is not None and first.shape == second.shape
            else None
            for first, second in zip(one, other, strict=True)
        ]
