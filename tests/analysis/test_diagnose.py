"""The planted limiter is named, with counters and without; and nothing that can be seen is no obstacle."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from egg.analysis.diagnose import diagnose
from egg.analysis.rules import EXPLAINS, RULES
from egg.core.bottleneck import Bottleneck, Limiter
from egg.core.codec import to_json
from egg.core.profile import Counter, KernelProfile, Profile, Rung
from egg.hardware.gpus import Gpu
from tests.analysis.h200_readings import READINGS
from tests.analysis.kernels import gpus, kernels
from tests.analysis.profiles import H200, MB, PLANTED, Planted, chain, counted, resources, streaming

BOTH = (Rung.COUNTERS, Rung.TIMES)
by_name = pytest.mark.parametrize("name", PLANTED)


def found(planted: Planted, rung: Rung = Rung.COUNTERS) -> Bottleneck:
    (kernel,) = diagnose(planted.profile(rung), H200).kernels
    return kernel


def evidence_of(kernel: Bottleneck, name: str) -> float:
    return next(e.value for e in kernel.evidence if e.name == name)


# -- what was planted --------------------------------------------------------------------------------


def test_every_limiter_has_a_rule_and_a_planted_kernel() -> None:
    assert set(RULES) == set(Limiter)
    assert {p.limiter for p in PLANTED.values()} | {Limiter.LAUNCH} == set(Limiter)


@by_name
@pytest.mark.parametrize("rung", BOTH)
def test_the_planted_limiter_is_named(name: str, rung: Rung) -> None:
    assert found(PLANTED[name], rung).limiter is PLANTED[name].limiter


@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("rung", BOTH)
def test_kernels_read_on_a_real_gpu(name: str, rung: Rung) -> None:
    """By time alone the small product lies between L2 and the tensor cores: second will do."""
    seen = found(READINGS[name], rung)
    named = [seen.limiter, *(s.limiter for s in seen.suspects)][: 1 if rung is Rung.COUNTERS else 2]
    assert READINGS[name].limiter in named


FIXED = ("grid", "threads", "blocks_by_", "registers", "shared_bytes")


@st.composite
def shaken(draw: st.DrawFn) -> Planted:
    """A planted kernel, every measured and counted number of which is off by up to a tenth."""
    planted = draw(st.sampled_from(list(PLANTED.values())))
    numbers = draw(st.randoms(use_true_random=False))

    def off(value: float) -> float:
        return value * numbers.uniform(0.9, 1.1)

    counters = {
        name: value if name.startswith(FIXED) else min(1.0, off(value)) if value <= 1.0 else off(value)
        for name, value in planted.counters.items()
    }
    work = planted.kernel.work
    assert work is not None
    work = replace(
        work,
        tensor_flops={precision: off(flops) for precision, flops in work.tensor_flops.items()},
        product_flops=off(work.product_flops),
        flops=off(work.flops),
        special=off(work.special),
        imbalance=max(1.0, off(work.imbalance)),
    )
    return replace(
        planted,
        milliseconds=off(planted.milliseconds),
        counters=counters,
        kernel=replace(planted.kernel, work=work),
    )


@settings(max_examples=300, deadline=None)
@given(shaken(), st.sampled_from(BOTH))
def test_a_tenth_more_or_less_changes_nothing(planted: Planted, rung: Rung) -> None:
    assert found(planted, rung).limiter is planted.limiter


# -- what is told ------------------------------------------------------------------------------------


@by_name
@pytest.mark.parametrize("rung", [*BOTH, Rung.RESOURCES])
def test_a_diagnosis_is_explained(name: str, rung: Rung) -> None:
    kernel = found(PLANTED[name], rung)
    assert kernel.evidence
    assert all(math.isfinite(e.value) for e in kernel.evidence)
    assert all(e.says[0].isupper() and e.says.endswith(".") for e in kernel.evidence)
    assert kernel.unless
    assert kernel.gain >= 1.0
    assert kernel.share == 1.0
    gains = [s.gain for s in kernel.suspects]
    assert gains == sorted(gains, reverse=True)
    assert kernel.limiter not in {s.limiter for s in kernel.suspects}


def test_a_kernel_at_memorys_roof_has_nothing_to_gain() -> None:
    kernel = found(PLANTED["dram_copy"])
    assert kernel.gain < 1.2
    assert kernel.headroom == pytest.approx(1.14, abs=0.02)
    assert evidence_of(kernel, "dram_rate") == pytest.approx(4.2, abs=0.1)


def test_headroom_is_time_over_the_floor_of_the_work() -> None:
    planted = PLANTED["strided_copy"]
    assert found(planted).headroom == pytest.approx(planted.milliseconds / (2 * 16.8 * MB / 4.8e12 * 1e3))


# -- causes before symptoms --------------------------------------------------------------------------


def test_causes_do_not_explain_each_other_in_a_circle() -> None:
    def reached(limiter: Limiter) -> set[Limiter]:
        seen: set[Limiter] = set()
        ahead = [limiter]
        while ahead:
            new = EXPLAINS.get(ahead.pop(), frozenset()) - seen
            seen |= new
            ahead += new
        return seen

    assert not [cause for cause in Limiter if cause in reached(cause)]


@pytest.mark.parametrize("rung", BOTH)
def test_spills_that_are_not_felt_are_not_named(rung: Rung) -> None:
    copy = PLANTED["dram_copy"]
    mix = copy.kernel.instructions
    assert mix is not None
    spilling = replace(copy.kernel, spill_bytes=64, instructions=replace(mix, local=6))
    counters = copy.counters | {"local_instructions": 0.01 * copy.counters["instructions"]}
    assert found(replace(copy, kernel=spilling, counters=counters), rung).limiter is Limiter.DRAM


@pytest.mark.parametrize("rung", BOTH)
def test_narrow_loads_at_memorys_roof_are_not_named(rung: Rung) -> None:
    copy = PLANTED["dram_copy"]
    kernel = replace(copy.kernel, widest_load_bits=16)
    assert found(replace(copy, kernel=kernel), rung).limiter is Limiter.DRAM


def test_bank_conflicts_behind_memorys_roof_are_not_named() -> None:
    copy = PLANTED["dram_copy"]
    counters = copy.counters | {"shared_wavefronts": 1e7, "shared_conflicts": 8e6}
    assert found(replace(copy, counters=counters)).limiter is Limiter.DRAM


def test_low_occupancy_of_a_grid_that_would_not_fill_more_is_not_named() -> None:
    crowded = PLANTED["many_registers"]
    kernel = replace(crowded.kernel, grid=(132 // 2, 1, 1))
    few = replace(crowded, kernel=kernel, counters=counted(kernel, (1, 32, 8, 32), sm_cycles_mean=5e4))
    assert found(few).limiter is Limiter.SMALL_GRID


def test_a_chain_of_loads_is_no_small_grid() -> None:
    """More programs would not help one that needs each load for the next."""
    chase = PLANTED["pointer_chase"]
    kernel = replace(chase.kernel, grid=(64, 1, 1), work=streaming(64 * 4096 * 4.0, 256.0, iterations=4096.0))
    for rung in BOTH:
        assert found(
            replace(chase, kernel=kernel, counters=counted(kernel, (64, 32, 64, 32))), rung
        ).limiter in (Limiter.LATENCY,)


def test_the_worse_the_access_the_greater_the_gain() -> None:
    strided = PLANTED["strided_copy"]
    gains = []
    for times in (3.0, 5.0, 8.0):
        work = streaming(16.8 * MB, 16.8 * MB, scattered_read=times)
        kernel = replace(strided.kernel, work=work)
        sectors = {"load_sectors": 16.8 * MB * times / 32, "store_sectors": 16.8 * MB / 32}
        seen = found(replace(strided, kernel=kernel, counters=strided.counters | sectors))
        gains.append(seen.gain)
    assert gains == sorted(gains)
    assert gains[0] < gains[-1]


# -- the whole ---------------------------------------------------------------------------------------


def test_a_chain_of_tiny_kernels_is_bound_by_launches() -> None:
    whole = diagnose(chain(), H200).whole
    assert whole.limiter is Limiter.LAUNCH
    assert whole.gain > 3
    assert whole.kernel == ""
    assert whole.unless


def test_tiny_kernels_without_gaps_are_bound_by_launches_too() -> None:
    whole = diagnose(chain(launches=40, each=0.003, span=0.121), H200).whole
    assert whole.limiter is Limiter.LAUNCH


def test_a_chain_that_no_gpu_ran_is_bound_by_launches() -> None:
    seen = chain()
    kernels = tuple(replace(k, milliseconds=None) for k in seen.kernels)
    unseen = replace(seen, rung=Rung.RESOURCES, milliseconds=None, kernels=kernels)
    assert diagnose(unseen, H200).whole.limiter is Limiter.LAUNCH


def several(*parts: tuple[Planted, float], span: float | None = None) -> Profile:
    made = tuple(
        replace(p.profile(Rung.TIMES).kernels[0], name=f"{p.kernel.name}_{i}", milliseconds=ms)
        for i, (p, ms) in enumerate(parts)
    )
    busy = sum(ms for _, ms in parts)
    return Profile("several", Rung.TIMES, "H200", made, span or busy, None, len(parts))


def test_the_largest_kernel_speaks_for_the_whole() -> None:
    seen = diagnose(several((PLANTED["polynomial"], 0.64), (PLANTED["dram_copy"], 0.511)), H200)
    assert seen.whole.limiter is Limiter.FMA
    assert evidence_of(seen.whole, "share") == pytest.approx(0.64 / (0.64 + 0.511))
    assert [k.share for k in seen.kernels] == pytest.approx([0.556, 0.444], abs=0.001)


def test_gaps_around_kernels_at_their_floor_are_what_there_is_to_gain() -> None:
    copy = (PLANTED["dram_copy"], 0.511)
    assert diagnose(several(copy, copy, span=2.0), H200).whole.limiter is Limiter.LAUNCH
    assert diagnose(several(copy, copy, span=1.05), H200).whole.limiter is Limiter.DRAM


def test_a_kernel_far_from_its_floor_outweighs_small_gaps() -> None:
    slow = (PLANTED["strided_copy"], 0.098)
    assert diagnose(several(slow, slow, span=0.28), H200).whole.limiter is Limiter.UNCOALESCED


def test_what_kernels_pass_on_through_memory_is_told() -> None:
    seen = several((PLANTED["dram_copy"], 0.511), (PLANTED["dram_copy"], 0.511))
    whole = diagnose(seen, H200, floor_milliseconds=0.45).whole
    assert evidence_of(whole, "passed_on") == pytest.approx(2.0, abs=0.05)
    assert whole.headroom == pytest.approx(1.022 / 0.45)
    assert "passed_on" not in {e.name for e in diagnose(seen, H200, floor_milliseconds=0.8).whole.evidence}


def test_only_a_time() -> None:
    """A library's kernel of which nothing else is known: no gain is promised."""
    library = KernelProfile("ampere_sgemm", False, 1, 0.5, None)
    seen = diagnose(Profile("p", Rung.TIMES, "H200", (library,), 0.5, None, 1), H200)
    assert (seen.whole.limiter, seen.whole.gain) == (Limiter.LATENCY, 1.0)
    tiny = replace(library, milliseconds=0.002)
    assert (
        diagnose(Profile("p", Rung.TIMES, "H200", (tiny,), 0.002, None, 1), H200).kernels[0].limiter
        is Limiter.LAUNCH
    )


