"""Operands of a convolution in the order and the numbers that tensor cores want.

The input: ``[image, *padded space, group, padded channels]``, zeros around and behind. The weights:
``[output channel, tap, padded channels]``. Sixteen-bit operands stay as they are. An fp32 operand is
multiplied by a power of two, which is exact, so that its largest magnitude lies in [2^14, 2^15), and becomes
fp16: 11 significant bits, as TF32 has, for everything within a factor 2^28 of the largest (what is smaller
adds nothing at that accuracy). The weights are scaled per output channel, the input per image: by what a
sample of the image says, with room for numbers 2^8 times as large. For fp32's accuracy what the first half
leaves over becomes a second fp16 number.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from math import prod

from egg.expert.emit.host import Host
from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.parts import REACH
from egg.expert.patterns.convolution.form import Axis, Form
from egg.expert.patterns.convolution.grade import Grade


@dataclass(frozen=True)
class Packing:
    """How the operands of one convolution are packed: names, sizes, types and scales."""

    form: Form
    grade: Grade
    knobs: Knobs
    block_k: str
    """The constant's name."""

    @property
    def scaled(self) -> bool:
        return self.grade.scales

    @property
    def split(self) -> bool:
        return self.grade.name == "fp32"

    @property
    def dtype(self) -> str:
        return self.grade.dtype if self.grade.name == "half" else "float16"

    @property
    def channel_step(self) -> int:
        """Channels are padded to a multiple of this: to copies of 16 bytes, or less where there are few."""
        if not self.form.uniform:
            return int(self.knobs.made[self.block_k].value)
        few = self.form.inputs.value
        return 2 if few <= 2 else 4 if few <= 4 else 8

    @property
    def channels(self) -> int:
        """Of a packed position, those that pad it too."""
        step = self.channel_step
        return self.form.groups.value * (-(-self.form.inputs.value // step) * step)

    @property
    def large(self) -> bool:
        """Whether 32-bit offsets do not reach all of the packed input."""
        form = self.form
        return form.batch.value * self.channels * prod(axis.padded() for axis in form.axes) >= REACH

    @property
    def counts(self) -> tuple[str, ...]:
        """What 32 bits must count of it at other sizes."""
        if self.large:
            return ()
        form, step = self.form, self.channel_step
        blocks = (
            f"(({form.inputs} + {step - 1}) // {step})"
            if form.inputs.factors
            else str(-(-form.inputs.number // step))
        )
        channels = f"{form.groups * step} * {blocks}"
        axes = [f"({text})" if " " in (text := self._padded_text(axis)) else text for axis in form.axes]
        return (" * ".join([form.batch.code(), channels, *axes]),)

    def _padded_text(self, axis: Axis) -> str:
        """With the steps of a phase in terms of named sizes."""
        return re.sub(rf"\bsteps_{axis.letter}\b", f"({axis.count_text})", axis.padded_text)

    @property
    def width(self) -> str:
        """The same in terms of named sizes."""
        groups = self.form.groups.code()
        return f"{groups} * padded_c" if groups != "1" else "padded_c"

    # -- what kernels need to know ---------------------------------------------------------------------

    def padding_lines(self) -> list[tuple[str, str]]:
        """Sizes of the packed operands by name, in terms of named sizes."""
        inputs, step = self.form.inputs, self.channel_step
        wrapped = f"({inputs})" if " " in inputs.code() else inputs.code()
        found = [("padded_c", f"({wrapped} + {step - 1}) // {step} * {step}")]
        found += [(f"padded_{axis.letter}", axis.padded_text) for axis in self.form.axes]
        return [*found, ("summed", f"{self.form.taps} * padded_c")]

    def define_padding(self, kernel: Kernel, wanted: Container[str] | None = None) -> None:
        """Inside a kernel; of the sizes only those that are ``wanted``, where it does not use all."""
        for name, text in self.padding_lines():
            if wanted is None or name in wanted:
                kernel.body.line(f"{name}: tl.constexpr = {text}")

    def local(self, name: str) -> str:
        """The host's name for one of its tensors."""
        return Host(self.form.graph, self.form.group).local(name)

    def operands(self) -> dict[str, str]:
        packed, rows = self.local("packed"), self.local("rows")
        if not self.split:
            found = {"packed_ptr": packed, "rows_ptr": rows}
        else:
            found = {
                "packed_ptr": f"{packed}[0]", "packed_low_ptr": f"{packed}[1]",
                "rows_ptr": f"{rows}[0]", "rows_low_ptr": f"{rows}[1]",
            }  # fmt: skip
        if self.scaled:
            found |= {"x_scale_ptr": self.local("x_scale"), "w_scale_ptr": self.local("w_scale")}
        return found

    def unscaled(self, kernel: Kernel, sums: str) -> str:
        if not self.scaled:
            return sums
        x = (
            "tl.load(x_scale_ptr + n, mask=inside, other=0.0)"
            if self.form.batch.code() != "1"
            else "tl.load(x_scale_ptr)"
        )
        w = "tl.load(w_scale_ptr + c, mask=kept, other=0.0)"
        return kernel.body.let("exact", f"{sums} * {x} * {w}")
