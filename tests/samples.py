"""Evaluations of every shape, made by hand."""

from __future__ import annotations

from egg.core.evaluation import (
    Accepted,
    Baseline,
    Compiled,
    Correctness,
    Evaluation,
    Gate,
    GateRecord,
    Interval,
    Machine,
    Measured,
    Provenance,
    Refusal,
    Rejected,
)
from egg.core.policy import Policy
from egg.core.resources import KernelResources
from egg.hardware.calibration import Calibration

GPU_MACHINE = Machine(
    "cuda", "NVIDIA H200", "3.12.3", "2.11.0+cu130", "3.6.0", "580.65", ("own user", "landlock")
)
CPU_MACHINE = Machine("cpu", "", "3.11.7", "2.13.0+cpu", "3.9.0")
CORRECTNESS = Correctness(12, 0.31, 0.22, 2.4e-7, 1.1e-6, True)
GATES = (
    GateRecord(Gate.STATIC, True, 0.01, {"kernels": 1}),
    GateRecord(Gate.CORRECTNESS, True, 1.25, {"seeds": 5, "distributions": ["normal", "tiny"]}),
)

CALIBRATION = Calibration(
    gpu="NVIDIA H200",
    driver="580.65.06",
    torch="2.11.0+cu130",
    triton="3.6.0",
    when="2026-05-01T12:00:00+00:00",
    copy_bandwidth=4.2e12,
    read_bandwidth=4.4e12,
    l2_bandwidth=7e12,
    matrix={"fp32": 52e12, "tf32": 408e12, "bf16": 790e12},
    vector_fp32=60e12,
    launch_milliseconds=0.012,
    gap_milliseconds=0.002,
)


def _evaluation(verdict: Accepted | Rejected, machine: Machine, gates=GATES, warnings=()) -> Evaluation:
    return Evaluation(
        "row_softmax",
        "0123456789abcdef",
        "fused",
        "fedcba9876543210",
        Policy(),
        machine,
        verdict,
        gates,
        warnings,
        6.5,
    )


def measured(speedup: float = 1.8, *, faster: bool = True, floor: float | None = 0.028) -> Evaluation:
    ours = Interval(0.0402, 0.0399, 0.0405)
    opponents = tuple(
        Baseline(
            name,
            Interval(0.0402 * gain, 0.0400 * gain, 0.0404 * gain),
            Interval(gain, gain * 0.99, gain * 1.01),
        )
        for name, gain in (("eager", speedup), ("compile", speedup * 0.8))
    )
    performance = Measured("NVIDIA H200", ours, opponents, 0.0061, 0.049, 1.6, floor, faster)
    provenance = Provenance({"softmax_rows": 1}, {}, 0.998)
    return _evaluation(
        Accepted(CORRECTNESS, provenance, performance), GPU_MACHINE, warnings=("the task is degenerate",)
    )


def compiled() -> Evaluation:
    kernel = KernelResources("softmax_rows", (16384, 1, 1), 34, 0, 16, 4, 3, 0, 128)
    spilling = KernelResources("gemm", (32, 16, 1), 255, 440, 65536, 8, 3, 192, 128, launches=2)
    performance = Compiled("sm_90", (kernel, spilling), 0.028, "rows 16384 -> 4")
    return _evaluation(
        Accepted(CORRECTNESS, Provenance({"softmax_rows": 1}, {"aten.mm": 2}, None), performance), CPU_MACHINE
    )


def rejected(evidence: str = "max error 3.1e-2 is 412 times what is allowed") -> Evaluation:
    refusal = Refusal(Gate.CORRECTNESS, "correctness.error", evidence, "check the mask of the last block")
    failed = (*GATES[:1], GateRecord(Gate.CORRECTNESS, False, 0.8))
    return _evaluation(Rejected(refusal), CPU_MACHINE, gates=failed)


WIDE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear({width}, {width}, bias=False)

    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.rand(1024, {width})]

def get_init_inputs():
    return []
"""
"""A task to be filled in: its ``width``, and what its ``forward`` gives."""
