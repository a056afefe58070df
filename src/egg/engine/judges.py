"""Judges of the engine's kernels: this machine's oracles, or another machine's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from egg.core.evaluation import Evaluation
from egg.core.recording import Recording
from egg.engine.waiting import WaitingForEvaluations
from egg.evaluator.judge.pool import Job, Pool, devices
from egg.evaluator.judge.question import RecordRequest


class LocalJudge:
    """This machine's GPUs (or its CPU), one warm oracle on each. A machine that fails is an exception."""

    def __init__(self, device: str, on_jobs: Callable[[int], None] = lambda count: None) -> None:
        self._device = device
        self._on_jobs = on_jobs
        self._pool: Pool | None = None

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        self._on_jobs(len(jobs))
        for answer in self._oracles.answers(jobs):
            if answer.error is not None:
                raise answer.error
            assert answer.evaluation is not None
            yield answer.job, answer.evaluation

    def record(self, request: RecordRequest) -> Recording:
        """What torch.compile generates for a task, on the device that judged it last."""
        return self._oracles.record(request)

    @property
    def _oracles(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(devices(self._device))
        return self._pool

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class OfflineJudge:
    """Another machine will judge: the jobs wait to be carried there."""

    def judge(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Evaluation]]:
        raise WaitingForEvaluations(tuple(jobs))
        yield

    def close(self) -> None:
        pass
