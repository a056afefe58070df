"""A judged kernel as a profile: what the judge saw on its way is enough to say what holds a kernel back.

The judge times the whole forward, reads the compiler's resources of every own kernel, and on a GPU times
own kernels and library operators one by one. Where it did not (without a GPU, in older logs) only the time
of a lone kernel is measured; where there are several, each has a predicted time, and says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from egg.analysis.predict import predict
from egg.analysis.program import predicted_milliseconds
from egg.core.evaluation import Accepted, Compiled, Evaluation, Measured, Provenance
from egg.core.profile import KernelProfile, Lowered, Profile, Rung
from egg.core.resources import KernelResources
from egg.hardware.gpus import Gpu

NOT_ASKED = Lowered(
    Rung.COUNTERS, "the judge reads no hardware counters", "run `egg profile` on the kernel to see them"
)
NO_GPU = Lowered(Rung.TIMES, "no GPU ran it", "judge it on a machine with one")


def profile_of(evaluation: Evaluation, gpu: Gpu) -> Profile | None:
    """``None`` for a kernel that was refused, or of which nothing is known but that it is right."""
    verdict = evaluation.verdict
    if not isinstance(verdict, Accepted) or not verdict.performance.kernels:
        return None
    performance = verdict.performance
    library_calls = sum(verdict.provenance.library_ops.values())
    measured = performance.milliseconds.median if isinstance(performance, Measured) else None
    alone = len(performance.kernels) == 1 and not library_calls
    times = verdict.provenance.milliseconds if measured is not None else {}
    kernels = (
        _timed(performance.kernels, verdict.provenance, gpu)
        if times
        else [_kernel(k, gpu, measured if alone else None) for k in performance.kernels]
    )
    return Profile(
        program=evaluation.candidate,
        rung=Rung.RESOURCES if measured is None else Rung.TIMES,
        gpu=gpu.name,
        kernels=tuple(sorted(kernels, key=lambda k: -k.best_milliseconds)),
        milliseconds=measured,
        predicted_milliseconds=_predicted(performance, gpu, library_calls),
        launches=sum(k.launches for k in performance.kernels) + library_calls,
        lowered=(NOT_ASKED,) if measured is not None else (NOT_ASKED, NO_GPU),
    )


def _timed(rows: Sequence[KernelResources], seen: Provenance, gpu: Gpu) -> list[KernelProfile]:
    """Own kernels by name, each described by its largest launch, and what was left to libraries."""
    own = []
    for name in dict.fromkeys(row.name for row in rows):
        each = [_kernel(row, gpu, None) for row in rows if row.name == name]
        largest = max((row for row in rows if row.name == name), key=lambda row: prod(row.grid))
        predicted = [one.predicted_milliseconds for one in each]
        own.append(
            KernelProfile(
                name=name,
                own=True,
                launches=sum(one.launches for one in each),
                milliseconds=seen.milliseconds.get(name),
                predicted_milliseconds=sum(p for p in predicted if p is not None)
                if None not in predicted
                else None,
                resources=largest,
            )
        )
    libraries = [
        KernelProfile(name, False, seen.library_ops.get(name.removeprefix("aten."), 1), milliseconds, None)
        for name, milliseconds in seen.milliseconds.items()
        if name not in seen.kernels and milliseconds > 0
    ]
    return [*own, *libraries]


def _kernel(resources: KernelResources, gpu: Gpu, measured: float | None) -> KernelProfile:
    predicted = predict(resources, gpu)
    return KernelProfile(
        name=resources.name,
        own=True,
        launches=resources.launches,
        milliseconds=measured,
        predicted_milliseconds=predicted and resources.launches * predicted.milliseconds,
        resources=resources,
    )


def _predicted(performance: Measured | Compiled, gpu: Gpu, library_calls: int) -> float:
    if isinstance(performance, Measured):
        performance = Compiled(gpu.name, performance.kernels, performance.floor_milliseconds, "full")
    return predicted_milliseconds(performance, gpu, library_calls)
