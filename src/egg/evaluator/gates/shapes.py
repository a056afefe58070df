"""Correctness at a neighbouring size: is the kernel general, or made for the task's shapes alone?

Being made for them is honest, so a failure here is a warning and no refusal; but whoever
ships the kernel wants to know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from egg.core.errors import EggError
from egg.evaluator.exam import Exam, Refused
from egg.evaluator.gates import build
from egg.evaluator.gates.correctness import examine
from egg.evaluator.process.child import Fault
from egg.evaluator.reference import Reference
from egg.evaluator.task.program import Program
from egg.evaluator.task.rescale import odd_variant


def run(exam: Exam) -> dict[str, Any]:
    other = odd_variant(exam.reference.program.task)
    if other is None:
        return {"other_shapes": "none to be had"}
    sizes = ", ".join(f"{name} {new}" for name, (_, new) in other.changes.items())
    with Program.load(other.task) as program:
        try:
            reference = Reference(program, exam.policy.precision, exam.device)
            outcome = _at(exam, reference)
        except EggError as error:
            return {"other_shapes": f"could not be tried at {sizes}: {error.message}"}
    if outcome:
        exam.warnings.append(f"made for the task's shapes: at {sizes} it fails: {outcome}")
    return {"other_shapes": sizes, "general": not outcome}


def _at(exam: Exam, reference: Reference) -> str:
    """Judge the candidate on another size of the task; empty when it is right there too."""
    variant = Exam(reference, exam.candidate, exam.policy, replace(exam.care, input_sets=1), exam.nursery)
    try:
        build.run(variant)
        examine(variant, reference.case("another size"))
    except Refused as refused:
        return refused.evidence
    except Fault as fault:
        return fault.evidence
    finally:
        variant.close()
    return ""
