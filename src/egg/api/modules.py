"""EGG in a person's program: a live module in, a module with verified kernels out.

The module is captured as a task (:mod:`egg.modules.capture`); the run, the teams and the judge are those of
the command line, in processes of their own. What comes back has the original's weights and answers every
call: with the kernel where it is verified and faster, with the original everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import nn

from egg.api.optimizing import begin, carry_on, environment, run_name
from egg.api.parts import optimized_parts
from egg.api.progress import progress_on
from egg.api.runs import state_of
from egg.core.errors import EggError, UsageError
from egg.core.evaluation import Evaluation
from egg.core.policy import Level, Policy, Precision
from egg.core.settings import ModelChoice, Settings
from egg.core.source import Candidate, Task
from egg.engine.budgets import find_budget
from egg.engine.state import RunState
from egg.modules import saving
from egg.modules.arithmetic import is_coarser
from egg.modules.capture import DependsOnValues, captured
from egg.modules.capture_types import Captured
from egg.modules.fast import Optimized, as_module
from egg.modules.outcome import Outcome
from egg.modules.parts import OptimizedParts
from egg.store import is_store

RUNS = "egg-runs"


def optimize(
    module: nn.Module | Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    team: str = "expert",
    budget: str = "quick",
    precision: str = "match",
    dynamic: bool | None = None,
    target: str | None = None,
    device: str = "auto",
    model: ModelChoice | None = None,
    start: Candidate | str | Path | None = None,
    folder: str | Path | None = None,
    progress: bool = True,
    use_unmeasured: bool = False,
) -> Optimized | OptimizedParts:
    """A module that answers as ``module`` does, with verified kernels where they are faster.

    ``args`` and ``kwargs`` are those of one call; tensors in them show shapes, dtypes and what values are
    like. Sizes may differ later where ``dynamic`` is not false and the program permits it. ``budget``:
    ``sketch``, ``quick``, ``standard`` or ``deep``. ``start`` is a kernel file of one's own for the captured
    task, a path or its text, as :func:`judge` takes it: the run judges it first, and improves it. ``folder``
    keeps the run (``egg-runs/<name>`` where it is left out). Interrupted with Ctrl-C, it returns the best
    that was verified until then.

    ``use_unmeasured`` lets a kernel answer that is verified and whose speed is unknown, for tests without a
    GPU (with ``TRITON_INTERPRET=1`` in the environment, kernels then run in Triton's interpreter).

    A module whose course depends on values (``.item()``, ``nonzero``) is optimized in parts, those before and
    behind such lines; the folder is then a kernel store.

    Raises :class:`~egg.core.errors.TaskError` for a module that cannot be captured, with the line and what
    to do about it.
    """
    live = as_module(module)
    first = _candidate(start) if start is not None else None
    settings = Settings(
        team=team,
        budget=find_budget(budget),
        precision=_precision(precision),
        device=device,
        target=target,
        model=model,
    )
    try:
        found = captured(live, args, kwargs, dynamic=dynamic)
    except DependsOnValues as why:
        if first is not None:
            raise
        name = f"{type(live).__name__}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
        where = Path(folder) if folder is not None else Path(RUNS) / name
        how = {"dynamic": dynamic, "progress": progress, "use_unmeasured": use_unmeasured}
        return optimized_parts(live, args, kwargs or {}, why, settings, where, **how)
    settings = replace(settings, precision=_precision_of(found, settings.precision))
    where = Path(folder) if folder is not None else Path(RUNS) / run_name(found.task)
    outcome = ran(found.task, settings, where, progress, first)
    return Optimized(live, found, outcome, use_unmeasured=use_unmeasured)


def ran(
    task: Task, settings: Settings, folder: Path, progress: bool = False, first: Candidate | None = None
) -> Outcome:
    """The outcome of a run for ``task``, which begins with the kernel ``first``; one that is interrupted ends
    with what it had reached."""
    interrupted = False
    with progress_on(task.name, shown=progress) as watcher:
        try:
            begin(task, settings, folder, environment(), first=first)
            carry_on(folder, state_of(folder), watcher, environment())
        except KeyboardInterrupt:
            interrupted = True
    try:
        state = state_of(folder)
    except EggError:
        if not interrupted:
            raise
        return Outcome(task, None, None, "interrupted before anything was verified", str(folder))
    return outcome_of(state, folder, interrupted)


def outcome_of(state: RunState, folder: Path, interrupted: bool = False) -> Outcome:
    """What a run returns, or has reached."""
    task, closed = state.started.task, state.closed
    if closed is None:
        best = state.best_kernel
        why = "interrupted" if interrupted else "the run waits"
        if best is None:
            return Outcome(task, None, None, f"{why} before a kernel was verified", str(folder))
        return Outcome(
            task, best.candidate.source, best.evaluation, f"{why}; the best until then", str(folder)
        )
    kernel = state.kernels.get(closed.candidate) if closed.candidate is not None else None
    if kernel is None:
        last = next((step.reason for step in reversed(state.steps) if step.reason), "")
        return Outcome(task, None, None, f"{closed.reason}: {last}" if last else closed.reason, str(folder))
    return Outcome(task, kernel.candidate.source, kernel.evaluation, closed.reason, str(folder))


def load(
    folder: str | Path, module: nn.Module | Callable[..., Any], *, use_unmeasured: bool = False
) -> Optimized | OptimizedParts:
    """``module`` with the kernel that ``fast.save(folder)`` kept, or with the kernels for its parts."""
    live = as_module(module)
    if is_store(Path(folder)):
        return OptimizedParts(live, "its course depends on values", Path(folder), None, use_unmeasured)
    found, outcome = saving.load(Path(folder), live)
    return Optimized(live, found, outcome, use_unmeasured=use_unmeasured)


def judge(
    task: nn.Module | Callable[..., Any] | Task | str | Path,
    kernel: Candidate | str | Path,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    precision: str = "match",
    level: str = "full",
    device: str = "auto",
    target: str | None = None,
) -> Evaluation:
    """The judge's verdict on a kernel file: for a task file, or for a live module at these arguments.

    A kernel for a module defines ``ModelNew`` for the task that ``egg.optimize`` captures from it
    (``fast.captured.task``). A path is read; any other text is a kernel file's source.
    """
    from egg.evaluator.judge.oracle import Oracle
    from egg.evaluator.judge.question import Question
    from egg.evaluator.process.machine import device_name

    question = Question(
        _task(task, args, kwargs),
        _candidate(kernel),
        Policy(_precision(precision), level=_level(level)),
        target,
    )
    oracle = Oracle(device_name(device))
    try:
        return oracle.judge(question)
    finally:
        oracle.close()


def _task(given: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Task:
    if isinstance(given, Task):
        return given
    if isinstance(given, str | Path):
        return Task.from_file(Path(given))
    if isinstance(given, Optimized):
        return given.captured.task
    return captured(given, args, kwargs).task


def _candidate(given: Candidate | str | Path) -> Candidate:
    if isinstance(given, Candidate):
        return given
    if isinstance(given, Path) or "\n" not in given:
        return Candidate.from_file(Path(given))
    return Candidate(given)


def _precision_of(found: Captured, chosen: Precision) -> Precision:
    """The precision that was named; ``match`` is fp32 where the program has TF32 switched off."""
    return Precision.FP32 if found.device == "cuda" and is_coarser(chosen) else chosen


def _precision(name: str) -> Precision:
    try:
        return Precision(name)
    except ValueError:
        raise UsageError(f"unknown precision: {name!r}", f"one of {', '.join(Precision)}") from None


def _level(name: str) -> Level:
    try:
        return Level(name)
    except ValueError:
        raise UsageError(f"unknown level: {name!r}", f"one of {', '.join(Level)}") from None
