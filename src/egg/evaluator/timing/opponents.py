"""The programs a candidate is timed against: the reference as it is, and as ``torch.compile`` makes it.

Compiled once per task and precision and kept for the next candidate; weights are copied
into the same module, so that what was compiled stays valid.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from egg.core.policy import Precision
from egg.evaluator.task.precision import HALF_DTYPES, precision_scope
from egg.evaluator.task.program import Program, Surrounding, map_tensors
from egg.evaluator.task.seeds import BUILD_SEED
from egg.evaluator.task.written_inputs import spared, written_of
from egg.evaluator.tensors import memory
from egg.evaluator.timing import stopwatch
from egg.evaluator.timing.compiling import compiling_within

Call = Callable[..., Any]

EAGER, COMPILE, REDUCE_OVERHEAD = "eager", "compile", "reduce-overhead"
DEFAULT = "(default precision)"
"""Marks a baseline under PyTorch's own settings, for comparison with papers."""


@dataclass
class Opponent:
    """One baseline: a callable under a precision, warmed up on first use."""

    name: str
    call: Call
    precision: Precision
    widened: bool = False
    """Whether the declared policy narrowed inputs that this opponent takes as the task made them."""
    writes: tuple[int, ...] = ()
    """Inputs that it writes to, by number."""

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        with precision_scope(self.precision), torch.no_grad():
            yield

    def adapted(self, inputs: list[Any]) -> list[Any]:
        """``inputs`` as this opponent takes them: fp32 where a 16-bit policy meets the default."""
        if not (self.name.endswith(DEFAULT) and self.widened):
            return inputs
        return map_tensors(inputs, lambda t: t.float() if t.is_floating_point() else t)

    def time(self, sets: list[list[Any]], repeats: int, device: torch.device) -> list[float]:
        own = [self.adapted(inputs) for inputs in sets]
        drawn = [written_of(spared(inputs, self.writes), self.writes) for inputs in own]

        def renew(index: int) -> None:
            given = written_of(own[index % len(own)], self.writes) if self.writes else {}
            for name, tensor in given.items():
                tensor.copy_(drawn[index % len(own)][name])

        def call(index: int) -> Any:
            return self.call(*own[index % len(own)])

        with self.scope():
            return stopwatch.time_calls(call, repeats, device, before=renew)[0]


@dataclass
class Opponents:
    """All baselines of one task under one policy."""

    program: Program
    precision: Precision
    device: torch.device
    ready: dict[str, Opponent] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    apart: Surrounding = contextlib.nullcontext
    """Surrounds what is compiled."""
    writes: tuple[int, ...] = ()
    """Inputs that forward writes to, by number."""

    def __post_init__(self) -> None:
        self._modules: dict[Precision, nn.Module] = {}
        self._state: dict[str, torch.Tensor] = {}
        """The weights that all of them are timed with; none: as built."""

    def get(self, names: tuple[str, ...], sample: list[Any]) -> list[Opponent]:
        """The named opponents, compiled and warmed; one that cannot be built is left out and reported.

        What Inductor fails to compile it fails to compile for a CUDA graph too: that is not tried again.
        """
        for name in names:
            if name in self.ready or name in self.failed:
                continue
            compiled = name.replace(REDUCE_OVERHEAD, COMPILE)
            if compiled != name and compiled in self.failed:
                self.failed[name] = self.failed[compiled]
                continue
            self._prepare(name, sample)
        return [self.ready[n] for n in names if n in self.ready]

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Give every baseline these weights, in place: what was compiled stays valid."""
        self._state = {name: value.detach().clone() for name, value in state.items()}
        for module in self._modules.values():
            module.load_state_dict(self._state)

    def _prepare(self, name: str, sample: list[Any]) -> None:
        precision = Precision.MATCH if name.endswith(DEFAULT) else self.precision
        opponent = Opponent(
            name, self._build(name, precision), precision, self.precision in HALF_DTYPES, self.writes
        )
        try:
            compiling = contextlib.nullcontext() if name.startswith(EAGER) else compiling_within(self.apart)
            with opponent.scope(), compiling:
                for _ in range(3):
                    opponent.call(*spared(opponent.adapted(sample), self.writes))
                torch.cuda.synchronize(self.device)
        except (
            Exception
        ) as error:  # whatever a compiler may raise: the baseline is missing, and the result says so
            self.failed[name] = f"{type(error).__name__}: {error}"[:300]
        else:
            self.ready[name] = opponent
            return
        memory.collect(self.device)  # a compiler that fails leaves cycles behind, and the inputs in them

    def _build(self, name: str, precision: Precision) -> Call:
        kind, module = name.split(" ")[0], self.module(precision)
        if kind == EAGER:
            return module
        mode = "default" if kind == COMPILE else REDUCE_OVERHEAD
        compiled = torch.compile(module, mode=mode, dynamic=False)
        return compiled if kind == COMPILE else _stepping(compiled)

    def module(self, precision: Precision) -> nn.Module:
        """The reference that the baselines under ``precision`` call."""
        if precision not in self._modules:
            module = self.program.build(BUILD_SEED, self.device, precision)
            if self._state:
                module.load_state_dict(self._state)
            self._modules[precision] = module
        return self._modules[precision]


def _stepping(compiled: Call) -> Call:
    """Tell CUDA-graph trees where each call begins, so that outputs of earlier ones may be reused."""

    def call(*inputs: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(*inputs)

    return call
