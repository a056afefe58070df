"""What kind of task: the same for tasks alike, and nothing of what a program is called or computes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egg.core.codec import from_json, to_json
from egg.core.facts import Facts, Family, GpuFacts, ProgramFacts, Savings
from egg.memory.signature import TaskSignature, kinship, signature_of, similarity

H200 = GpuFacts("H200", "sm_90", 132, 232448, 65536, 50 << 20, 4.8e12, 3.3e14, 0.1)


def facts(
    families: dict[str, float],
    *shapes: str,
    operations: tuple[str, ...] = (),
    flops: float = 0.0,
    least: int = 1 << 28,
    eager: dict[str, float] | None = None,
) -> Facts:
    program = ProgramFacts(flops, least, shapes, operations, families)
    savings = None if eager is None else Savings(sum(eager.values()), 1.0, 1.0, eager)
    return Facts(GpuFacts(**{**vars(H200), "savings": savings}), program)


SOFTMAX = facts({"softmax": 5.0 * (1 << 26)}, "x float32[8192, 8192]", "output float32[8192, 8192]")
PRODUCT = facts(
    {"product": 2.0 * (1 << 36), "pointwise": float(1 << 24)},
    "a float16[4096, 4096]",
    "b float16[4096, 4096] with strides [1, 4096]",
    "eps float = 1e-05",
    "output float32[4096, 4096]",
    flops=2.0 * (1 << 36),
)


def test_families_sizes_dtype_and_bound() -> None:
    found = signature_of(SOFTMAX)
    assert found.families == {"softmax": 1.0}
    assert found.sizes == {"bytes": 28, "columns": 13, "flops": 0, "rows": 13}
    assert (found.dtype, found.bound) == ("float32", "memory")
    product = signature_of(PRODUCT)
    assert max(product.families, key=lambda name: product.families[name]) == "product"
    assert (product.dtype, product.bound) == ("float16", "compute")


def test_the_facts_own_times_by_family_come_first() -> None:
    known = facts({"product": 1e12}, "x float32[8, 8]", eager={"convolution": 3.0, "pointwise": 1.0})
    assert signature_of(known).families == {"convolution": 0.8, "pointwise": 0.2}


@pytest.mark.parametrize(
    ("operation", "family"),
    [
        ("aten.addmm [64, 64]", "product"),
        ("aten.convolution [8, 8, 8, 8]", "convolution"),
        ("aten._softmax [64, 64]", "softmax"),
        ("aten.native_layer_norm [64, 64]", "normalization"),
        ("aten.cumsum [64, 64]", "scan"),
        ("aten.embedding [64, 64]", "gather"),
        ("aten.cat [64, 64]", "movement"),
        ("aten.mean [64]", "reduction"),
        ("aten.gelu [64, 64]", "pointwise"),
        ("aten.max_pool2d_with_indices [8, 8]", "pooling"),
        ("aten.mse_loss []", "loss"),
    ],
)
def test_a_log_without_counts_is_read_by_the_names_of_its_operations(operation: str, family: str) -> None:
    known = facts({}, "x float32[64, 64]", operations=(operation,))
    assert signature_of(known).families == {family: 1.0}


def test_moves_count_though_they_compute_nothing() -> None:
    known = facts(
        {"pointwise": 1e6, "movement": 0.0},
        "x float32[1000, 1000]",
        operations=("aten.add [1000, 1000]", "aten.clone [1000, 1000]"),
    )
    assert signature_of(known).families == {"movement": 0.5, "pointwise": 0.5}


def test_without_a_program_nothing_is_known() -> None:
    assert signature_of(Facts(H200, None)) == TaskSignature()
    assert TaskSignature().key == "unknown unknown unknown-bound"


def test_the_key_reads_as_a_description_and_names_nothing_of_the_program() -> None:
    secret = facts({"softmax": 5e6}, "secret_project float32[1000, 1000]")
    key = signature_of(secret).key
    assert "secret" not in key
    assert key.startswith("softmax:1 float32 memory-bound")


def test_it_survives_json() -> None:
    for known in (SOFTMAX, PRODUCT):
        found = signature_of(known)
        assert from_json(TaskSignature, to_json(found)) == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"families": {"magic": 1.0}},
        {"families": {"softmax": 2.0}},
        {"families": {"softmax": float("nan")}},
        {"sizes": {"rows": 1000}},
        {"sizes": {"rows": 1.5}},
        {"sizes": {"luck": 3}},
        {"dtype": "two\nlines"},
        {"bound": "luck"},
    ],
)
def test_no_other_signature_can_be_built(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="no "):
        TaskSignature(**wrong)  # type: ignore[arg-type]


# -- likeness --------------------------------------------------------------------------------------

SIGNATURES = st.builds(
    TaskSignature,
    families=st.dictionaries(
        st.sampled_from([f.value for f in Family]),
        st.sampled_from([n / 10 for n in range(1, 11)]),
        max_size=4,
    ),
    sizes=st.dictionaries(st.sampled_from(["rows", "columns", "bytes", "flops"]), st.integers(0, 60)),
    dtype=st.sampled_from(["float32", "bfloat16", "other", "unknown"]),
    bound=st.sampled_from(["memory", "compute", "unknown"]),
)


@given(SIGNATURES, SIGNATURES)
def test_similarity_is_symmetric_and_between_nothing_and_one(
    one: TaskSignature, other: TaskSignature
) -> None:
    assert similarity(one, other) == pytest.approx(similarity(other, one))
    assert 0.0 <= similarity(one, other) <= 1.0
    assert similarity(one, other) <= similarity(one, one) + 1e-9


def test_the_same_task_is_wholly_alike() -> None:
    assert similarity(signature_of(SOFTMAX), signature_of(SOFTMAX)) == pytest.approx(1.0)


def test_families_decide_then_sizes_then_dtype() -> None:
    base = TaskSignature({"softmax": 1.0}, {"rows": 12, "columns": 12}, "float32", "memory")
    narrower = TaskSignature({"softmax": 1.0}, {"rows": 12, "columns": 12}, "float16", "memory")
    smaller = TaskSignature({"softmax": 1.0}, {"rows": 5, "columns": 5}, "float32", "memory")
    mixed = TaskSignature({"softmax": 0.3, "product": 0.7}, {"rows": 12, "columns": 12}, "float32", "memory")
    other = TaskSignature({"product": 1.0}, {"rows": 12, "columns": 12}, "float32", "memory")
    found = [similarity(base, each) for each in (base, narrower, smaller, mixed, other)]
    assert found == sorted(found, reverse=True)
    assert all(a > b for a, b in itertools.pairwise(found))
    assert found[-1] == 0.0


@dataclass(frozen=True)
class Named:
    name: str
    arch: str


def test_gpus_are_alike_by_model_then_architecture_then_vendor() -> None:
    h200, h100 = Named("NVIDIA H200", "sm_90"), Named("NVIDIA H100 80GB HBM3", "sm_90")
    a100, mi300 = Named("NVIDIA A100-SXM4-80GB", "sm_80"), Named("AMD Instinct MI300X", "gfx942")
    found = [kinship(h200, each) for each in (Named("H200", "sm_90"), h100, a100, mi300)]
    assert found == [1.0, 0.8, 0.5, 0.25]
    assert kinship(Named("some card", "gfx1201"), mi300) == 0.5
