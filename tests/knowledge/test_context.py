"""A context has every name of the vocabulary, from whatever is known."""

from __future__ import annotations

import math

import pytest

from egg.core.bottleneck import Bottleneck, Diagnosed, Limiter
from egg.core.codec import from_json, to_json
from egg.core.facts import Facts, Family, GpuFacts, ProgramFacts, Savings
from egg.core.policy import LibraryCalls, Policy, Precision
from egg.core.profile import Rung
from egg.hardware.gpus import resolve
from egg.knowledge.context import compute_capability, context_of
from egg.knowledge.vocabulary import VOCABULARY

H200 = resolve("H200")
POLICY = Policy(Precision.TF32, LibraryCalls.FORBID)
PROGRAM = ProgramFacts(
    flops=2e12,
    least_bytes=10**9,
    shapes=("x float32[8, 8]",),
    operations=("aten.mm [8, 8]",),
    flops_by_family={"product": 2e12, "pointwise": 1e6, "gather": 0.0},
    eager_bytes=3 * 10**9,
    eager_launches=4,
    traits={"deep_product": True, "rows": 4096, "dtype": "bfloat16"},
)
SAVINGS = Savings(3.0, 2.0, 1.5, {"product": 2.4, "pointwise": 0.6})


def gpu_facts(savings: Savings | None = SAVINGS, peak: float = 4e14) -> GpuFacts:
    return GpuFacts("H200", "sm_90", 132, 232448, 65536, 50 << 20, 4.8e12, peak, 1.4, savings)


def test_every_name_has_a_value_of_its_kind_even_when_nothing_is_known() -> None:
    nothing = Facts(GpuFacts("other", "sm_99", 1, 1, 1, 1, 1.0, 1.0, None), None)
    kinds = {"number": float, "integer": int, "truth": bool, "word": str}
    for context in (
        context_of(nothing, None, None, None, Policy()),
        context_of(Facts(gpu_facts(), PROGRAM), None, "x = 1", H200, POLICY),
    ):
        assert context.keys() == VOCABULARY.keys()
        for name, value in context.items():
            assert type(value) is kinds[VOCABULARY[name].kind], name
            assert not isinstance(value, float) or math.isfinite(value), name


def test_what_the_facts_say() -> None:
    context = context_of(Facts(gpu_facts(), PROGRAM), None, None, H200, POLICY)
    assert context["program_known"]
    assert context["flops"] == 2e12
    assert context["program_other_flops"] == pytest.approx(1e6)
    assert context["fusion_gain"] == 2.0
    assert context["pointwise_gain"] == 1.5
    assert context["product_share"] == pytest.approx(0.8)
    assert context["pointwise_share"] == pytest.approx(0.2)
    assert context["has_gather"], "it moves bytes, if it computes nothing"
    assert not context["has_convolution"]
    assert context["floor_ms"] == 1.4
    assert not context["memory_bound"], "5 ms of products against 0.2 ms of bytes"
    assert context["rows"] == 4096
    assert context["deep_product"]
    assert context["dtype"] == "bfloat16"
    assert not context["has_base"]


def test_memory_bound_by_the_slower_roof() -> None:
    light = Facts(gpu_facts(), ProgramFacts(1e9, 10**9, (), ()))
    assert context_of(light, None, None, H200, POLICY)["memory_bound"]


def test_the_gpu_and_the_terms() -> None:
    context = context_of(Facts(gpu_facts(), PROGRAM), None, None, H200, POLICY)
    assert (context["vendor"], context["arch"], context["compute_capability"]) == ("nvidia", "sm_90", 9.0)
    assert context["has_tma"]
    assert context["has_warp_groups"]
    assert context["has_fp8"]
    assert context["sms"] == 132
    assert (context["precision"], context["library_allowed"]) == ("tf32", False)


@pytest.mark.parametrize("name", ["A100", "MI300X"])
def test_other_gpus(name: str) -> None:
    gpu = resolve(name)
    facts = GpuFacts(gpu.name, gpu.arch, gpu.sms, 1, 1, 1, gpu.bandwidth, 1e14, None)
    context = context_of(Facts(facts, None), None, None, gpu, Policy())
    assert context["vendor"] == gpu.vendor
    assert not context["has_tma"]
    assert not context["has_warp_groups"]
    assert context["has_fp8"] == (name == "MI300X")


@pytest.mark.parametrize(
    ("arch", "capability"),
    [("sm_90", 9.0), ("sm_90a", 9.0), ("sm_86", 8.6), ("sm_100", 10.0), ("gfx942", 0.0)],
)
def test_compute_capability(arch: str, capability: float) -> None:
    assert compute_capability(arch) == capability


def test_a_diagnosis_brings_its_features_and_no_others() -> None:
    whole = Bottleneck("", Limiter.SPILLS, 1.5, 2.0, 1.0, (), "")
    found = Diagnosed(Rung.RESOURCES, whole, (), {"spill_bytes": 648, "limiter": "spills", "newer": 1})
    context = context_of(Facts(gpu_facts(), PROGRAM), found, None, H200, POLICY)
    assert context["spill_bytes"] == 648
    assert context["limiter"] == "spills"
    assert "newer" not in context


def test_facts_keep_their_traits_and_shares_through_a_log() -> None:
    facts = Facts(gpu_facts(), PROGRAM)
    assert from_json(Facts, to_json(facts)) == facts
    old = to_json(facts)
    del old["program"]["traits"], old["gpu"]["savings"]["eager_by_family"]
    context = context_of(from_json(Facts, old), None, None, H200, POLICY)
    assert context["rows"] == 0, "a log from before they were kept claims nothing"
    assert all(context[f"{family.value}_share"] == 0 for family in Family)
