"""The roofline of a run's kernel, from what its log holds.

The judge keeps the work and resources of every own kernel, so each has its place. In a log without them
(or of a kernel that calls libraries only) the whole forward stands there as one point: the task's own
operations and bytes in the time that was measured.
"""

from __future__ import annotations

from dataclasses import replace

from egg.analysis.evaluated import profile_of
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.facts import Facts, Family, Operation, ProgramFacts, Workload
from egg.hardware.gpus import Gpu, find
from egg.report.roofline import Point, Roofline, roofline


def roofline_of(name: str, facts: Facts, evaluation: Evaluation, gpu: Gpu) -> Roofline | None:
    """``None`` where nothing is known of task or kernels."""
    program = facts.program
    chart = roofline(
        profile_of(evaluation, gpu), gpu, facts.gpu, _workload(program) if program is not None else None
    )
    chart = replace(chart, program=name)
    if chart.points:
        return chart
    point = _whole(evaluation, program, chart) if program is not None else None
    if point is not None:
        return replace(chart, points=(point,), undrawn=(), whole=True)
    return chart if chart.ideal is not None else None


def judged_on(evaluation: Evaluation, target: Gpu | None) -> Gpu | None:
    """The GPU that a kernel was timed on, or compiled for, where the table knows it."""
    if not isinstance(evaluation.verdict, Accepted):
        return target
    performance = evaluation.verdict.performance
    return find(performance.gpu if isinstance(performance, Measured) else performance.target) or target


def _workload(program: ProgramFacts) -> Workload:
    """The task's work as far as a picture needs it: one operation for each family.

    Logs of older versions count products and convolutions alone, without their families.
    """
    counted = program.flops_by_family or {Family.PRODUCT.value: program.flops}
    operations = [
        Operation(name, Family(name), (), (), flops, 0, 0)
        for name, flops in counted.items()
        if name in list(Family) and flops
    ]
    return Workload({}, {}, {}, tuple(operations), program.least_bytes)


def _whole(evaluation: Evaluation, program: ProgramFacts, chart: Roofline) -> Point | None:
    verdict = evaluation.verdict
    if not isinstance(verdict, Accepted) or not isinstance(verdict.performance, Measured):
        return None
    if not program.least_bytes:
        return None
    milliseconds = verdict.performance.milliseconds.median
    bandwidth = program.least_bytes / (milliseconds * 1e-3)
    intensity, best = chart.ideal or 0.0, chart.ideal_rate or chart.bandwidth
    rate = intensity * bandwidth
    return Point(
        letter="A",
        name="whole forward",
        share=1.0,
        milliseconds=milliseconds,
        measured=True,
        intensity=intensity,
        rate=rate,
        bandwidth=bandwidth,
        of_roof=(rate or bandwidth) / best,
    )
