"""Is the task itself sound? Null candidates, which compute nothing worth having, must fail on it.

A benchmark whose answer is zero to within its own tolerance accepts a kernel that writes
zeros. So before any kernel is judged, the task is: each null candidate's answer is held
against the reference at the task's own inputs and under KernelBench's rule. Where one
passes, the task is *degenerate*, every result on it says so, and the audit goes on to look
for inputs and weights (see :mod:`egg.evaluator.task.distributions`) under which the null
candidates that passed fail.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from egg.core.codec import from_json, to_json
from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.task.distributions import DISTRIBUTIONS, redraw, rerandomise
from egg.evaluator.task.nulls import (
    Answer,
    Outputs,
    _without_second_half,
    all_close,
    all_finite,
    closest,
    eight_bits,
    error_of,
    half_outputs,
    mean_of,
)
from egg.evaluator.task.precision import HALF_DTYPES, precision_scope
from egg.evaluator.task.program import Program, map_tensors, outputs_of
from egg.evaluator.task.rescale import CannotRescale, rescale

SCHEMA = "egg.audit/1"
NULLS = ("zeros", "constant", "other input", "input", "affine", "first half", "lower precision")
BUDGETS = ((2e9, 3_000_000, True), (2e10, 50_000_000, False), (1e11, 300_000_000, False))
"""FLOPs and elements of a rescaled audit, and whether only the batch may shrink to meet them: generous
beyond the batch, because a shorter softmax row is another verdict."""
HARD_TOLERANCE = 1e-3
"""Relative to the output's rms, under hardened inputs: far coarser than any honest rounding."""
SEED, OTHER_SEED, FORWARD_SEED = 20_011, 77_003, 5_557
TRIAL_SEEDS = (31_013, 31_033)


@dataclass(frozen=True)
class NullResult:
    """One null candidate at the task's own inputs."""

    name: str
    passes: bool
    error: float
    """Worst rms error over the outputs, relative to each output's rms; infinite if it had no answer."""


