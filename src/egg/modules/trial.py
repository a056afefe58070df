"""Two compiled forms of one program, timed on its own calls: the faster one stays.

A region that is faster by itself need not make the model faster: what the compiler fused across its border
is lost. So the first calls of a model take turns between the form with kernels and the form without, each
call computed once, by one of them, and timed by the GPU's own clock. The form with kernels stays where it is
faster beyond the noise; otherwise it is rolled back. The verdict is kept in the store, so that a later
process compiles one form alone.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

Call = Callable[..., Any]
WARM, ROUNDS = 3, 10
"""Calls of each form that are not timed, and that are."""
LEAST_GAIN = 0.01


class Trial:
    """Answers calls with one of two forms, and with the faster one once that is known."""

    def __init__(self, kernels: Call, plain: Call, decided: Callable[[float, bool], None]) -> None:
        self._forms = (kernels, plain)
        self._decided = decided
        self._times: tuple[list[Any], list[Any]] = ([], [])
        self._turn = 0
        self._chosen: Call | None = None

    def __call__(self, *args: Any) -> Any:
        if self._chosen is not None:
            return self._chosen(*args)
        which, self._turn = self._turn % 2, self._turn + 1
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        made = self._forms[which](*args)
        end.record()
        self._times[which].append((start, end))
        if self._turn == 2 * (WARM + ROUNDS):
            self._decide()
        return made

    def _decide(self) -> None:
        torch.cuda.synchronize()
        with_kernels, plain = (
            [start.elapsed_time(end) for start, end in times[WARM:]] for times in self._times
        )
        ratio, keep = compared(with_kernels, plain)
        self._chosen = self._forms[0 if keep else 1]
        self._decided(ratio, keep)


def compared(kernels: list[float], plain: list[float]) -> tuple[float, bool]:
    """How many times faster the form with kernels is, and whether that is beyond the noise.

    The noise is how far the upper quartile of either form lies above its median.
    """
    ratio = median(plain) / median(kernels)
    noise = max(_quartile(times) / median(times) - 1 for times in (kernels, plain))
    return ratio, ratio > 1 + max(noise, LEAST_GAIN)


def _quartile(times: list[float]) -> float:
    return sorted(times)[(3 * len(times)) // 4]
