"""One line on what holds a kernel back, and how far it is from its floor."""

from __future__ import annotations

from egg.analysis.diagnose import diagnose
from egg.analysis.evaluated import profile_of
from egg.core.bottleneck import MEANINGS
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.hardware.gpus import Gpu


def diagnosed(evaluation: Evaluation, gpu: Gpu, floor_milliseconds: float | None) -> str:
    """From what the judge saw on its way; work left to libraries is named with its share of the time."""
    told = []
    profile = profile_of(evaluation, gpu)
    if profile is not None:
        whole = diagnose(profile, gpu, floor_milliseconds=floor_milliseconds).whole
        gain = f", {whole.gain:.2f}x without it" if whole.gain >= 1.005 else ""
        told.append(f"{whole.limiter.value}{gain}: {MEANINGS[whole.limiter]}")
        if len(profile.kernels) > 1:
            longest = profile.kernels[0]
            share = longest.best_milliseconds / sum(k.best_milliseconds for k in profile.kernels)
            told.append(f"{longest.name} has {share:.0%} of the own kernels' time")
    if left := _left_to_libraries(evaluation):
        told.append(left)
    return "; ".join(told) or "nothing is known of its kernels"


def _left_to_libraries(evaluation: Evaluation) -> str:
    verdict = evaluation.verdict
    if not isinstance(verdict, Accepted) or not verdict.provenance.library_ops:
        return ""
    names = ", ".join(sorted(verdict.provenance.library_ops))
    share = verdict.provenance.own_share
    if share is None or not isinstance(verdict.performance, Measured):
        return f"left to libraries: {names}"
    return f"left to libraries: {names}, {1 - share:.0%} of the time"
