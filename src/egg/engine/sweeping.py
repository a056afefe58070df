"""Sweeps: a file and the values it leaves open are timed, ranked and recorded; no tokens are spent.

On a GPU most of what judging takes is not timing, so timing comes first: a file of the tuning stages and all
its points are timed *side by side* with the base, in one process and unchecked (:func:`race`). What is not
faster there need not be judged; what is, is judged before it counts.

Without a GPU the file is judged first, and its points are only compiled and ranked by the predicted time
(:func:`sweep_file`). It is also judged first where a side-by-side timing failed; then each point is judged by
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from egg.core.evaluation import Contender, Evaluation, Refusal, Rejected
from egg.core.events import Objected, Proposed, Swept
from egg.core.source import Candidate
from egg.core.space import Point, Space, Sweep, SweepPoint
from egg.core.step import Kernel, Origin
from egg.engine.effects import Effects
from egg.engine.scoring import LEAST_GAIN, score
from egg.engine.sweep import BATCH, Sweeper, winner
from egg.engine.tunables import program_of, read_space, with_point

Breach = Callable[[Evaluation], str]
"""Why a point so judged breaks what was agreed; empty when it does not. All points share one structure."""

CONFIRMATIONS = 3
"""How many winners may turn out wrong before the sweep is given up."""
GROUP = 8
"""Points of one side-by-side timing: each starts a process, and all of its points stay loaded there."""


@dataclass(frozen=True)
class Wrong:
    """A winner that turned out not to be one, by the judge's refusal or the engine's own objection."""

    candidate: Candidate
    refusal: Refusal | None
    objection: str


@dataclass(frozen=True)
class Race:
    """What came of timing a file and its points beside the base."""

    ratio: float
    """Of the fastest to the base, as timed side by side; larger than 1 is faster."""
    sweep: Sweep | None
    """``None`` where the file leaves nothing open."""
    winner: Candidate | None
    """Faster than the base and accepted."""
    wrong: Wrong | None
    """The last that was faster and not accepted, where there is no winner."""


def race(effects: Effects, step: int, file: Candidate, breach: Breach) -> Race | None:
    """Time ``file`` and its points beside the base; judge the fastest, where it is faster beyond the noise.

    ``None`` where that cannot be done: the run does not time side by side, the base has no measured time, or
    no point ran.
    """
    base, space = effects.state.base_kernel, _open_in(file)
    if not effects.side_by_side or base is None or not base.score.measured:
        return None
    sweeping = _Sweeping(effects, step, file, breach, base, racing=True)
    tried = sweeping.look(space)
    costs = [seen.cost for seen in tried if seen.cost is not None]
    if not costs:
        return None
    best = sweeping.confirmed(tried)
    sweep = sweeping.recorded(space, tried, best) if space is not None else None
    ratio = sweeping.own_cost / min(costs)
    return Race(ratio, sweep, best, sweeping.wrong if best is None else None)


def sweep_file(
    effects: Effects, step: int, file: Candidate, breach: Breach
) -> tuple[Sweep, Candidate] | None:
    """Sweep the tunables of an accepted ``file``: the record, and the file at the winning point."""
    space = _open_in(file)
    if space is None:
        return None
    sweeping = _Sweeping(effects, step, file, breach, effects.state.kernels[file.hash], racing=False)
    tried = sweeping.look(space)
    best = sweeping.confirmed(tried) or file
    return sweeping.recorded(space, tried, best), best


def _open_in(file: Candidate) -> Space | None:
    space = read_space(file.source)
    return space if space is not None and space.size > 1 else None


@dataclass(frozen=True)
class _Tried:
    """A point, and what it is ranked by: its share of eager's time where measured, else predicted time."""

    point: SweepPoint
    cost: float | None


