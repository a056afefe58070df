"""One line on what holds a kernel back, and how far it is from its floor."""

from __future__ import annotations

from egg.analysis.diagnose import diagnose
from egg.core.bottleneck import MEANINGS
from egg.core.evaluation import Accepted, Evaluation, Measured
from egg.core.profile import Profile
from egg.hardware.gpus import Gpu


def diagnosed(
    evaluation: Evaluation, profile: Profile | None, gpu: Gpu | None, floor_milliseconds: float | None
) -> tuple[str, str]:
    """The limiter by its name, and the line: work left to libraries is named with its share of the time."""
    limiter, parts = "", []
    if profile is not None and gpu is not None:
        whole = diagnose(profile, gpu, floor_milliseconds=floor_milliseconds).whole
        limiter = whole.limiter.value
        gain = f", {whole.gain:.2f}x without it" if whole.gain >= 1.005 else ""
        parts.append(f"{limiter}{gain}: {MEANINGS[whole.limiter]}")
        time = sum(kernel.best_milliseconds for kernel in profile.kernels)
        if len(profile.kernels) > 1 and time > 0:
            longest = profile.kernels[0]
            share = longest.best_milliseconds / time
            parts.append(f"{longest.name} has {share:.0%} of the own kernels' time")
    if left := _left_to_libraries(evaluation):
        parts.append(left)
    return limiter, "; ".join(parts)


def _left_to_libraries(evaluation: Evaluation) -> str:
    verdict = evaluation.verdict
    if not isinstance(verdict, Accepted) or not verdict.provenance.library_ops:
        return ""
    names = ", ".join(sorted(verdict.provenance.library_ops))
    share = verdict.provenance.own_share
    if share is None or not isinstance(verdict.performance, Measured):
        return f"left to libraries: {names}"
    return f"left to libraries: {names}, {1 - share:.0%} of the time"
