"""A judged kernel read as a profile: what was measured, what is predicted, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from egg.analysis.diagnose import diagnose
from egg.analysis.evaluated import profile_of
from egg.core.bottleneck import Limiter
from egg.core.evaluation import Accepted, Compiled, Evaluation, Interval, Measured, Provenance
from egg.core.profile import Profile, Rung
from egg.core.resources import KernelResources
from egg.hardware.gpus import resolve
from tests import samples
from tests.analysis.kernels import GEMM, SOFTMAX

H200 = resolve("H200")


def judged(
    *kernels: KernelResources, milliseconds: float | None = 0.5, library: dict[str, int] | None = None
) -> Evaluation:
    """Accepted with these kernels; on a GPU in ``milliseconds``, without one where that is ``None``."""
    evaluation = samples.measured()
    verdict = evaluation.verdict
    assert isinstance(verdict, Accepted)
    performance = verdict.performance
    assert isinstance(performance, Measured)
    if milliseconds is None:
        performance = Compiled("H200", kernels, 0.028, "full")
    else:
        time = Interval(milliseconds, milliseconds * 0.99, milliseconds * 1.01)
        performance = replace(performance, milliseconds=time, kernels=kernels)
    launched = Provenance({k.name: k.launches for k in kernels}, library or {}, 1.0)
    return replace(evaluation, verdict=replace(verdict, provenance=launched, performance=performance))


def seen(evaluation: Evaluation) -> Profile:
    found = profile_of(evaluation, H200)
    assert found is not None
    return found


def test_nothing_is_said_of_a_refused_kernel_or_one_without_resources():
    assert profile_of(samples.rejected(), H200) is None
    assert profile_of(samples.measured(), H200) is None
    assert profile_of(judged(), H200) is None


def test_the_time_of_a_lone_kernel_is_the_whole():
    profile = seen(judged(replace(SOFTMAX, launches=2)))
    assert (profile.rung, profile.milliseconds, profile.launches) == (Rung.TIMES, 0.5, 2)
    [kernel] = profile.kernels
    assert kernel.milliseconds == 0.5
    assert kernel.own


@pytest.mark.parametrize(
    "evaluation", [judged(SOFTMAX, GEMM), judged(SOFTMAX, library={"aten.mm": 1})], ids=["two", "library"]
)
def test_where_others_share_the_time_each_is_predicted_and_the_whole_measured(evaluation):
    profile = seen(evaluation)
    assert profile.milliseconds == 0.5
    assert all(k.milliseconds is None for k in profile.kernels)
    assert all(k.predicted_milliseconds for k in profile.kernels)


def test_times_of_own_kernels_and_of_library_calls_are_taken_as_measured():
    evaluation = judged(replace(SOFTMAX, launches=2), SOFTMAX, library={"topk": 3})
    verdict = evaluation.verdict
    assert isinstance(verdict, Accepted)
    ran = replace(
        verdict.provenance, milliseconds={"aten.topk": 0.35, "softmax_rows": 0.1, "aten.empty": 0.0}
    )
    profile = seen(replace(evaluation, verdict=replace(verdict, provenance=ran)))
    assert [(k.name, k.own, k.launches, k.milliseconds) for k in profile.kernels] == [
        ("aten.topk", False, 3, 0.35),
        ("softmax_rows", True, 3, 0.1),
    ]
    found = diagnose(profile, H200)
    assert [(k.own, k.share) for k in found.kernels] == [(False, 0.7), (True, 0.2)]
    assert found.whole.limiter is found.kernels[1].limiter, "nothing is known of the library's but its time"
    assert found.whole.evidence[-1].name == "library_share"
    assert found.features["library_share"] == pytest.approx(0.35 / 0.45)


def test_longest_first():
    assert [k.name for k in seen(judged(SOFTMAX, GEMM)).kernels] == ["gemm", "softmax_rows"]


def test_without_a_gpu_nothing_is_measured_and_the_profile_says_why():
    profile = seen(judged(SOFTMAX, milliseconds=None, library={"aten.mm": 2}))
    assert (profile.rung, profile.milliseconds, profile.launches) == (Rung.RESOURCES, None, 3)
    assert profile.predicted_milliseconds
    assert [lowered.rung for lowered in profile.lowered] == [Rung.COUNTERS, Rung.TIMES]


def test_a_kernel_whose_work_is_unknown_has_no_predicted_time():
    [kernel] = seen(judged(replace(SOFTMAX, work=None), milliseconds=None)).kernels
    assert kernel.predicted_milliseconds is None


@pytest.mark.parametrize("milliseconds", [6.0, None], ids=["measured", "compiled"])
def test_it_is_enough_for_a_diagnosis(milliseconds):
    mix = SOFTMAX.instructions
    assert mix is not None
    spilling = replace(
        GEMM, spill_bytes=3000, registers=255, instructions=replace(mix, total=900, local=500, looped=600)
    )
    profile = seen(judged(spilling, milliseconds=milliseconds))
    assert diagnose(profile, H200).whole.limiter is Limiter.SPILLS
