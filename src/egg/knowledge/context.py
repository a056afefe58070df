"""What is known at one moment of a run, under the names in which skills ask.

Four sources, each speaking for itself: the facts of the program and what fusion could save on the
GPU (:mod:`egg.core.facts`), the diagnosis of the kernel that is built on (:mod:`egg.analysis`),
the text of that kernel (:mod:`egg.knowledge.code_features`), and the GPU with the terms of the run.
Whatever one of them does not know has its neutral value, so a context is always whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from egg.core.bottleneck import Diagnosed, Value
from egg.core.evaluation import Refusal
from egg.core.facts import Facts, Family
from egg.core.policy import LibraryCalls, Policy
from egg.hardware.gpus import Gpu
from egg.knowledge.code_features import code_features
from egg.knowledge.vocabulary import VOCABULARY, complete

Context = Mapping[str, Value]

TMA = 9.0
"""Compute capability from which on tiles are copied in bulk by the hardware."""
WARP_GROUPS = ("sm_90", "sm_100", "sm_103")
"""Architectures whose matrix instructions are those of a whole warp group or of more."""


def context_of(
    facts: Facts,
    diagnosis: Diagnosed | None,
    source: str | None,
    gpu: Gpu | None,
    policy: Policy,
    refusal: Refusal | None = None,
) -> Context:
    """Every name of the vocabulary with its value; ``gpu`` is ``None`` where the table has no such GPU.

    ``refusal`` is the one to repair: then ``source`` is the file that was refused.
    """
    return complete(
        {
            **(_known(diagnosis.features) if diagnosis is not None else {}),
            **_of_the_program(facts),
            **code_features(source),
            **_of_the_gpu(facts, gpu),
            **_of_the_refusal(refusal),
            "precision": policy.precision.value,
            "library_allowed": policy.library_calls is LibraryCalls.ALLOW,
        }
    )


def _known(values: Mapping[str, Value]) -> dict[str, Value]:
    """Those the vocabulary has: a log may be older or newer than it."""
    return {name: value for name, value in values.items() if name in VOCABULARY}


def _of_the_program(facts: Facts) -> dict[str, Value | None]:
    """Work and operators; by the roofline of the GPU, what fusion could save and who takes the time."""
    program, gpu = facts.program, facts.gpu
    if program is None:
        return {}
    by_family = program.flops_by_family
    known: dict[str, Value | None] = {
        "program_known": True,
        "flops": program.flops,
        "program_other_flops": max(0.0, sum(by_family.values()) - program.flops),
        "least_bytes": program.least_bytes,
        "eager_bytes": program.eager_bytes,
        "eager_launches": program.eager_launches,
        "floor_ms": gpu.floor_milliseconds,
        "memory_bound": _memory_bound(facts),
        **{f"has_{family.value}": family.value in by_family for family in Family},
        **_known(program.traits),
    }
    saved = gpu.savings
    if saved is not None and min(saved.eager, saved.whole) > 0:
        known["fusion_gain"] = saved.eager / saved.whole
        known["pointwise_gain"] = saved.eager / saved.pointwise_fused if saved.pointwise_fused > 0 else None
        for family in Family:
            share = saved.eager_by_family.get(family.value, 0.0) / saved.eager
            known[f"{family.value}_share"] = min(1.0, share)
    return known


def _memory_bound(facts: Facts) -> bool | None:
    program, gpu = facts.program, facts.gpu
    if program is None or not (gpu.bandwidth and gpu.peak_flops):
        return None
    return program.least_bytes / gpu.bandwidth >= program.flops / gpu.peak_flops


def _of_the_refusal(refusal: Refusal | None) -> dict[str, Value | None]:
    """The size of the error, where the judge measured one: NaN and infinity have none."""
    facts = refusal.facts if refusal is not None else None
    if facts is None:
        return {}
    error = facts.relative_error
    return {
        "error_known": error is not None and math.isfinite(error),
        "error_relative": error,
        "error_excess": facts.excess,
        "error_own_size": facts.own_size,
    }


def _of_the_gpu(facts: Facts, gpu: Gpu | None) -> dict[str, Value | None]:
    """The row of the table where there is one, else what the run's facts say of the GPU."""
    own = facts.gpu
    arch = gpu.arch if gpu is not None else own.arch
    capability = compute_capability(arch)
    peaks = gpu.peaks if gpu is not None else {}
    return {
        "vendor": gpu.vendor if gpu is not None else "amd" if arch.startswith("gfx") else "nvidia",
        "arch": arch,
        "compute_capability": capability,
        "sms": own.sms,
        "shared_per_block": own.shared_per_block,
        "l2_bytes": own.l2_bytes,
        "bandwidth": own.bandwidth,
        "has_tma": capability >= TMA,
        "has_warp_groups": arch in WARP_GROUPS,
        "has_fp8": "fp8" in peaks,
    }


def compute_capability(arch: str) -> float:
    """``9.0`` of ``sm_90``, ``10.0`` of ``sm_100``; 0 of any other vendor's."""
    found = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", arch)
    return float(f"{found[1]}.{found[2]}") if found else 0.0
