"""What a grade makes of operands: functions that scale them, casts, and the precision of a product."""

from __future__ import annotations

from egg.expert.emit.kernel import DeviceFunction
from egg.expert.emit.triton.language import TRITON
from egg.expert.patterns.convolution.grade import Grade

SCALE = DeviceFunction(
    "scale_exponent",
    '''@triton.jit
def scale_exponent(largest):
    """The exponent e of a magnitude, kept such that 2^(141 - e) and 2^(e - 141) are ordinary numbers."""
    e = (largest.to(tl.int32, bitcast=True) >> 23) & 255
    return tl.minimum(tl.maximum(e, 15), 254)''',
)
POWER = DeviceFunction(
    "power_of_two",
    """@triton.jit
def power_of_two(e):
    return ((e + 127) << 23).to(tl.float32, bitcast=True)""",
)


def functions(grade: Grade) -> tuple[DeviceFunction, ...]:
    """That scaling calls."""
    return (SCALE, POWER) if grade.scales else ()


def operand(grade: Grade, text: str) -> str:
    """What a product is given, where nothing is scaled."""
    return TRITON.converted(text, grade.dtype) if grade.name == "half" else text


def precision(grade: Grade) -> str:
    """The further argument of ``tl.dot``, where nothing is scaled."""
    return ', input_precision="ieee"' if grade.name == "ieee" else ""
