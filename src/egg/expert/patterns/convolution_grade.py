"""How exactly a convolution multiplies: what its operands become on the way to the tensor cores.

``tf32`` is what PyTorch does with fp32 convolutions unless told otherwise: 11 significant bits, rounded to
nearest. fp16 has as many and runs at twice the speed; what it lacks is range, so operands are multiplied by
powers of two first, which is exact. ``fp32`` keeps fp32's accuracy: what one fp16 number leaves over becomes
a second one, and three of the four products are added up. ``ieee`` multiplies on the ordinary units.
``half`` is for 16-bit operands, which the tensor cores take as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.parts import Terms, Unfit

GRADES = ("tf32", "fp32", "ieee", "half")
TYPES = {"float16": "tl.float16", "bfloat16": "tl.bfloat16"}


@dataclass(frozen=True)
class Function:
    """A device function that kernels share."""

    name: str
    text: str


SCALE = Function(
    "scale_exponent",
    '''@triton.jit
def scale_exponent(largest):
    """The exponent e of a magnitude, kept such that 2^(141 - e) and 2^(e - 141) are ordinary numbers."""
    e = (largest.to(tl.int32, bitcast=True) >> 23) & 255
    return tl.minimum(tl.maximum(e, 15), 254)''',
)
POWER = Function(
    "power_of_two",
    """@triton.jit
def power_of_two(e):
    return ((e + 127) << 23).to(tl.float32, bitcast=True)""",
)


@dataclass(frozen=True)
class Grade:
    name: str
    dtype: str
    """Of the operands in memory."""

    @classmethod
    def of(cls, dtype: str, terms: Terms) -> Grade:
        if dtype in TYPES:
            return cls("half", dtype)
        name = str(terms.settings.get("grade", "tf32"))
        if name == "tf32x3":
            name = "fp32"
        if name not in GRADES or name == "half":
            raise Unfit(f"no convolution of {dtype} at grade {name}")
        return cls(name, dtype)

    @property
    def scales(self) -> bool:
        """Operands become fp16 numbers after scaling."""
        return self.name in ("tf32", "fp32")

    def operand(self, text: str) -> str:
        """What a product is given, where nothing is scaled."""
        return f"{text}.to({TYPES[self.dtype]})" if self.name == "half" else text

    @property
    def precision(self) -> str:
        """The further argument of ``tl.dot``, where nothing is scaled."""
        return ', input_precision="ieee"' if self.name == "ieee" else ""
