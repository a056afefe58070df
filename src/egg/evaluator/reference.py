"""The trusted side of an evaluation: the task's own module, secret questions, and their answers.

Questions are drawn from seeds nobody else sees, after the candidate was loaded; each comes
with the reference's outputs under the declared precision and with those of an fp64 run.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from egg.core.errors import MachineError, TaskError
from egg.core.policy import Precision
from egg.evaluator import exchange, memory
from egg.evaluator.task.distributions import redraw, rerandomise
from egg.evaluator.task.program import Program, map_tensors, outputs_of, precision_scope

BUILD_SEED = 42
"""Parameters are built after this seed on both sides, as KernelBench does; it is no secret."""
FORWARD_SEED = 1234
"""Set before every forward on both sides, for tasks that draw random numbers."""


@dataclass(frozen=True)
class Case:
    """One question with its answers: inputs, the reference's outputs, the fp64 ones."""

    label: str
    inputs: list[Any]
    structure: str
    """The inputs' structure, with the tensors taken out."""
    tensors: list[torch.Tensor]
    outputs: list[tuple[str, Any]]
    golden: list[tuple[str, Any]]
    """Empty where nobody asked for them: they take twice the memory of the outputs."""


@dataclass
class Reference:
    """The task's module on the judging device, under the declared precision.

    It keeps no case: inputs and outputs may be gigabytes, and whoever asked drops them in time.
    """

    program: Program
    precision: Precision
    device: torch.device
    warnings: list[str] = field(default_factory=list)
    stochastic: bool = False
    """Whether forward draws random numbers."""

    def __post_init__(self) -> None:
        with precision_scope(self.precision):
            self.module: nn.Module = self.program.build(BUILD_SEED, self.device, self.precision)
        self.initial = {name: value.detach().clone() for name, value in self.module.state_dict().items()}
        self._has_golden = True
        self.sample = self._first_question()
        """What questions and answers look like: tensors on the meta device, which hold no values."""

    def case(self, label: str, distribution: str = "task", *, golden: bool = True) -> Case:
        """A fresh secret question under the weights the module holds now."""
        seed = secrets.randbits(48)
        inputs = redraw(
            self.program.inputs(seed, self.device, self.precision), distribution, seed ^ 0x5EED
        )  # in one breath: a name for the first of the two would keep both
        return self.answer(label, inputs, golden=golden)

    def question(self, label: str) -> Case:
        """Inputs alone, for a question whose values will change before it is answered."""
        inputs = self.program.inputs(secrets.randbits(48), self.device, self.precision)
        return Case(label, inputs, *exchange.pack(inputs), outputs=[], golden=[])

    def answer(self, label: str, inputs: list[Any], *, golden: bool = True) -> Case:
        """The question ``inputs`` with the answers to it.

        The fp64 run comes first: it is the larger one, and its copies of the inputs are gone
        before the outputs take their place.
        """
        structure, tensors = exchange.pack(inputs)
        exact = self._golden(inputs) if golden else []
        outputs = outputs_of(self.run(inputs))
        return Case(label, inputs, structure, tensors, outputs, outputs if exact is None else exact)

    def run(self, inputs: list[Any], seed: int = FORWARD_SEED) -> Any:
        """One forward under the declared precision."""

        def forward() -> Any:
            torch.manual_seed(seed)
            with precision_scope(self.precision):
                return self.program.run(self.module, inputs)

        return self._with_room(forward)

    def reweigh(self) -> None:
        """New generic weights, the same kind of numbers but none of the special ones."""
        rerandomise(self.module, secrets.randbits(48))

    def restore(self) -> None:
        """Back to the weights the module was built with."""
        self.module.load_state_dict(self.initial)

    def _first_question(self) -> Case:
        """Answer once, to learn what the task is like: shapes, randomness, whether it spares its inputs."""
        inputs = self.program.inputs(secrets.randbits(48), self.device, self.precision)
        structure, tensors = exchange.pack(inputs)
        before = [t.clone() for t in tensors]
        outputs = outputs_of(self.run(inputs))
        if not all(map(same_values, before, tensors)):
            raise TaskError(
                f"task {self.program.task.name!r}: Model.forward changes its inputs in place",
                "make the reference copy them first: its inputs are compared and reused",
            )
        del before
        again = outputs_of(self.run(inputs, FORWARD_SEED + 1))
        self.stochastic = any(_differ(a, b) for (_, a), (_, b) in zip(outputs, again, strict=True))
        if self.stochastic:
            self.warnings.append(
                "the task draws random numbers in forward: both sides run after the same seed"
            )
        return Case(
            "sample",
            map_tensors(inputs, _form_of),
            structure,
            [_form_of(t) for t in tensors],
            [(path, _form_of(o) if isinstance(o, torch.Tensor) else o) for path, o in outputs],
            golden=[],
        )

    def _golden(self, inputs: list[Any]) -> list[tuple[str, Any]] | None:
        """The fp64 answers; ``None`` where there are none (dropout, a dtype fixed in code)."""
        if self.stochastic or not self._has_golden:
            return None

        def forward() -> Any:
            torch.manual_seed(FORWARD_SEED)
            return self.program.golden(self.module, inputs)

        try:
            return outputs_of(self._with_room(forward))
        except (TaskError, MachineError) as error:
            self._has_golden = False
            why = str(error).splitlines()[0]
            self.warnings.append(f"errors are relative to the reference itself: no fp64 run ({why})")
            return None

    def _with_room(self, forward: Callable[[], Any]) -> Any:
        """A forward that found no memory is tried once more, without the garbage."""
        try:
            return forward()
        except MachineError:
            pass  # and out of here: what was raised holds the frames, and those the tensors
        memory.collect(self.device)
        return forward()


def same_values(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in shape, type and every value, NaN equal to NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return all(
        torch.equal(x, y) or bool(((x == y) | ((x != x) & (y != y))).all()) for x, y in memory.pieces(a, b)
    )


def _differ(a: Any, b: Any) -> bool:
    """Whether two runs gave different numbers, beyond what another order of summation explains."""
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    if a.shape != b.shape:
        return True
    return not same_values(a, b) and not all(
        torch.allclose(x.double(), y.double(), 1e-3, 1e-6, equal_nan=True) for x, y in memory.pieces(a, b)
    )


def _form_of(tensor: torch.Tensor) -> torch.Tensor:
    """Shape, strides and dtype, without the values."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
