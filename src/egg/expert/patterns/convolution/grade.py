"""How exactly a convolution multiplies: what its operands become on the way to the tensor cores.

``tf32`` is what PyTorch does with fp32 convolutions unless set otherwise: 11 significant bits, rounded to
nearest. fp16 has as many and runs at twice the speed; what it lacks is range, so operands are multiplied by
powers of two first, which is exact. ``fp32`` keeps fp32's accuracy: what one fp16 number leaves over becomes
a second one, and three of the four products are added up. ``ieee`` multiplies on the ordinary units.
``half`` is for 16-bit operands, which the tensor cores take as they are.

Allowed is not done: cuDNN decides by the shape whether it multiplies in TF32, and a kernel coarser than its
reference is refused. Seen on an H200 with PyTorch 2.11, by the reference's distance from double precision
(3e-4 in TF32, 1e-7 in fp32; C is the number of input channels per group):

=====================================  ================================  =================================
convolution                            in fp32                           in TF32
=====================================  ================================  =================================
ordinary, two dimensions               C = 1, 3, 6, 8                    C = 16, 32, 64 and more
ordinary, three dimensions             C = 3                             C = 8, 32
ordinary, one dimension                                                  C = 64
ordinary, grouped                      1x1 with 3 groups, depthwise
transposed                             4 groups, stride 2, 3x5x7;        C = 3, 16, 32, 48, 64: 3x3x3 and
                                       C = 32, stride 2, 5x5x5           4x4x4 with stride 2; 5x5x5, 3x5x7
                                                                         with stride 1
=====================================  ================================  =================================

Networks agree: with C = 3 and groups in fp32 and the rest in TF32, double-precision emulations of a residual
block, ShuffleNet and MobileNet show the errors that the references have. Hence :func:`reference_grade`. The
other way round nothing is lost: a kernel finer than its reference is always right.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.parts import Target, Unfit
from egg.expert.patterns.convolution.form import Form

GRADES = ("tf32", "fp32", "ieee", "half")
HALF = ("float16", "bfloat16")
FEW_CHANNELS = {1: 8, 2: 8, 3: 4}
"""Input channels per group up to which ordinary convolutions run in fp32, by dimensions."""
MANY_TAPS = 64
"""Taps above which transposed convolutions with a stride run in fp32."""


def reference_grade(form: Form) -> str:
    """What PyTorch makes of an fp32 convolution that it may compute in TF32."""
    if form.groups.value > 1:
        return "fp32"
    if form.transposed:
        return "fp32" if form.phased and form.taps > MANY_TAPS else "tf32"
    return "fp32" if form.inputs.value <= FEW_CHANNELS[len(form.axes)] else "tf32"


@dataclass(frozen=True)
class Grade:
    name: str
    dtype: str
    """Of the operands in memory."""

    @classmethod
    def of(cls, form: Form, target: Target) -> Grade:
        """As asked for, else as exact as PyTorch is."""
        dtype = form.x.dtype
        if dtype in HALF:
            return cls("half", dtype)
        name = str(target.settings.get("grade") or reference_grade(form))
        if name == "tf32x3":
            name = "fp32"
        if name not in GRADES or name == "half":
            raise Unfit(f"no convolution of {dtype} at grade {name}")
        return cls(name, dtype)

    @property
    def scales(self) -> bool:
        """Operands become fp16 numbers after scaling."""
        return self.name in ("tf32", "fp32")
