"""A case: one question to both sides, and the answers that the candidate's are compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from egg.evaluator.reference.yardstick import Draws, Yardstick
from egg.evaluator.task.seeds import FORWARD_SEED


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
    """Empty where they were not asked for: they take twice the memory of the outputs."""
    own: bool = True
    """Whether inputs and weights are the task's own, as KernelBench draws them."""
    draws: Draws | None = None
    """What the reference drew at random in its run."""
    seed: int = FORWARD_SEED
    """Set before the forward on both sides, for tasks that draw random numbers."""
    leeway: float = 1.0
    """How many times as much as usual is allowed for conditioning."""
    yardstick: Yardstick = Yardstick.FP64
    """What the golden answers are."""
    returned: str = ""
    """The structure of the reference's result; empty where it is not compared."""
    stands: str = ""
    """Where the random generators stood behind the reference's run; empty where it draws nothing."""
