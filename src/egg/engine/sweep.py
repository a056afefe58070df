"""Which points of a tunable space to try, and which of them wins.

Only decisions: the caller evaluates the points and reports their times. The same space,
limit, seed and tells give the same points in the same order, so a resumed run that reads its
evaluations back from a log walks the same path. Within a batch the order of the tells does not
matter, because they are handed on in the batch's own order once all of them are there.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Sequence, Set
from typing import TYPE_CHECKING

from egg.core.space import Point, Space, SweepPoint, Value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

BATCH = 4
"""Points asked for at once where a sampler chooses them: enough to keep a few workers busy."""
REPEATS = 16
"""Suggestions in a row that were tried already, before an untried point is drawn instead."""

_Key = tuple[Value, ...]


class Sweeper:
    """Proposes points in batches: all of a small space, else as many as the limit allows.

    A space of at most ``limit`` points is one batch. Of a larger one, the current point and a
    few random ones come first, then those that a tree-structured Parzen estimator (Optuna)
    finds promising after the reported times. Where Optuna is not installed, or the sweep ``walks``,
    it is the neighbours of the fastest point so far, and random ones when they are used up. The
    current point is always the very first, and no point is proposed twice.
    """

    def __init__(
        self, space: Space, limit: int, seed: int, batch: int = BATCH, *, walks: bool = False
    ) -> None:
        if limit < 1:
            raise ValueError(f"a sweep tries at least one point, not {limit}")
        self._space = space
        self._limit = limit
        self._batch = batch
        self._sampler: _Sampler | _Nearby | None = None
        if space.size > limit:
            self._sampler = _Nearby(space, seed) if walks else _sampler(space, limit, seed)
        self._proposed: dict[_Key, None] = {}
        self._open: dict[_Key, None] = {}
        self._reported: dict[_Key, float | None] = {}

    def next_batch(self) -> tuple[Point, ...]:
        """The next points to evaluate; empty when the sweep is done. Every earlier point must be reported."""
        if self._open.keys() - self._reported.keys():
            missing = [self._point(key) for key in self._open if key not in self._reported]
            raise ValueError(f"no time is reported yet for {missing}")
        if self._sampler is not None:
            self._sampler.learn([(key, self._reported[key]) for key in self._open])
        self._open = dict.fromkeys(self._choose())
        self._proposed |= self._open
        return tuple(self._point(key) for key in self._open)

    def tell(self, point: Point, milliseconds: float | None) -> None:
        """What came of a point of the open batch: its time, or ``None`` where it has none."""
        if milliseconds is not None and not (math.isfinite(milliseconds) and milliseconds > 0):
            raise ValueError(f"a time is a positive number of milliseconds, not {milliseconds}")
        key = self._key(point)
        if key not in self._open:
            raise ValueError(f"{dict(point)} is not in the open batch")
        if key in self._reported:
            raise ValueError(f"{dict(point)} was reported already")
        self._reported[key] = milliseconds

    def _choose(self) -> list[_Key]:
        current = self._key(self._space.current)
        if self._sampler is not None:
            first = [] if self._proposed else [current]
            count = min(self._batch, self._limit - len(self._proposed))
            return self._sampler.suggest(first, count, self._proposed)
        if self._proposed:
            return []
        others = (self._key(point) for point in self._space.points())
        return [current, *(key for key in others if key != current)]

    def _key(self, point: Point) -> _Key:
        try:
            return tuple(point[t.name] for t in self._space.tunables)
        except KeyError as missing:
            raise ValueError(f"the point {dict(point)} does not name {missing}") from None

    def _point(self, key: _Key) -> Point:
        return dict(zip((t.name for t in self._space.tunables), key, strict=True))


def _sampler(space: Space, limit: int, seed: int) -> _Sampler | _Nearby:
    try:
        return _Sampler(space, limit, seed)
    except ImportError:
        return _Nearby(space, seed)


class _Nearby:
    """Walks from the fastest point to its neighbours: one value of one tunable up or down at a time."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._random = random.Random(seed)
        self._best = tuple(space.current[t.name] for t in space.tunables)
        self._best_milliseconds = math.inf

    def learn(self, reported: Sequence[tuple[_Key, float | None]]) -> None:
        for key, milliseconds in reported:
            if milliseconds is not None and milliseconds < self._best_milliseconds:
                self._best, self._best_milliseconds = key, milliseconds

    def suggest(self, first: list[_Key], count: int, taken: dict[_Key, None]) -> list[_Key]:
        """``count`` points that are not taken, beginning with those in ``first``."""
        wished = [*first, *(key for key in self._neighbours() if key not in taken)]
        chosen = dict.fromkeys(wished[:count])
        while len(chosen) < count:
            chosen[_untried(self._space, taken.keys() | chosen.keys(), self._random)] = None
        return list(chosen)

    def _neighbours(self) -> Iterator[_Key]:
        for place, tunable in enumerate(self._space.tunables):
            index = tunable.values.index(self._best[place])
            for other in (index + 1, index - 1):
                if 0 <= other < len(tunable.values):
                    yield (*self._best[:place], tunable.values[other], *self._best[place + 1 :])


