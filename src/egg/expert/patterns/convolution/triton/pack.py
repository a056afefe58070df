"""Operands of a convolution in the order and the numbers that tensor cores want.

The input: ``[image, *padded space, group, padded channels]``, zeros around and behind. The weights:
``[output channel, tap, padded channels]``. Sixteen-bit operands stay as they are. An fp32 operand is
multiplied by a power of two, which is exact, so that its largest magnitude lies in [2^14, 2^15), and becomes
fp16: 11 significant bits, as TF32 has, for everything within a factor 2^28 of the largest (what is smaller
adds nothing at that accuracy). The weights are scaled per output channel, the input per image: by what a
sample of the image says, with room for numbers 2^8 times as large, so that no pass over the whole input is
needed before the one that packs it. That pass notes the largest number there really is; where it did not
fit, a second launch packs the image again (and returns at once where it did). For fp32's accuracy what the
first half leaves over becomes a second fp16 number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

from egg.expert.emit.code import Code
from egg.expert.emit.host import Host
from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.emit.reader import Reader
from egg.expert.emit.triton.types import TYPES
from egg.expert.index import as_expr, loop_index, unflat
from egg.expert.parts import REACH, Use, spelled
from egg.expert.patterns.convolution.form import Axis, Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.triton import scaling
from egg.expert.patterns.convolution.triton.frame import define_steps, new_kernel
from egg.expert.sizes import Size, product

SAMPLE = 1024
"""Numbers of an image that its scale is guessed from."""
ROOM = 8
"""Powers of two that the largest number may lie above the largest of the sample."""
RESIDENT = 2048
"""Programs of a packing kernel that a large GPU holds at once."""


@dataclass
class Packing:
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
    def large(self) -> bool:
        """Whether 32-bit offsets do not reach all of the packed input."""
        form, step = self.form, self.channel_step
        channels = form.groups.value * (-(-form.inputs.value // step) * step)
        return form.batch.value * channels * prod(axis.padded() for axis in form.axes) >= REACH

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

    def meta(self) -> dict[str, str]:
        return {}

    # -- what kernels need to know ---------------------------------------------------------------------

    def padding_lines(self) -> list[tuple[str, str]]:
        """Sizes of the packed operands by name, in terms of named sizes."""
        inputs, step = self.form.inputs, self.channel_step
        wrapped = f"({inputs})" if " " in inputs.code() else inputs.code()
        found = [("padded_c", f"({wrapped} + {step - 1}) // {step} * {step}")]
        found += [(f"padded_{axis.letter}", axis.padded_text) for axis in self.form.axes]
        return [*found, ("summed", f"{self.form.taps} * padded_c")]

    def define_padding(self, kernel: Kernel) -> None:
        for name, text in self.padding_lines():
            kernel.body.line(f"{name}: tl.constexpr = {text}")

    def _local(self, name: str) -> str:
        return Host(self.form.graph, self.form.group).local(name)

    def operands(self) -> dict[str, str]:
        packed, rows = self._local("packed"), self._local("rows")
        if not self.split:
            found = {"packed_ptr": packed, "rows_ptr": rows}
        else:
            found = {
                "packed_ptr": f"{packed}[0]", "packed_low_ptr": f"{packed}[1]",
                "rows_ptr": f"{rows}[0]", "rows_low_ptr": f"{rows}[1]",
            }  # fmt: skip
        if self.scaled:
            found |= {"x_scale_ptr": self._local("x_scale"), "w_scale_ptr": self._local("w_scale")}
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

    # -- the kernels -----------------------------------------------------------------------------------

    def code(self) -> Code:
        """The packing kernels and their launches."""
        code = Code(call=self._allocations(), uses={Use.PACKING})
        code.define(scaling.functions(self.grade))
        for kernel, programs, warps in self._made():
            for again in ("False", "True") if self._twice(kernel) else ("False",):
                kernel.meta["AGAIN"] = again
                code.launch(kernel, programs, {"num_warps": str(warps)})
        return code

    def _allocations(self) -> list[str]:
        form = self.form
        device = f"{spelled(form.graph, form.group.reads(form.graph)[0])}.device"
        lines: list[str] = []
        for axis in form.phased:
            if axis.count.factors:
                lines.append(f"steps_{axis.letter} = {axis.count_text}")
        *padding, (_, summed) = self.padding_lines()  # a tensor may be called like the last
        lines += [f"{name} = {text}" for name, text in padding]
        double = "2, " if self.split else ""
        space = ", ".join(f"padded_{axis.letter}" for axis in form.axes)
        width = f"{form.groups} * padded_c" if form.groups.code() != "1" else "padded_c"
        kind = f"device={device}, dtype=torch.{self.dtype}"
        packed = f"({double}{form.batch}, {space}, {width})"
        lines.append(f"{self._local('packed')} = torch.empty({packed}, {kind})")
        channels = form.groups * form.outputs
        lines.append(f"{self._local('rows')} = torch.empty(({double}{channels}, {summed}), {kind})")
        if self.scaled:
            single = f"device={device}, dtype=torch.float32"
            chunks = self.knobs.constant("CHUNKS", self._chunks(), (), "programs that pack one image")
            lines.append(f"{self._local('largest')} = torch.empty(({form.batch}, {chunks}), {single})")
            lines.append(f"{self._local('x_scale')} = torch.empty(({form.batch},), {single})")
            lines.append(f"{self._local('w_scale')} = torch.empty(({channels},), {single})")
        return lines

    def _twice(self, kernel: Kernel) -> bool:
        """Whether a second launch packs again what did not fit the scale of the first."""
        return "AGAIN" in kernel.reads()

    def _made(self) -> list[tuple[Kernel, str, int]]:
        return [self._pack_input(), self._pack_weight()]

    def _items(self) -> tuple[str, str, str]:
        """Of one image: rows but for the last axis, stretches of a row, blocks of channels."""
        last = self.form.axes[-1]
        rows = " * ".join(f"padded_{axis.letter}" for axis in self.form.axes[:-1])
        return rows, f"tl.cdiv(padded_{last.letter}, BLOCK_Q)", f"tl.cdiv({self._width()}, BLOCK_C)"

    def _width(self) -> str:
        groups = self.form.groups.code()
        return f"{groups} * padded_c" if groups != "1" else "padded_c"

    def _chunks(self) -> int:
        """Enough programs to fill the GPU, few enough that each has several stretches to do."""
        form, (wide, columns) = self.form, self._pack_tile()
        step = self.channel_step
        channels = form.groups.value * (-(-form.inputs.value // step) * step)
        items = -(-form.axes[-1].padded() // wide) * -(-channels // columns)
        for axis in form.axes[:-1]:
            items *= axis.padded()
        wanted = max(1, min(RESIDENT // form.batch.value, items // 2, 1024))
        return 1 << (wanted.bit_length() - 1)

    def _pack_input(self) -> tuple[Kernel, str, int]:
        """Programs take stretches of padded rows (so reads are contiguous) of up to 64 channels."""
        form, last = self.form, self.form.axes[-1]
        kernel = new_kernel(
            form,
            f"{form.group.name}_pack",
            "The input with channels last and zeros around it"
            + (
                ", scaled by a power of two per image: that of a sample, unless some number was too large "
                "for it; then the image is packed again."
                if self.scaled
                else "."
            ),
        )
        body, line = kernel.body, kernel.body.line
        define_steps(form, kernel)
        self.define_padding(kernel)
        line("n = tl.program_id(0).to(tl.int64)")
        rows, stretches, blocks = self._items()
        line(f"end = {f'{rows} * ' if rows else ''}{stretches} * {blocks}")
        pointers: dict[str, str] = {}
        if self.scaled:
            self._scale_of_image(kernel, pointers)
        line("for item in range(tl.program_id(1), end, CHUNKS):")
        body.indent += 1
        line(f"c = (item % {blocks} * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]")
        line(f"item_q = item // {blocks}")
        line(f"q{last.letter} = (item_q % {stretches} * BLOCK_Q + tl.arange(0, BLOCK_Q))[:, None]")
        line(f"in_{last.letter} = q{last.letter}" + _shift(last))
        if rows:
            line(f"row = item_q // {stretches}")
        inner = ""
        for axis in reversed(form.axes[:-1]):
            text = f"row // ({inner})" if inner else "row"
            text += "" if axis is form.axes[0] else f" % padded_{axis.letter}"
            line(f"in_{axis.letter} = {text}" + _shift(axis))
            inner = f"padded_{axis.letter} * {inner}" if inner else f"padded_{axis.letter}"
        v = self._input_at(kernel, pointers)
        if self.scaled:
            size = body.let("size", f"tl.abs({v})")
            line("if not AGAIN:")
            line(f'    top = tl.maximum(top, tl.max(tl.where({size} < float("inf"), {size}, 0.0)))')
            v = body.let("v", f"{v} * scale")
        place = f"(n * ({rows}) + row)" if rows else "n"
        line(f"at = ({place} * padded_{last.letter} + q{last.letter}) * ({self._width()}) + c")
        self._store_halves(
            kernel, "packed", v, f"(c < {self._width()}) & (q{last.letter} < padded_{last.letter})"
        )
        body.indent -= 1
        if self.scaled:
            line("if not AGAIN:")
            line("    tl.store(largest_ptr + n * CHUNKS + tl.program_id(1), top)")
        kernel.add_pointers(pointers)
        wide, columns = self._pack_tile()
        chunks = self.knobs.constant("CHUNKS", self._chunks(), (), "programs that pack one image")
        kernel.meta = {"BLOCK_Q": str(wide), "BLOCK_C": str(columns), "CHUNKS": chunks}
        if self.scaled:
            kernel.meta["SAMPLE"] = self.knobs.constant(
                "SAMPLE", SAMPLE, (), "numbers of an image that its scale is guessed from"
            )
        return kernel, f"({form.batch}, {chunks})", 2 if wide * columns <= 1024 else 4

    def _input_at(self, kernel: Kernel, pointers: dict[str, str]) -> str:
        """The inputs of a stretch; zero around the image and behind its channels."""
        form, body, line = self.form, kernel.body, kernel.body.line
        guards: list[str] = []
        if form.groups.code() != "1":
            line("group = c // padded_c")
            line("ci = c % padded_c")
            guards.append(f"(c < {self._width()})")
        else:
            line("ci = c")
        guards.append(f"(ci < {form.inputs})")
        at = []
        for axis in form.axes:
            guards += [f"(in_{axis.letter} >= 0)"] if axis.before > 0 else []
            guards.append(f"(in_{axis.letter} < {axis.size})")
            at.append(loop_index(f"in_{axis.letter}", axis.size) if axis.size.code() != "1" else as_expr(0))
        line(f"inside = {' & '.join(guards)}")
        channel = loop_index("group", form.groups) * form.inputs + loop_index("ci", form.inputs)
        reader = Reader(form.graph, form.group.nodes, body, {}, pointers=pointers)
        v = reader.read(form.x.name, (loop_index("n", form.batch), channel, *at), ("inside",))
        if form.computed(form.x) or form.inputs.code() == "1":
            v = body.let("v", f"tl.where(inside, {v}, 0.0)")
        return v

    def _pack_tile(self) -> tuple[int, int]:
        form, last = self.form, self.form.axes[-1]
        step = self.channel_step
        channels = form.groups.value * (-(-form.inputs.value // step) * step)
        columns = min(64, 1 << (channels - 1).bit_length())
        long = last.padded()
        limit = 8192 // columns
        choices = [q for q in (32, 64, 128, 256, 512, 1024) if q <= limit]
        waste = {q: (-(-long // q) * q, -q) for q in choices}
        return min(
            choices, key=lambda q: (waste[q][0] > 1.15 * min(w for w, _ in waste.values()), -q)
        ), columns

    def _scale_of_image(self, kernel: Kernel, pointers: dict[str, str]) -> None:
        """Guess the exponent of an image's largest from a sample, with room above; or know it by now.

        Every program of an image looks at the same few numbers, so all of them agree. A guess that was too
        small shows when the largest of all is known: then (``AGAIN``) the loop runs once more, and otherwise
        not at all.
        """
        form, body, line = self.form, kernel.body, kernel.body.line
        count = product(form.x.shape[1:])
        line(f"u = tl.arange(0, SAMPLE) * (({count} + SAMPLE - 1) // SAMPLE)")
        reader = Reader(form.graph, form.group.nodes, body, {"u": f"(u < {count})"}, pointers=pointers)
        index = unflat(loop_index("u", count), form.x.shape[1:])
        v = reader.read(form.x.name, (loop_index("n", form.batch), *index))
        v = body.let("size", f"tl.abs({v})")
        guard = f" & (u < {count})" if form.computed(form.x) else ""
        line(f'e = scale_exponent(tl.max(tl.where(({v} < float("inf")){guard}, {v}, 0.0), axis=0))')
        kernel.operands["largest_ptr"] = self._local("largest")
        line("if AGAIN:")
        line("    top = tl.max(tl.load(largest_ptr + n * CHUNKS + tl.arange(0, CHUNKS)), axis=0)")
        line("    top_e = scale_exponent(top)")
        line(f"    end = tl.where(top_e > e + {ROOM}, end, 0)")
        line(f"    e = tl.maximum(e, top_e - {ROOM})")
        line("else:")
        line("    top = 0.0")
        line(f"scale = power_of_two({141 - ROOM} - e)")
        kernel.operands["x_scale_ptr"] = self._local("x_scale")
        line("if tl.program_id(1) == 0:")
        line(f"    tl.store(x_scale_ptr + n, power_of_two(e - {141 - ROOM}))")

    def _store_halves(self, kernel: Kernel, what: str, text: str, mask: str) -> None:
        line, source = kernel.body.line, self._local(what)
        if not self.split:
            kernel.operands[f"{what}_ptr"] = source
            cast = f"{text}.to({TYPES[self.dtype]})"
            line(f"tl.store({what}_ptr + at, {cast}, mask={mask})")
            return
        kernel.operands[f"{what}_ptr"] = f"{source}[0]"
        kernel.operands[f"{what}_low_ptr"] = f"{source}[1]"
        line(f"high = {text}.to(tl.float16)")
        line(f"tl.store({what}_ptr + at, high, mask={mask})")
        line(f"tl.store({what}_low_ptr + at, ({text} - high.to(tl.float32)).to(tl.float16), mask={mask})")

    def _pack_weight(self) -> tuple[Kernel, str, int]:
        """A program takes one output channel."""
        form = self.form
        kernel = new_kernel(
            form,
            f"{form.group.name}_pack_weight",
            "The weights as rows by tap and channel"
            + (", scaled by a power of two per output channel." if self.scaled else "."),
        )
        body, line = kernel.body, kernel.body.line
        self.define_padding_of_weight(kernel)
        line("c = tl.program_id(0)")
        if form.groups.code() != "1":
            outputs = f"({form.outputs})" if " " in form.outputs.code() else form.outputs.code()
            line(f"group = c // {outputs}")
            line(f"o = c % {outputs}")
        else:
            line("o = c")
        pointers: dict[str, str] = {}
        if self.scaled:
            line("top = tl.zeros((BLOCK,), tl.float32)")
            line("for k0 in range(0, summed, BLOCK):")
            body.indent += 1
            v = self._weight_at(kernel, pointers)
            v = body.let("size", f"tl.abs({v})")
            line(f'top = tl.maximum(top, tl.where({v} < float("inf"), {v}, 0.0))')
            body.indent -= 1
            line("e = scale_exponent(tl.max(top, axis=0))")
            line("scale = power_of_two(141 - e)")
            line("tl.store(w_scale_ptr + c, power_of_two(e - 141))")
        line("for k0 in range(0, summed, BLOCK):")
        body.indent += 1
        v = self._weight_at(kernel, pointers)
        v = body.let("scaled", f"{v} * scale") if self.scaled else v
        line("at = c * summed + k")
        kernel.add_pointers(pointers)
        self._store_halves(kernel, "rows", v, "k < summed")
        body.indent -= 1
        if self.scaled:
            kernel.operands["w_scale_ptr"] = self._local("w_scale")
        deep = form.taps * form.inputs.value
        kernel.meta = {"BLOCK": str(min(2048, max(128, 1 << (deep - 1).bit_length())))}
        return kernel, f"({form.groups * form.outputs},)", 4

    def define_padding_of_weight(self, kernel: Kernel) -> None:
        for name, text in self.padding_lines():
            if name in ("padded_c", "summed"):
                kernel.body.line(f"{name}: tl.constexpr = {text}")

    def _weight_at(self, kernel: Kernel, pointers: dict[str, str]) -> str:
        form, body = self.form, kernel.body
        body.line("k = k0 + tl.arange(0, BLOCK)")
        body.line("ci = k % padded_c")
        body.line("t = k // padded_c")
        body.line(f"inside = (ci < {form.inputs}) & (k < summed)")
        taps = unflat(loop_index("t", form.taps), tuple(Size(axis.kernel) for axis in form.axes))
        masks = {"ci": "inside", "t": "inside"}  # a factor per output channel is one number, unmasked
        reader = Reader(form.graph, form.group.nodes, body, masks, pointers=pointers)
        index = form.weight_index(loop_index("ci", form.inputs), loop_index("o", form.outputs), taps)
        v = reader.read(form.weight.name, index)
        return body.let("v", f"tl.where(inside, {v}, 0.0)")


def _shift(axis: Axis) -> str:
    if axis.before == 0:
        return ""
    return f" {'-' if axis.before > 0 else '+'} {abs(axis.before)}"