class _Sweeping:
    """The points of one file, looked at ``beside`` a kernel: the base in a race, else the file itself."""

    def __init__(
        self, effects: Effects, step: int, file: Candidate, breach: Breach, beside: Kernel, *, racing: bool
    ) -> None:
        self._effects, self._step, self._file, self._breach = effects, step, file, breach
        self._beside, self._racing = beside, racing
        self._files = {file.hash: file}
        own = beside.score
        self.own_cost = own.milliseconds.median if own.speedup is None else 1.0 / own.speedup.median
        self.wrong: Wrong | None = None

    def look(self, space: Space | None) -> list[_Tried]:
        """What is known of every point that is tried; of the file alone, where it leaves nothing open."""
        if space is None:
            return self._look({self._file.hash: {}})
        settings = self._effects.state.started.settings
        sweeper = Sweeper(
            space,
            settings.budget.sweep_points,
            settings.seed,
            GROUP if self._racing else BATCH,
            walks=self._racing,
        )
        tried: list[_Tried] = []
        while batch := sweeper.next_batch():
            looked = [] if self._effects.cap_reached() else self._look(self._proposed(batch))
            if not looked:
                break
            for point, seen in zip(batch, looked, strict=True):
                sweeper.tell(point, seen.cost)
            tried += looked
        return tried

    def confirmed(self, tried: list[_Tried]) -> Candidate | None:
        """The fastest point that is right. One that turns out wrong is marked, and the next one is asked."""
        beside = SweepPoint({}, self._beside.candidate.hash, self.own_cost, "measured")
        noise = self._beside.score.noise
        for _ in range(CONFIRMATIONS):
            ranked = [replace(seen.point, milliseconds=seen.cost) for seen in tried]
            best = (
                winner([*ranked, beside], beside.candidate, max(noise, LEAST_GAIN))
                if self._racing
                else winner(ranked, beside.candidate, noise)
            )
            if best == beside.candidate:
                break
            (evaluation,) = self._effects.evaluate([self._files[best]])
            at = next(n for n, seen in enumerate(tried) if seen.point.candidate == best)
            judged = self._seen(tried[at].point.values, best, evaluation)
            if judged.cost is not None:
                return self._files[best]
            tried[at] = judged
            refusal = evaluation.verdict.refusal if isinstance(evaluation.verdict, Rejected) else None
            self.wrong = Wrong(self._files[best], refusal, "" if refusal else judged.point.outcome)
        return None

    def recorded(self, space: Space, tried: Sequence[_Tried], best: Candidate | None) -> Sweep:
        """Where nothing is better than what it ran beside, the fastest is named all the same."""
        timed = [(seen.cost, seen.point.candidate) for seen in tried if seen.cost is not None]
        fastest = min(timed)[1] if timed else self._file.hash
        sweep = Sweep(space.size, tuple(seen.point for seen in tried), best.hash if best else fastest)
        self._effects.journal.decide(Swept(self._step, sweep))
        return sweep

    def _proposed(self, batch: Sequence[Point]) -> dict[str, Point]:
        """The points by the hashes of their files."""
        points: dict[str, Point] = {}
        for point in batch:
            candidate = Candidate(with_point(self._file.source, point), self._file.name)
            points[candidate.hash] = point
            self._files[candidate.hash] = candidate
            if candidate.hash not in self._effects.state.sources:
                self._effects.journal.decide(
                    Proposed(self._step, Origin.SWEEP, candidate.hash, candidate.source)
                )
        return points

    def _look(self, points: Mapping[str, Point]) -> list[_Tried]:
        """What is known of each point; nothing where every timing failed because its process ended."""
        others = [self._files[name] for name in points if not self._is_beside(self._files[name])]
        if self._racing:
            groups = [others[at : at + GROUP] for at in range(0, len(others), GROUP)]
            timings = self._effects.time_beside(self._beside.candidate, groups)
            if timings and not any(timing.accepted for timing in timings):
                return []
            times = {found.candidate_hash: found for timing in timings for found in timing.contenders}
            return [self._timed(point, name, times.get(name)) for name, point in points.items()]
        judge = self._effects.evaluate if self._beside.score.measured else self._effects.compile
        verdicts = {c.hash: found for c, found in zip(others, judge(others), strict=True)}
        known = self._beside.evaluation
        return [self._seen(point, name, verdicts.get(name, known)) for name, point in points.items()]

    def _is_beside(self, file: Candidate) -> bool:
        """Whether it is the same program: a point may be the base again, but for what it leaves open."""
        beside = self._beside.candidate
        return file.hash == beside.hash or program_of(file.source) == program_of(beside.source)

    def _timed(self, point: Point, name: str, contender: Contender | None) -> _Tried:
        """A point by its time beside the base; a point that is the same program as the base has its time."""
        if contender is None:
            median = self._beside.score.milliseconds.median
            return _Tried(SweepPoint(point, name, median, "measured"), self.own_cost)
        if contender.milliseconds is None or contender.gain is None:
            return _Tried(SweepPoint(point, name, None, contender.reason), None)
        measured = SweepPoint(point, name, contender.milliseconds.median, "measured")
        return _Tried(measured, self.own_cost / contender.gain.median)

    def _seen(self, point: Point, name: str, evaluation: Evaluation) -> _Tried:
        """What the judge's verdict makes of one point: a time, or the reason why it has none."""
        if isinstance(evaluation.verdict, Rejected):
            refusal = evaluation.verdict.refusal
            return _Tried(SweepPoint(point, name, None, f"{refusal.gate.value}: {refusal.reason}"), None)
        if broken := self._breach(evaluation):
            if name in self._effects.state.kernels:
                self._effects.journal.decide(Objected(self._step, name, broken, judged=True))
            return _Tried(SweepPoint(point, name, None, broken), None)
        found = score(evaluation, self._effects.state.gpu)
        assert found is not None
        outcome = "measured" if found.measured else "predicted"
        cost = found.milliseconds.median if found.speedup is None else 1.0 / found.speedup.median
        return _Tried(SweepPoint(point, name, found.milliseconds.median, outcome), cost)
