"""Matrix products at the precision a tensor core would give them.

The interpreter multiplies whatever it gets in full float32. A GPU does not: float32
operands are TF32 unless the kernel asks otherwise, and that is the difference between a
kernel that meets a float32 tolerance and one that does not.
"""

from __future__ import annotations

import numpy as np

from egg.evaluator.interpreter import narrow

INTEGER_KINDS = "iub"
HALF_STEP = 16
"""Products that one instruction of a tensor core adds to a float16 accumulator."""


def operand(data: np.ndarray, dtype_name: str) -> np.ndarray:
    """An operand's values as numpy can multiply them: narrow floats widened, exactly."""
    if dtype_name == "bf16":
        return narrow.bf16_to_f32(data)
    if dtype_name in narrow.FLOAT8:
        return narrow.f8_to_f32(data, dtype_name)
    return data


def product(a: np.ndarray, b: np.ndarray, acc: np.ndarray, precision: str) -> np.ndarray:
    """``a @ b + acc`` in the accumulator's type.

    Integers go through float64, where every int8 product sum is exact and BLAS is used. A
    float16 accumulator is rounded behind every instruction. ``precision`` matters to float32 operands
    only: ``tf32`` truncates them; ``tf32x3`` and ``bf16x6`` recover float32 to its last bits,
    so plain float32 stands for them; ``bf16x3`` keeps two bf16 pieces of each operand.
    """
    if acc.dtype.kind in INTEGER_KINDS:
        return (np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64) + acc).astype(
            acc.dtype
        )
    if acc.dtype == np.float64:
        return np.matmul(a, b, dtype=np.float64) + acc
    a, b = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
    if acc.dtype == np.float16:
        for k in range(0, a.shape[-1], HALF_STEP):
            step = np.matmul(a[..., k : k + HALF_STEP], b[..., k : k + HALF_STEP, :])
            acc = (step + acc.astype(np.float32)).astype(np.float16)
        return acc
    if precision == "TF32":
        a, b = narrow.truncate_to_tf32(a), narrow.truncate_to_tf32(b)
    multiply = _three_bf16_products if precision == "BF16x3" else np.matmul
    return (multiply(a, b) + acc).astype(acc.dtype, copy=False)


def _three_bf16_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a_high, b_high = (narrow.bf16_to_f32(narrow.f32_to_bf16(x)) for x in (a, b))
    a_low, b_low = (
        narrow.bf16_to_f32(narrow.f32_to_bf16(x - high)) for x, high in ((a, a_high), (b, b_high))
    )
    return np.matmul(a_high, b_high) + (np.matmul(a_high, b_low) + np.matmul(a_low, b_high))
