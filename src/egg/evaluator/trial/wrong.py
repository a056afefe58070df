"""What a refusal says of values that are wrong."""

from __future__ import annotations

from collections.abc import Mapping

from egg.core.evaluation import RefusalFacts
from egg.core.policy import Precision
from egg.evaluator.compare.compare import LeafError
from egg.evaluator.compare.integers import Crossed
from egg.evaluator.reference.case import Case
from egg.evaluator.trial.refused import Refused


def inexact(
    case: Case, path: str, error: LeafError, precision: Precision, names: Mapping[str, str]
) -> Refused:
    """Of an output whose values are not what they must be. ``names``: the candidate's parameters, each with
    the reference's name for it."""
    if error.problem:
        return Refused(
            "correctness.values", f"{case.label}, output {path}: {error.problem}",
            "look at masks (a masked load without other= holds anything), at elements that no program "
            "writes, and at overflow",
        )  # fmt: skip
    whole = error.max_ratio <= 1.0 and error.rms_ratio <= 1.0
    if whole and error.lost_ratio <= 1.0:
        band = error.band
        return Refused(
            "correctness.small_values",
            f"{case.label}, output {path}: elements of about {band.size:.1e} are off by "
            f"{band.relative:.1e} of themselves (rms), where the reference is by {band.reference:.1e}; "
            f"that is {band.ratio:.1f}x what is allowed",
            "elements of every magnitude and slices of every scale must be as exact as the output's type "
            "makes them: no coarser rounding, cut or correction where it hardly shows beside larger ones",
            band.relative,
            RefusalFacts(relative_error=band.relative, excess=band.ratio),
        )
    if whole:
        return Refused(
            "correctness.small_values",
            f"{case.label}, output {path}: {100 * error.lost:.2g}% of the elements are off by more than "
            "a hundredth of their own value, and the reference is not",
            "small elements count beside large ones: compute every element to its own precision",
            error.lost,
        )
    inaccurate = (
        f"too inaccurate for precision '{precision.value}': accumulate in fp32, round TF32 "
        "operands to nearest, or declare another --precision"
    )
    return Refused(
        "correctness.error",
        f"{case.label}, output {path}: relative rms error {error.relative:.2e} where the reference has "
        f"{error.reference_relative:.2e}; {error.max_ratio:.1f}x the allowed max error, "
        f"{error.rms_ratio:.1f}x the allowed rms error",
        _wrong_values(names) if error.relative > 1e-2 else inaccurate,
        error.relative,
        RefusalFacts(relative_error=error.relative, excess=max(error.max_ratio, error.rms_ratio)),
    )


def _wrong_values(names: Mapping[str, str]) -> str:
    """Where names differ, parameters were matched by their order: that may be the fault."""
    other = [f"{own} <- {theirs}" for own, theirs in names.items() if own != theirs]
    if not other:
        return "wrong values"
    return (
        f"wrong values; parameters were matched by order ({', '.join(other[:4])}) and hold Model's "
        "values as Model lays them out: keep its names and layout, and pack a transposed copy from them "
        "(keyed on `_version`)"
    )


def crossed(case: Case, path: str, found: Crossed) -> Refused:
    """Of integers, too many of which are the next one."""
    return Refused(
        "correctness.values",
        f"{case.label}, output {path}: {found.candidate} of {found.count} integers so far are the one beside "
        f"the reference's, of which {found.reference} are others than the exact run's",
        "round as the reference does: half to even, not up or toward zero",
    )
