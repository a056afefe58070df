"""Kernels that another system wrote, judged as ours are: a row for every task, and a bench like any other.

Nothing is sought here. A task without a kernel has a row that says so, since missing counts as wrong; kernels
of tasks that were not chosen are named. What is judged already, the same kernel for the same task under the
same policy, is not judged again, so that the same call goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from egg.api.apart import facts_of
from egg.api.benching.devices import alike
from egg.api.benching.folder import MANIFEST, ROWS, TASKS, kernel_file, write_whole
from egg.api.benching.manifest import task_line
from egg.api.benching.news import Ended, News, Opened
from egg.bench.families import NOMINAL, WholeFamily, WorkFamily, family_of
from egg.bench.kernelbench import Sample, paired, read_kernels
from egg.bench.listing import key_of
from egg.bench.outcomes import row_of_evaluation
from egg.bench.row_files import RowsFile
from egg.bench.rows import NoKernel, Row, Unable, complete, row_of
from egg.bench.suites import Suite
from egg.core.errors import EggError, UsageError
from egg.core.policy import Policy, Precision
from egg.core.source import Candidate, Task
from egg.evaluator.judge.pool import Answer, Job, Pool, devices
from egg.evaluator.judge.question import Question
from egg.hardware.gpus import resolve


@dataclass(frozen=True)
class JudgedKernels:
    """What became of a folder of kernels."""

    rows: tuple[Row, ...]
    """One for every task, in the suite's order."""
    without_task: tuple[str, ...]
    """File names of kernels for other tasks."""

    @property
    def unable(self) -> tuple[str, ...]:
        """Keys of the tasks that the machine could not judge; the same call tries them again."""
        return tuple(row.key for row in self.rows if isinstance(row.verdict, Unable))


def judge_kernels(
    suite: Suite,
    kernels: Path,
    policy: Policy,
    folder: Path,
    *,
    device: str = "auto",
    target: str | None = None,
    sample: int = 0,
    seats: int = 1,
    on_news: Callable[[News], None] = lambda news: None,
) -> JudgedKernels:
    """Judge the kernels in ``kernels``, of each problem the one that is numbered ``sample``.

    Rows and accepted kernels go into ``folder``, which then is a bench; one with rows of another suite or
    under another policy is refused. ``auto`` and ``cuda`` are all GPUs of one kind; ``seats`` is how many
    kernels are judged at a time on each.
    """
    matched = paired([found for found in read_kernels(kernels) if found.sample == sample], suite.tasks)
    offered = {key_of(task): found for task, found in matched.pairs}
    if not offered:
        raise UsageError(
            f"no kernel in {kernels} is sample {sample} of a task of {suite.name!r}",
            "name the suite, levels and ids that the kernels were written for",
        )
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} is a bench of runs", "give --out a folder of its own")
    judges = alike(device)
    settings = {"kernels": kernels.resolve().name, "sample": str(sample)}
    with closing(RowsFile(folder / ROWS)) as rows:
        _check_policy(rows.rows, policy, folder)
        _keep_tasks(folder / TASKS, suite)
        done = {row.key: row for row in rows.rows}
        left = {key: task for key, task in suite.by_key.items() if not _settled(task, done, offered.get(key))}
        known = tuple(row for row in rows.rows if row.key not in left)
        on_news(Opened(known, tuple(left.values()), seats * len(judges)))
        with closing(_judged(left, offered, policy, settings, folder, judges, target, seats)) as coming:
            for row in coming:
                rows.add(row)
                on_news(Ended(row))
        found = complete(rows.rows, suite.tasks)
    return JudgedKernels(tuple(found), tuple(sample.file_name for sample in matched.without_task))


def _keep_tasks(path: Path, suite: Suite) -> None:
    """With the rows, so that a score counts what is missing."""
    text = "".join(map(task_line, suite.tasks))
    if path.exists() and path.read_text(encoding="utf-8") != text:
        raise UsageError(
            f"{path.parent} has rows of another choice of tasks",
            "judge the same tasks, or give --out another folder",
        )
    write_whole(path, text)


def _check_policy(rows: list[Row], policy: Policy, folder: Path) -> None:
    """A table of rows under two policies compares nothing with nothing."""
    other = next((row for row in rows if row.policy != policy), None)
    if other is None:
        return
    was = other.policy
    policy_text = f"level {was.level}, precision {was.precision}, library calls {was.library_calls}"
    raise UsageError(
        f"the rows in {folder} were judged under another policy: {policy_text}",
        "judge under the same policy, or give --out another folder",
    )


def _settled(task: Task, done: Mapping[str, Row], offered: Sample | None) -> bool:
    row = done.get(key_of(task))
    if row is None or isinstance(row.verdict, Unable) or row.task_sha256 != task.sha256:
        return False
    return row.kernel_sha256 == (offered.candidate.sha256 if offered is not None else "")


def _judged(
    tasks: Mapping[str, Task],
    offered: Mapping[str, Sample],
    policy: Policy,
    settings: Mapping[str, str],
    folder: Path,
    judges: list[str],
    target: str | None,
    seats: int,
) -> Generator[Row, None, None]:
    """Rows as they come: first of the tasks that have no kernel, then of the kernels."""
    for key, task in tasks.items():
        if key not in offered:
            kernel_file(folder, task).unlink(missing_ok=True)  # of a kernel that was taken away
            yield row_of(task, NoKernel("no kernel was given"), policy, settings=settings)
    jobs = [
        Job(key, Question(task, offered[key].candidate, policy, target))
        for key, task in tasks.items()
        if key in offered
    ]
    if not jobs:
        return
    there = [place for name in judges for place in devices(name)]
    with closing(Pool(there, seats)) as pool:
        for answer in pool.answers(jobs):
            task, candidate = tasks[answer.job], offered[answer.job].candidate
            yield _row(task, candidate, answer, policy, settings, folder)


def _row(
    task: Task,
    candidate: Candidate,
    answer: Answer,
    policy: Policy,
    settings: Mapping[str, str],
    folder: Path,
) -> Row:
    family = _family(task)
    place = kernel_file(folder, task)
    place.unlink(missing_ok=True)  # of an earlier kernel
    if answer.evaluation is None:
        assert answer.error is not None
        at_fault_is_the_task = isinstance(answer.error, UsageError)
        why = NoKernel if at_fault_is_the_task else Unable
        return row_of(task, why(answer.error.message), policy, family=family, settings=settings)
    if answer.evaluation.accepted:
        write_whole(place, candidate.source)
    return row_of_evaluation(
        task, answer.evaluation, family=family, settings=settings, source=candidate.source
    )


def family_of_task(task: Task) -> WorkFamily:
    """Of a task of which nothing is known yet: its forward runs once, on tensors without data."""
    return family_of(facts_of(task, resolve(NOMINAL), Precision.MATCH))


def _family(task: Task) -> WorkFamily:
    try:
        return family_of_task(task)
    except EggError:  # a task that cannot be traced has no family, and a row all the same
        return WholeFamily.UNKNOWN