class _Sampler:
    """Optuna as a proposer that never repeats itself.

    A suggestion that was tried already is withdrawn, so that the estimator does not count it
    twice; where it insists, an untried point is drawn at random. A point without a time is reported
    as infinitely slow: what the judge refuses teaches the estimator to stay away from there.
    """

    def __init__(self, space: Space, limit: int, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._random = random.Random(seed)
        self._choices: dict[str, BaseDistribution] = {
            t.name: optuna.distributions.CategoricalDistribution(t.values) for t in space.tunables
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=seed, n_startup_trials=max(2 * BATCH, limit // 4), multivariate=True, constant_liar=True
            )
        self._study: Study = optuna.create_study(sampler=sampler, direction="minimize")
        self._failed = optuna.trial.TrialState.FAIL
        self._numbers: dict[_Key, int] = {}

    def learn(self, reported: Sequence[tuple[_Key, float | None]]) -> None:
        for key, milliseconds in reported:
            self._study.tell(self._numbers[key], math.inf if milliseconds is None else milliseconds)

    def suggest(self, first: list[_Key], count: int, taken: dict[_Key, None]) -> list[_Key]:
        """``count`` points that are not taken, beginning with those in ``first``."""
        chosen: dict[_Key, None] = {}
        for key in first:
            self._ask_for(key)
            chosen[key] = None
        while len(chosen) < count:
            key = self._new_suggestion(taken.keys() | chosen.keys())
            chosen[key] = None
        return list(chosen)

    def _new_suggestion(self, taken: set[_Key]) -> _Key:
        for _ in range(REPEATS):
            number, key = self._ask()
            if key not in taken:
                self._numbers[key] = number
                return key
            self._study.tell(number, state=self._failed)
        key = _untried(self._space, taken, self._random)
        self._ask_for(key)
        return key

    def _ask_for(self, key: _Key) -> None:
        self._study.enqueue_trial(dict(zip(self._choices, key, strict=True)))
        self._numbers[key] = self._ask()[0]

    def _ask(self) -> tuple[int, _Key]:
        trial = self._study.ask(self._choices)
        return trial.number, tuple(trial.params[name] for name in self._choices)


def _untried(space: Space, taken: Set[_Key], drawn: random.Random) -> _Key:
    """The first point that is not taken, from a random place of the space on."""
    start = drawn.randrange(space.size)
    places = ((start + step) % space.size for step in range(len(taken) + 1))
    return next(key for place in places if (key := _at(space, place)) not in taken)


def _at(space: Space, place: int) -> _Key:
    """The point at this place of the space's own order, the first tunable varying slowest."""
    key: list[Value] = []
    for tunable in reversed(space.tunables):
        place, index = divmod(place, len(tunable.values))
        key.append(tunable.values[index])
    return tuple(reversed(key))


def winner(points: Sequence[SweepPoint], current: str, tolerance: float) -> str:
    """Hash of the fastest point; the current one, unless another is faster by more than ``tolerance``.

    ``tolerance`` is relative: 0.02 keeps the current point against anything less than 2% faster.
    Where some points were measured, predictions of others do not count against them. Of equally
    fast points the first wins; where no point has a time, the current one does.
    """
    timed = [(p.milliseconds, p) for p in points if p.milliseconds is not None]
    if any(point.outcome == "measured" for _, point in timed):
        timed = [(ms, point) for ms, point in timed if point.outcome == "measured"]
    if not timed:
        return current
    fastest_ms, fastest = min(timed, key=lambda pair: pair[0])
    own_ms = min((ms for ms, point in timed if point.candidate == current), default=math.inf)
    return fastest.candidate if fastest_ms < own_ms * (1.0 - tolerance) else current
