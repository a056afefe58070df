"""The programs a candidate is timed against: the reference as it is, and as ``torch.compile`` makes it.

Compiled once per task and precision and kept for the next candidate; weights are copied
into the same module, so that what was compiled stays valid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from egg.core.policy import Precision
from egg.evaluator.program import Program, precision_scope
from egg.evaluator.worker import stopwatch

Call = Callable[..., Any]


@dataclass
class Opponent:
    """One baseline: a callable under a precision, warmed up on first use."""

    name: str
    call: Call
    precision: Precision

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        with precision_scope(self.precision), torch.no_grad():
            yield

    def time(self, sets: list[list[Any]], repeats: int, device: torch.device) -> list[float]:
        with self.scope():
            return stopwatch.time_calls(lambda i: self.call(*sets[i % len(sets)]), repeats, device)[0]


@dataclass
class Opponents:
    """All baselines of one task under one policy."""

    program: Program
    precision: Precision
    module: nn.Module
    ready: dict[str, Opponent] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def get(self, names: tuple[str, ...], sample: list[Any], device: torch.device) -> list[Opponent]:
        """The named opponents, compiled and warmed; one that cannot be built is left out and said so."""
        for name in names:
            if name not in self.ready and name not in self.failed:
                self._prepare(name, sample, device)
        return [self.ready[n] for n in names if n in self.ready]

    def _prepare(self, name: str, sample: list[Any], device: torch.device) -> None:
        opponent = Opponent(name, self._build(name, device), self._precision(name))
        try:
            with opponent.scope():
                for _ in range(3):
                    opponent.call(*sample)
                torch.cuda.synchronize(device)
        except (
            Exception
        ) as error:  # whatever a compiler may raise: the baseline is missing, and the result says so
            self.failed[name] = f"{type(error).__name__}: {error}"[:300]
            return
        self.ready[name] = opponent

    def _precision(self, name: str) -> Precision:
        return Precision.MATCH if name.endswith("(default precision)") else self.precision

    def _build(self, name: str, device: torch.device) -> Call:
        kind = name.split(" ")[0]
        if kind == "eager":
            return self.module
        torch._dynamo.reset()
        mode = "default" if kind == "compile" else "reduce-overhead"
        compiled = torch.compile(self.module, mode=mode, dynamic=False)
        return compiled if kind == "compile" else _stepping(compiled)


def _stepping(compiled: Call) -> Call:
    """Tell CUDA-graph trees where each call begins, so that outputs of earlier ones may be reused."""

    def call(*inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*inputs)

    return call
