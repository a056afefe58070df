"""What every task of a bundled suite promises, as checks that the tests of each suite call."""

from __future__ import annotations

import ast
import re

import torch

from egg.core.policy import Precision
from egg.core.source import Task
from egg.evaluator.reference.reference import Reference
from egg.evaluator.task.audit import audit
from egg.evaluator.task.distributions import DISTRIBUTIONS
from egg.evaluator.task.knobs import SIZE, find_knobs, rewritten
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import cost_of

CPU = torch.device("cpu")
HALF = re.compile(r"torch\.(bfloat16|float16)|\.(half|bfloat16)\(\)")


def tiny(task: Task) -> Task:
    """Every size a sixteenth, large ones a sixty-fourth: all tasks of a suite run in a few seconds."""
    source = task.source
    sizes = [(k, k.value // (64 if k.value >= 1024 else 16)) for k in find_knobs(source) if k.value >= SIZE]
    return Task(task.name, rewritten(source, sizes))


def names_a_model(task: Task, models: re.Pattern[str]) -> None:
    doc = ast.get_docstring(ast.parse(task.source))
    assert doc
    assert models.search(doc)


def is_worth_a_launch_and_fits_a_gpu(task: Task) -> None:
    """Bounds on an H200: every element written and read once in fp32 at 4 TB/s, products at 50 TFLOP/s at
    least (fp32 without TF32) if they are in fp32; nothing of what is made ever freed, in fp32, in 20 GB."""
    cost = cost_of(task, 10.0)
    assert cost.elements * 4 <= 20e9
    slowest = cost.elements * 8 / 4e12 + cost.flops / (4e14 if HALF.search(task.source) else 5e13)
    assert slowest <= 20e-3
    assert slowest >= 0.02e-3


def runs_is_repeatable_and_has_an_exact_answer(small: Task, *, widened: bool = False) -> None:
    """``widened``: a program that fixes fp32 in its code may be measured by fp64 with its casts widened."""
    with Program.load(small) as program:
        reference = Reference(program, Precision.MATCH, CPU)
        assert not reference.stochastic
        once, again, other = (program.inputs(seed, CPU, Precision.MATCH) for seed in (1, 1, 2))
        assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
        assert not all(torch.equal(a, b) for a, b in zip(once, other, strict=True))
        for kind in DISTRIBUTIONS:
            case = reference.case("drawn", kind)
            for (_, made), (_, exact) in zip(case.outputs, case.golden, strict=True):
                assert torch.isfinite(made).all(), kind
                assert torch.isfinite(exact).all(), kind
                assert made.shape == exact.shape
        assert [
            warning for warning in reference.warnings if not (widened and warning.endswith("casts widened"))
        ] == []


def has_a_sound_audit(small: Task) -> None:
    found = audit(small, Precision.MATCH, CPU, rescaled=False)
    assert found.passing == ()
    assert not found.stochastic
    assert not found.constant_inputs
