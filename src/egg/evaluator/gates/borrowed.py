"""Answers that PyTorch's operators make in parts: in halves, all rows but one, in a buffer with spare rows.

Sketches compare tensors as large as the answer. Here runs of its elements (:mod:`..operators.runs`) are
looked for in whatever the operators make, once with the own kernels at work and once without them:

- without them, nearly all of the answer is found: a library computes it, the kernels put it together;
- with them, nearly all is found in what operators made of inputs and weights alone, as by their values: the
  kernels copied an input, a library did the rest.

A program that selects from what it computed (a maximum behind a convolution, a mask) has values of an earlier
operation in its answer: a kernel that takes over the selection is honest. So it says nothing where the
reference's own answer is found in results of the reference that do not wholly belong to the answer. Neither
does the second rule where the reference itself moves or gathers: taking over that part is a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from egg.evaluator.operators.ops import Recorder
from egg.evaluator.operators.runs import LEAST_DISTINCT, Flow, Runs, drawn, readable, runs_along, tensors_in
from egg.evaluator.reference.case import Case
from egg.evaluator.transport.protocol import Found
from egg.evaluator.trial.trial import Trial
from egg.evaluator.trial.watch import NEARLY_ALL

SMALL = 0.1
"""Of the answer's elements: an output of fewer need not be looked for."""
SELECTED = 0.5
"""Of the reference's answer that is found in its own earlier results: then the program selects."""
DRAWS = 4
"""Of inputs: of a small draw a clip may change nothing, as if there were none."""

Wanted = tuple[tuple[float, ...], ...]


def wanted_runs(case: Case, answers: Sequence[torch.Tensor], seed: int) -> Wanted:
    """Numbers of runs to look for, by output; empty where an output of some size has none that say anything.

    What the inputs hold anyway is left out.
    """
    given = Runs(case.tensors)
    outputs = [
        answer
        for (_, form), answer in zip(case.outputs, answers, strict=True)
        if isinstance(form, torch.Tensor)
    ]
    total = sum(answer.numel() for answer in outputs)
    found = [(answer, _telling(answer, given, seed)) for answer in outputs]
    if any(not runs and answer.numel() > SMALL * total for answer, runs in found):
        return ()
    return tuple(runs for _, runs in found)


def _telling(answer: torch.Tensor, given: Runs, seed: int) -> tuple[float, ...]:
    if not readable(answer) or answer.dtype is torch.bool:
        return ()
    runs = drawn(answer, seed)
    own = runs[~given.hold(runs)]
    return tuple(own.tolist()) if own.unique().numel() >= LEAST_DISTINCT else ()


def made_by_library(found: Sequence[Found]) -> bool:
    """Whether operators made nearly all of every answer."""
    return _nearly_all([one.made for one in found])


def made_of_inputs(found: Sequence[Found]) -> bool:
    """Whether operators made nearly all of every answer of inputs and weights alone."""
    return _nearly_all([one.alone for one in found])


def _nearly_all(found: Sequence[tuple[bool, ...]]) -> bool:
    shares = [sum(one) / len(one) for one in found if one]
    return bool(shares) and min(shares) >= NEARLY_ALL


def selects(trial: Trial, case: Case, seed: int) -> bool:
    """Whether the reference's answer consists of values of its own earlier results, in any of some draws."""
    return _selects(trial, case, seed) or any(
        _selects(trial, trial.reference.case(case.label, golden=False), seed) for _ in range(DRAWS - 1)
    )


def _selects(trial: Trial, case: Case, seed: int) -> bool:
    answers = [answer for _, answer in case.outputs if isinstance(answer, torch.Tensor)]
    inner = _Inner(answers, wanted_runs(case, [answer for _, answer in case.outputs], seed), seed)
    with trial.reference.spared(), Recorder(flow=inner):
        trial.reference.run(case.inputs, case.seed)
    shares = [float(one.double().mean()) for one in inner.made if one.numel()]
    return not shares or max(shares) >= SELECTED


class _Inner(Flow):
    """Finds runs of the answers in results that do not wholly belong to the answers."""

    def __init__(self, answers: Sequence[torch.Tensor], wanted: Wanted, seed: int) -> None:
        super().__init__(wanted, (), seed)
        self._answers = Runs(answers)

    def given(self, operands: Any) -> bool:
        return False

    def see(self, result: Any, *, given: bool, computes: bool) -> None:
        inner = [t for t in tensors_in(result) if readable(t) and not self._belongs(t)]
        super().see(inner, given=given, computes=computes)

    def _belongs(self, tensor: torch.Tensor) -> bool:
        return bool(self._answers.hold(runs_along(tensor)[0]).all())