@dataclass(frozen=True)
class Audit:
    """What is known about a task's soundness under one precision policy on one kind of device."""

    task: str
    task_hash: str
    precision: Precision
    device: str
    tolerance: float
    nulls: tuple[NullResult, ...]
    stochastic: bool
    constant_inputs: bool
    """``get_inputs`` returns the same values whatever the seed."""
    hardened: tuple[str, ...] = ()
    """Conditions under which every null candidate that passed fails; only sought for a degenerate task."""
    rescaled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Knobs that were changed to fit the machine: old and new value."""
    notes: tuple[str, ...] = ()
    schema: str = SCHEMA

    @property
    def passing(self) -> tuple[str, ...]:
        """The null candidates that make the task degenerate."""
        return tuple(n.name for n in self.nulls if n.passes and n.name != "lower precision")

    @property
    def degenerate(self) -> bool:
        return bool(self.passing)

    @property
    def independent_of_input(self) -> bool:
        return "other input" in self.passing and not self.constant_inputs

    @property
    def precision_blind(self) -> bool:
        """A run in lower precision passes the task's own tolerance."""
        return any(n.passes for n in self.nulls if n.name == "lower precision")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What every result on this task must say."""
        found: list[str] = []
        if self.degenerate:
            cure = (
                f"they fail under: {', '.join(self.hardened)}"
                if self.hardened
                else "no inputs or weights we know make them all fail"
            )
            found.append(
                f"degenerate task: at its own inputs and tolerance {self.tolerance:g} it accepts "
                f"{', '.join(self.passing)}; {cure}"
            )
        if self.independent_of_input:
            found.append("the output is independent of the input at the task's own tolerance")
        if self.constant_inputs:
            found.append("get_inputs() returns the same values whatever the seed")
        if self.precision_blind:
            found.append("the task's own tolerance does not see a run in lower precision")
        if self.stochastic:
            found.append("the reference is stochastic: the random state is fixed before each forward")
        return (*found, *self.notes)

    def to_json(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Audit:
        if data.get("schema") != SCHEMA:
            raise ValueError(f"expected schema {SCHEMA!r}, found {data.get('schema')!r}")
        return from_json(cls, data)


def audit(task: Task, precision: Precision, device: torch.device, *, rescaled: bool) -> Audit:
    """Hold the null candidates against ``task``; with ``rescaled``, at a size a CPU can run."""
    small, changes = _fitted(task) if rescaled else (task, {})
    tolerance = 1e-2 if precision in HALF_DTYPES else 1e-4
    with Program.load(small) as program, precision_scope(precision), torch.no_grad():
        bench = _Bench(program, precision, device)
        module = program.build(SEED, device, precision)
        inputs, others = bench.inputs(SEED), bench.inputs(OTHER_SEED)
        expected = bench.forward(module, inputs)
        notes = [
            f"output {i} of the reference is not finite" for i, e in enumerate(expected) if not all_finite(e)
        ]
        stochastic = error_of([*bench.forward(module, inputs, FORWARD_SEED + 1)], expected) > HARD_TOLERANCE
        errors = dict.fromkeys(NULLS, math.inf)
        passing: list[tuple[str, int]] = []
        for name in NULLS:
            try:
                for way, compute in enumerate(bench.answers(name, module, inputs, others, expected)):
                    answer = compute()
                    errors[name] = min(errors[name], error_of(answer, expected))
                    if all_close(answer, expected, tolerance):
                        passing.append((name, way))
            except TaskError as error:
                notes.append(f"null candidate {name!r} could not run: {error.message}")
        passing = bench.confirmed(module, passing, tolerance)
        accepted = {name for name, _ in passing}
        found = Audit(
            task=task.name,
            task_hash=task.hash,
            precision=precision,
            device=device.type,
            tolerance=tolerance,
            nulls=tuple(NullResult(name, name in accepted, error) for name, error in errors.items()),
            stochastic=stochastic,
            constant_inputs=_same(inputs, others),
            rescaled=changes,
            notes=tuple(notes),
        )
        if not found.degenerate:
            return found
        fooling = [(n, way) for n, way in passing if n in found.passing]
        hardened = tuple(bench.hardened(module, fooling))
        return replace(found, hardened=hardened)


class _Bench:
    """Runs the reference the same way every time: same random state, fresh inputs, buffers put back."""

    def __init__(self, program: Program, precision: Precision, device: torch.device) -> None:
        self._program = program
        self._precision = precision
        self._device = device

    def inputs(self, seed: int) -> list[Any]:
        return self._program.inputs(seed, self._device, self._precision)

    def forward(self, module: nn.Module, inputs: list[Any], seed: int = FORWARD_SEED) -> Outputs:
        kept = [(b, b.clone()) for b in module.buffers()]
        torch.manual_seed(seed)
        value = self._program.run(module, map_tensors(inputs, torch.clone))
        for buffer, before in kept:
            buffer.copy_(before)
        return [torch.as_tensor(v, device=self._device) for _, v in outputs_of(value)]

    def answers(
        self, name: str, module: nn.Module, inputs: list[Any], others: list[Any], expected: Outputs
    ) -> list[Callable[[], Answer]]:
        """The ways null candidate ``name`` may answer, computed when called; one that passes is enough."""
        match name:
            case "zeros":
                return [lambda: [0.0] * len(expected)]
            case "constant":
                return [lambda: [mean_of(e) for e in expected]]
            case "other input":
                return [lambda: list(self.forward(module, others))]
            case "input":
                return [lambda: [closest(e, inputs, affine=False) for e in expected]]
            case "affine":
                return [lambda: [closest(e, inputs, affine=True) for e in expected]]
            case "first half":
                return [*half_outputs(expected), *self._half_inputs(module, inputs)]
            case "lower precision":
                return [lambda: list(self._lower(module, inputs))]
        raise ValueError(name)

    def confirmed(
        self, module: nn.Module, passing: list[tuple[str, int]], tolerance: float
    ) -> list[tuple[str, int]]:
        """Those of ``passing`` (null, way) that pass on further draws too, as KernelBench's trials ask.

        One draw can be luck: the maximum of every row may lie in its first half.
        """
        for seed in TRIAL_SEEDS if passing else ():
            inputs, others = self.inputs(seed), self.inputs(seed + 1)
            expected = self.forward(module, inputs)
            passing = [
                (null, way)
                for null, way in passing
                if all_close(self.answers(null, module, inputs, others, expected)[way](), expected, tolerance)
            ]
        return passing

    def hardened(self, module: nn.Module, passing: list[tuple[str, int]]) -> Iterator[str]:
        """Names of the conditions under which all of ``passing`` (null, way) are visibly wrong.

        Weights are re-randomised under every one of them; ``weights`` is that alone, with the
        task's own inputs.
        """
        has_weights = any(p.is_floating_point() for p in module.parameters())
        rerandomise(module, SEED)
        for name in DISTRIBUTIONS:
            if name == "task" and not has_weights:
                continue
            inputs = redraw(self.inputs(SEED), name, SEED)
            others = redraw(self.inputs(OTHER_SEED), name, OTHER_SEED)
            expected = self.forward(module, inputs)
            if not all(all_finite(e) for e in expected):
                continue
            if all(
                error_of(self.answers(null, module, inputs, others, expected)[way](), expected)
                > HARD_TOLERANCE
                for null, way in passing
            ):
                yield "weights" if name == "task" else name

    def _half_inputs(self, module: nn.Module, inputs: list[Any]) -> list[Callable[[], Answer]]:
        """The answer without the second half of the largest input, along its first and its last axis."""
        floating = [t for t in inputs if isinstance(t, torch.Tensor) and t.is_floating_point() and t.dim()]
        if not floating:
            return []
        largest = max(floating, key=torch.numel)

        def without(axis: int) -> Answer:
            halved = _without_second_half(largest, axis)
            return list(self.forward(module, [halved if t is largest else t for t in inputs]))

        axes = dict.fromkeys((0, largest.dim() - 1))
        return [partial(without, axis) for axis in axes if largest.shape[axis] >= 2]

    def _lower(self, module: nn.Module, inputs: list[Any]) -> Outputs:
        """The reference in bf16; under a 16-bit policy, on operands rounded to 8 bits."""
        lower = copy.deepcopy(module)
        if self._precision not in HALF_DTYPES:
            cast = map_tensors(inputs, lambda t: t.bfloat16() if t.is_floating_point() else t)
            return self.forward(lower.bfloat16(), cast)
        for tensor in (*lower.parameters(), *lower.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(eight_bits(tensor))
        return self.forward(lower, map_tensors(inputs, eight_bits))


def _fitted(task: Task) -> tuple[Task, dict[str, tuple[int, ...]]]:
    refused: CannotRescale | None = None
    for flops, elements, batch_only in BUDGETS:
        try:
            small = rescale(task, max_flops=flops, max_elements=elements, batch_only=batch_only)
        except CannotRescale as error:
            refused = error
        else:
            return small.task, dict(small.changes)
    raise refused or CannotRescale(task.name)


def _same(one: list[Any], other: list[Any]) -> bool:
    flat_one, flat_other = _tensors(one), _tensors(other)
    return len(flat_one) == len(flat_other) and all(map(torch.equal, flat_one, flat_other))


def _tensors(inputs: list[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(inputs, lambda t: found.append(t) or t)
    return found
