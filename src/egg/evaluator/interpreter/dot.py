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


EIGHT_STEP = 32
"""Products that one instruction adds where the operands have eight bits."""
EIGHT_BITS = 13
"""Below its largest summand, of a sum that a Hopper tensor core makes of such products."""


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


def product_of_bytes(a: np.ndarray, b: np.ndarray, acc: np.ndarray, most: int) -> np.ndarray:
    """``a @ b + acc`` for operands of fp8, as a Hopper tensor core adds: in few bits, cut off.

    ``most``: so many products are added before the sum goes to a float32 accumulator; none where it is zero,
    all and the accumulator with them where it is more than there are.
    """
    depth = a.shape[-1]
    if not most:
        return product(a, b, acc, "IEEE")
    inside = most > depth
    part = acc.astype(np.float64) if inside else np.zeros(acc.shape)
    total = np.zeros(acc.shape) if inside else acc.astype(np.float64)
    wide = [x.astype(np.float64) for x in (a, b)]
    for k in range(0, depth, EIGHT_STEP):
        if not inside and k and k % most == 0:
            total, part = (total + part).astype(np.float32).astype(np.float64), np.zeros(acc.shape)
        step = np.matmul(wide[0][..., k : k + EIGHT_STEP], wide[1][..., k : k + EIGHT_STEP, :])
        part = _cut(part, step)
    return (total + part).astype(acc.dtype)


def _cut(part: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Their sum, without the bits that lie too far below the larger of the two."""
    _, exponent = np.frexp(np.maximum(np.abs(part), np.abs(step)))
    unit = np.ldexp(1.0, exponent - 1 - EIGHT_BITS)
    return np.trunc((part + step) / unit) * unit


def _three_bf16_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a_high, b_high = (narrow.bf16_to_f32(narrow.f32_to_bf16(x)) for x in (a, b))
    a_low, b_low = (
        narrow.bf16_to_f32(narrow.f32_to_bf16(x - high)) for x, high in ((a, a_high), (b, b_high))
    )
    return np.matmul(a_high, b_high) + (np.matmul(a_high, b_low) + np.matmul(a_low, b_high))
