"""The roofline: how fast could any program do this much work on this GPU?

A floor used to reject must be one no honest program can pass below, so its compute roof is not
"the peak of the named dtype" but the fastest unit that can *reach the declared accuracy*:

- ``fp32``: fp32-grade results do not need fp32 units. An operand split into two 16-bit parts
  and multiplied as three products (hi·hi, hi·lo, lo·hi) is as accurate as an fp32 product, so
  the roof is a third of the 16-bit peak where that is higher than the FMA peak.
- ``tf32``: TF32 has fp16's ten mantissa bits, so one suitably scaled fp16 product is TF32-grade,
  and the roof is the 16-bit peak, twice the TF32 one.
- ``bf16``, ``fp16``: one 16-bit product; the faster of the two formats.
- ``fp64``, ``fp8``, ``int8``: their own peak.

``match`` is not a precision but an instruction to look at the reference: see
:func:`effective_precision`. Given to the other functions as it is, it means ``fp32``.

Work is counted as the reference's direct algorithm does it. An algorithm that needs fewer
operations (Winograd, FFT, Strassen; skipping structural zeros) honestly passes below a compute
floor counted that way: a caller that rejects must count the least work, or leave a margin.
"""

from __future__ import annotations

from egg.core.errors import UsageError
from egg.hardware.gpus import Gpu

PRODUCTS_FOR_FP32 = 3
"""16-bit products that make one fp32-grade product."""

TF32_GRADE = 1e-5
"""Relative rms error of an fp32 reference beyond which it used TF32: plain fp32 sums stay near 1e-6,
TF32 products are near 3e-4, and averaging in later layers may take an order off."""


def compute_peak(gpu: Gpu, precision: str) -> float:
    """Operations per second of the fastest way to results of this precision on ``gpu``."""
    peaks = gpu.peaks
    half = max(peaks.get("fp16", 0.0), peaks.get("bf16", 0.0))
    candidates = {
        "fp64": (peaks.get("fp64", 0.0),),
        "fp32": (peaks["fp32"], half / PRODUCTS_FOR_FP32),
        "match": (peaks["fp32"], half / PRODUCTS_FOR_FP32),
        "tf32": (peaks["fp32"], peaks.get("tf32", 0.0), half),
        "bf16": (peaks["fp32"], half),
        "fp16": (peaks["fp32"], half),
        "fp8": (peaks["fp32"], half, peaks.get("fp8", 0.0)),
        "int8": (peaks["fp32"], half, peaks.get("int8", 0.0)),
    }
    if precision not in candidates:
        raise UsageError(f"unknown precision: {precision!r}", f"known are {', '.join(candidates)}")
    return max(candidates[precision])


def floor_seconds(gpu: Gpu, *, flops: float, bytes: float, precision: str) -> float:
    """The least time ``flops`` operations over ``bytes`` of compulsory traffic can take on ``gpu``.

    ``bytes`` is what must cross the memory bus at least once: inputs, weights and outputs, each
    counted once and cold.
    """
    if flops < 0 or bytes < 0:
        raise ValueError(f"work cannot be negative: {flops} operations, {bytes} bytes")
    return max(bytes / gpu.bandwidth, flops / compute_peak(gpu, precision))


def effective_precision(declared: str, *, dtype: str, reference_error: float) -> str:
    """The accuracy a candidate is really held to, for choosing the roof.

    A declared precision speaks for itself. Under ``match`` the tolerance follows the reference's
    own error, so the reference decides: its dtype (``float32``, ``torch.bfloat16``...), and for
    fp32 whether the library used TF32 for it, which cuDNN may do unasked.
    """
    if declared != "match":
        return declared
    own = {"float64": "fp64", "bfloat16": "bf16", "float16": "fp16", "int8": "int8"}
    name = dtype.removeprefix("torch.")
    if name in own:
        return own[name]
    if name.startswith("float8"):
        return "fp8"
    return "tf32" if reference_error > TF32_GRADE else "fp32"
