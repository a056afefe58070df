"""The vocabulary of the gates: every name, of its kind, whatever is known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings

from egg.analysis.diagnose import diagnose
from egg.analysis.features import FEATURES
from egg.core.bottleneck import Limiter
from egg.core.profile import KernelProfile, Profile, Rung
from tests.analysis.profiles import H200, PLANTED, chain
from tests.analysis.test_diagnose import profiles

KINDS = {"number": float, "integer": int, "truth": bool, "word": str}


def seen(name: str, rung: Rung = Rung.COUNTERS):
    return diagnose(PLANTED[name].profile(rung), H200, floor_milliseconds=0.1).features


def test_every_entry_is_explained_and_of_its_kind() -> None:
    for name, feature in FEATURES.items():
        assert name.isidentifier()
        assert feature.meaning
        assert type(feature.neutral) is KINDS[feature.kind], name


@settings(max_examples=100, deadline=None)
@given(profiles())
def test_every_name_is_there_with_a_value_of_its_kind(profile: Profile) -> None:
    found = diagnose(profile, H200).features
    assert list(found) == list(FEATURES)
    for name, value in found.items():
        assert type(value) is KINDS[FEATURES[name].kind], name
        assert not isinstance(value, float) or math.isfinite(value), name


def test_nothing_known_is_nothing_troubling() -> None:
    """Where only a time is known, every number of the kernel is that of one without trouble."""
    library = KernelProfile("k", False, 1, 0.5, None)
    found = diagnose(Profile("p", Rung.TIMES, "H200", (library,), 0.5, None, 1), H200).features
    known = {"rung", "knows_times", "limiter", "kernel_limiter", "kernels", "launches", "library_share"}
    known |= {"leading_share", "milliseconds"}
    assert {name: v for name, v in found.items() if name not in known} == {
        name: f.neutral for name, f in FEATURES.items() if name not in known
    }
    assert found["library_share"] == 1.0
    assert found["knows_times"] is True
    assert not any(found[f"knows_{what}"] for what in ("counters", "resources", "work"))


def test_values_of_a_counted_kernel() -> None:
    found = seen("tf32_wrong_layout")
    assert found["limiter"] == Limiter.TENSOR_IDLE.value
    assert found["tensor_share"] == 0.18
    assert found["bank_conflict_share"] == pytest.approx(0.84)
    assert found["tensor_flops"] == 2 * 4096**3
    assert found["occupancy_limited_by"] == "registers"
    assert found["waves"] == pytest.approx(1024 / 264)
    assert found["last_wave_fill"] == pytest.approx(1024 / 264 % 1)
    assert found["headroom"] == pytest.approx(16.0)
    assert found["async_copies"] == 8
    stalls = [value for name, value in found.items() if name.startswith("stall_")]
    assert sum(float(s) for s in stalls) == pytest.approx(1.0, abs=0.05)


def test_shares_are_modelled_where_they_were_not_counted() -> None:
    counted, modelled = seen("dram_copy"), seen("dram_copy", Rung.TIMES)
    assert counted["dram_share"] == 0.89
    assert modelled["dram_share"] == pytest.approx(0.99, abs=0.03)
    assert modelled["knows_counters"] is False
    assert modelled["stall_memory"] == 0.0


def test_the_whole_program() -> None:
    found = diagnose(chain(launches=40, each=0.0021, span=0.25), H200).features
    assert found["launches"] == 40
    assert found["gap_share"] == pytest.approx(1 - 0.084 / 0.25)
    assert found["own_kernels"] == found["kernels"] == 1
    assert found["limiter"] == "launch"


def test_the_leading_kernel_is_described() -> None:
    small, large = (PLANTED[n].profile(Rung.TIMES).kernels[0] for n in ("polynomial", "dram_copy"))
    both = Profile("p", Rung.TIMES, "H200", (replace(large, milliseconds=0.3), small), 0.94, None, 2)
    found = diagnose(both, H200).features
    assert found["kernel_limiter"] == "fma"
    assert found["grid"] == 32768
    assert found["leading_share"] == pytest.approx(0.64 / 0.94)
