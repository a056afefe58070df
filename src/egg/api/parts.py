"""``egg.optimize`` for a module whose course depends on values: each part between such lines is a task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from egg.api.optimizing import environment
from egg.api.progress import progress_on
from egg.api.tuning import Here, tune, waiting
from egg.api.watching import Watcher
from egg.core.errors import UsageError
from egg.core.policy import Precision
from egg.core.settings import Settings
from egg.modules.capture import DependsOnValues
from egg.modules.parts import OptimizedParts, record
from egg.store import Store

log = logging.getLogger("egg")


def optimized_parts(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    why: DependsOnValues,
    settings: Settings,
    folder: Path,
    *,
    dynamic: bool | None,
    progress: bool,
    use_unmeasured: bool,
) -> OptimizedParts:
    """Record what the module computes between its breaks, tune each part, and use what is faster.

    ``folder`` becomes a kernel store. Raises ``why`` where there is no part that could be a task.
    """
    if settings.precision is not Precision.MATCH:
        raise UsageError(
            f"{why.message}; its parts are judged as the program computes, not in {settings.precision.value}",
            "leave the precision out, and set torch.set_float32_matmul_precision",
        ) from why
    record(module, args, kwargs, folder, dynamic)
    store, here = Store(folder, log.warning), Here.now()
    entries = waiting(store, here).entries
    if not entries:
        raise why

    @contextmanager
    def watching(run: Path) -> Iterator[Watcher]:
        with progress_on(run.name, shown=progress) as watcher:
            yield watcher

    try:
        for _ in tune(store, entries, settings, here, environment(), watching):
            pass
    except KeyboardInterrupt:
        log.warning("interrupted: parts that were not tuned yet run as they are")
    return OptimizedParts(module, why.message, folder, dynamic, use_unmeasured)