def test_nothing_at_all() -> None:
    seen = diagnose(Profile("p", Rung.MODEL, "H200", (), None, None, 0), H200)
    assert seen.kernels == ()
    assert seen.whole.gain == 1.0
    assert seen.whole.evidence


# -- whatever is seen --------------------------------------------------------------------------------


@by_name
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.sets(st.sampled_from(list(Counter))))
def test_any_counters_may_be_missing(name: str, kept: set[Counter]) -> None:
    planted = PLANTED[name]
    some = {c: v for c, v in planted.counters.items() if c in kept}
    kernel = found(replace(planted, counters=some))
    assert kernel.gain >= 1.0
    assert kernel.evidence


values = st.floats(-1.0, 2.0) | st.floats(0, 1e12) | st.sampled_from([math.nan, math.inf, 0.0])
times = st.none() | st.floats(0, 1e4)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Whatever a profiler may hand over, sense or not."""
    rung = draw(st.sampled_from(Rung))
    seen = draw(
        st.lists(
            st.builds(
                KernelProfile,
                name=st.just("k"),
                own=st.booleans(),
                launches=st.integers(0, 100),
                milliseconds=times if rung.measured else st.none(),
                predicted_milliseconds=times,
                resources=st.none() | kernels,
                counters=st.dictionaries(st.sampled_from([c.value for c in Counter]), values)
                if rung is Rung.COUNTERS
                else st.just({}),
            ),
            max_size=4,
        )
    )
    span = draw(st.floats(0, 1e4)) if rung.measured else None
    return Profile("p", rung, "H200", tuple(seen), span, draw(times), draw(st.integers(0, 400)))


@settings(max_examples=200, deadline=None)
@given(profiles(), gpus, st.none() | st.floats(0, 100))
def test_any_profile_has_one_limiter_and_always_the_same(
    profile: Profile, gpu: Gpu, floor: float | None
) -> None:
    seen = diagnose(profile, gpu, floor_milliseconds=floor)
    assert len(seen.kernels) == len(profile.kernels)
    for found in (seen.whole, *seen.kernels):
        assert isinstance(found.limiter, Limiter)
        assert 1.0 <= found.gain <= 10.0
        assert 0.0 <= found.share <= 1.0
        assert found.evidence
        assert found.unless
        assert found.headroom is None or found.headroom > 0
        assert found.limiter not in {s.limiter for s in found.suspects}
    assert diagnose(profile, gpu, floor_milliseconds=floor) == seen
    travelled = Profile.from_json(json.loads(json.dumps(profile.to_json())))
    assert to_json(diagnose(travelled, gpu, floor_milliseconds=floor)) == to_json(seen)


def test_an_unknown_gpu_generation_is_no_obstacle() -> None:
    strange = replace(H200, arch="sm_999", tensor={}, sms=1)
    for planted in PLANTED.values():
        assert diagnose(planted.profile(), strange).whole.evidence


def test_resources_without_work_still_speak() -> None:
    few = replace(resources("k", 8, streaming(1 * MB, 1 * MB)), work=None)
    seen = KernelProfile("k", True, 1, 1.0, None, few)
    assert (
        diagnose(Profile("p", Rung.TIMES, "H200", (seen,), 1.0, None, 1), H200).whole.limiter
        is Limiter.SMALL_GRID
    )
