"""A sweep as part of a step: every point is proposed, judged and recorded; no tokens are spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from egg.core.evaluation import Evaluation, Rejected
from egg.core.events import Objected, Proposed, Swept
from egg.core.source import Candidate
from egg.core.space import Point, Sweep, SweepPoint
from egg.core.step import Origin
from egg.engine.desk import Desk
from egg.engine.scoring import score
from egg.engine.sweep import Sweeper, winner
from egg.engine.tunables import read_space, with_point

Files = Mapping[str, Candidate]
"""By hash."""

Breach = Callable[[Evaluation], str]
"""Why a point so judged breaks what was agreed; empty when it does not. All points share one structure."""

CONFIRMATIONS = 3
"""How many predicted winners may turn out wrong before the sweep is given up."""


def sweep_file(desk: Desk, step: int, file: Candidate, breach: Breach) -> tuple[Sweep, Candidate] | None:
    """Sweep the tunables of an accepted ``file``: the record, and the file at the winning point.

    On a GPU every point is judged, which measures it. Without one the points are only compiled
    and ranked by the predicted time; the winner is judged before it counts.
    """
    space = read_space(file.source)
    if space is None or space.size < 2:
        return None
    settings = desk.state.started.settings
    sweeper = Sweeper(space, settings.budget.sweep_points, settings.seed)
    tried: list[SweepPoint] = []
    files = {file.hash: file}
    while batch := sweeper.next_batch():
        if desk.cap_reached():
            break
        candidates = [Candidate(with_point(file.source, point), file.name) for point in batch]
        _propose(desk, step, candidates)
        verdicts = _look(desk, file, candidates)
        for point, candidate, evaluation in zip(batch, candidates, verdicts, strict=True):
            seen = _seen(desk, step, point, candidate, evaluation, breach)
            sweeper.tell(point, _cost(desk, seen))
            tried.append(seen)
            files[candidate.hash] = candidate
    best = _confirmed(desk, step, file, tried, files, breach)
    sweep = Sweep(space.size, tuple(tried), best)
    desk.journal.decide(Swept(step, sweep))
    return sweep, files[best]


def _look(desk: Desk, file: Candidate, candidates: list[Candidate]) -> list[Evaluation]:
    """A verdict on each point, by measurement where there is a GPU."""
    known = desk.state.kernels[file.hash]
    if known.score.measured:
        return desk.evaluate(candidates)
    others = [candidate for candidate in candidates if candidate.hash != file.hash]
    verdicts = dict(zip((c.hash for c in others), desk.compile(others), strict=True))
    return [verdicts.get(candidate.hash, known.evaluation) for candidate in candidates]


def _confirmed(
    desk: Desk, step: int, file: Candidate, tried: list[SweepPoint], files: Files, breach: Breach
) -> str:
    """The fastest point that is right. One that turns out wrong is marked, and the next one is asked."""
    noise = desk.state.kernels[file.hash].score.noise
    for _ in range(CONFIRMATIONS):
        best = winner([replace(point, milliseconds=_cost(desk, point)) for point in tried], file.hash, noise)
        if best == file.hash:
            break
        (evaluation,) = desk.evaluate([files[best]])
        at = next(n for n, point in enumerate(tried) if point.candidate == best)
        seen = _seen(desk, step, tried[at].values, files[best], evaluation, breach)
        if seen.milliseconds is not None:
            return best
        tried[at] = seen
    return file.hash


def _cost(desk: Desk, point: SweepPoint) -> float | None:
    """What points are ranked by: the time, or its share of eager's in the same session where measured."""
    kernel = desk.state.kernels.get(point.candidate)
    if point.milliseconds is None or kernel is None or kernel.score.speedup is None:
        return point.milliseconds
    return 1.0 / kernel.score.speedup.median


def _propose(desk: Desk, step: int, candidates: list[Candidate]) -> None:
    for candidate in candidates:
        if candidate.hash not in desk.state.sources:
            desk.journal.decide(Proposed(step, Origin.SWEEP, candidate.hash, candidate.source))


def _seen(
    desk: Desk, step: int, point: Point, candidate: Candidate, evaluation: Evaluation, breach: Breach
) -> SweepPoint:
    """What the judge's verdict makes of one point: a time, or the reason why it has none."""
    if isinstance(evaluation.verdict, Rejected):
        refusal = evaluation.verdict.refusal
        return SweepPoint(point, candidate.hash, None, f"{refusal.gate.value}: {refusal.reason}")
    if broken := breach(evaluation):
        if candidate.hash in desk.state.kernels:
            desk.journal.decide(Objected(step, candidate.hash, broken, judged=True))
        return SweepPoint(point, candidate.hash, None, broken)
    found = score(evaluation, desk.state.gpu)
    assert found is not None
    told = "measured" if found.measured else "predicted"
    return SweepPoint(point, candidate.hash, found.milliseconds.median, told)
