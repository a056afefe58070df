"""What a grade makes of operands: functions that scale them, casts, and the precision of a product."""

from __future__ import annotations

from egg.expert.emit.kernel import DeviceFunction
from egg.expert.emit.reader import Body
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


def write_halves(body: Body, grade: Grade, name: str, tile: str, axis: int = 0, turned: bool = False) -> None:
    """``NAME_high``, and for fp32 ``NAME_low``: the tile as fp16, transposed where it is ``turned``.

    What lies along ``axis`` is scaled by one power of two, 2^(141 - ``NAME_e``), so that its largest number
    fills fp16. The low half is what rounding to the high half leaves over.
    """
    spread = "[None, :]" if axis == 0 else "[:, None]"
    scaled = f"{tile} * power_of_two(141 - {name}_e)"
    body.line(f"{name}_e = scale_exponent(tl.max(tl.abs({tile}), axis={axis})){spread}")
    body.line(f"{name}_scaled = tl.trans({scaled})" if turned else f"{name}_scaled = {scaled}")
    body.line(f"{name}_high = {name}_scaled.to(tl.float16)")
    if grade.name == "fp32":
        body.line(f"{name}_low = ({name}_scaled - {name}_high.to(tl.float32)).to(tl.float16)")
