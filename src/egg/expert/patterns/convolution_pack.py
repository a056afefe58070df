"""Operands of a convolution in the order and the numbers that tensor cores want.

The input: ``[image, *padded space, group, padded channels]``, zeros around and behind. The weights:
``[output channel, tap, padded channels]``. Sixteen-bit operands stay as they are. An fp32 operand is
multiplied by a power of two, which is exact, so that its largest magnitude lies in [2^14, 2^15), and becomes
fp16: 11 significant bits, as TF32 has, for everything within a factor 2^28 of the largest (what is smaller
adds nothing at that accuracy). The input is scaled per image (one pass to find the largest magnitude), the
weights per output channel. For fp32's accuracy what the first half leaves over becomes a second fp16 number.
"""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.index import as_expr, loop_index, unflat
from egg.expert.parts import spelled
from egg.expert.patterns.convolution_form import Axis, Form
from egg.expert.patterns.convolution_frame import define_steps, new_kernel
from egg.expert.patterns.convolution_grade import POWER, SCALE, TYPES, Grade
from egg.expert.patterns.product_text import Kernel, Knobs
from egg.expert.reader import Reader
from egg.expert.sizes import Size, product

CHUNK = 4096
"""Elements that a program looks at in one trip when it seeks the largest."""


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
        return f"{self.form.group.name}_{name}"

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

    def kernels(self) -> dict[str, str]:
        made = {kernel.name: kernel.definition() for kernel, *_ in self._made()}
        return ({f.name: f.text for f in (SCALE, POWER)} if self.scaled else {}) | made

    def call(self) -> tuple[str, ...]:
        form = self.form
        device = f"{spelled(form.graph, form.group.reads(form.graph)[0])}.device"
        lines: list[str] = []
        for axis in form.phased:
            if axis.count.factors:
                lines.append(f"steps_{axis.letter} = {axis.count_text}")
        lines += [f"{name} = {text}" for name, text in self.padding_lines()]
        double = "2, " if self.split else ""
        space = ", ".join(f"padded_{axis.letter}" for axis in form.axes)
        width = f"{form.groups} * padded_c" if form.groups.code() != "1" else "padded_c"
        kind = f"device={device}, dtype=torch.{self.dtype}"
        packed = f"({double}{form.batch}, {space}, {width})"
        lines.append(f"{self._local('packed')} = torch.empty({packed}, {kind})")
        channels = form.groups * form.outputs
        lines.append(f"{self._local('rows')} = torch.empty(({double}{channels}, summed), {kind})")
        if self.scaled:
            single = f"device={device}, dtype=torch.float32"
            chunks = self.knobs.constant(
                "CHUNKS", self._chunks(), (), "programs per image that seek its largest"
            )
            lines.append(f"{self._local('largest')} = torch.empty(({form.batch}, {chunks}), {single})")
            lines.append(f"{self._local('x_scale')} = torch.empty(({form.batch},), {single})")
            lines.append(f"{self._local('w_scale')} = torch.empty(({channels},), {single})")
        for kernel, programs, warps in self._made():
            lines += kernel.launch(programs, {"num_warps": str(warps)})
        return tuple(lines)

    def _made(self) -> list[tuple[Kernel, str, int]]:
        found = [self._largest()] if self.scaled else []
        return [*found, self._pack_input(), self._pack_weight()]

    def _chunks(self) -> int:
        """Enough programs to fill the GPU several times, few enough that one vector holds their results."""
        per_image = product(self.form.x.shape[1:]).value
        wanted = max(1, 2048 // self.form.batch.value)
        most = max(1, per_image // (2 * CHUNK))
        return max(1, min(256, 1 << (min(wanted, most).bit_length() - 1)))

    def _largest(self) -> tuple[Kernel, str, int]:
        form = self.form
        kernel = new_kernel(
            form, self._local("largest_kernel"), "The largest finite magnitude in each of an image's chunks."
        )
        body, count = kernel.body, product(form.x.shape[1:])
        body.line("n = tl.program_id(0).to(tl.int64)")
        body.line("top = tl.zeros((BLOCK,), tl.float32)")
        body.line(f"for start in range(tl.program_id(1) * BLOCK, {count}, CHUNKS * BLOCK):")
        body.indent += 1
        body.line("e = start + tl.arange(0, BLOCK)")
        reader = Reader(form.graph, form.group.nodes, body, {"e": f"(e < {count})"})
        index = unflat(loop_index("e", count), form.x.shape[1:])
        v = reader.read(form.x.name, (loop_index("n", form.batch), *index))
        v = body.let("size", f"tl.abs({v})")
        guard = f" & (e < {count})" if form.computed(form.x) else ""
        body.line(f'top = tl.maximum(top, tl.where(({v} < float("inf")){guard}, {v}, 0.0))')
        body.indent -= 1
        kernel.add_pointers(reader.pointers)
        kernel.operands["largest_ptr"] = self._local("largest")
        body.line("tl.store(largest_ptr + n * CHUNKS + tl.program_id(1), tl.max(top, axis=0))")
        chunks = self.knobs.constant("CHUNKS", self._chunks())
        kernel.meta = {"CHUNKS": chunks, "BLOCK": str(CHUNK)}
        return kernel, f"({form.batch}, {chunks})", 8

    def _pack_input(self) -> tuple[Kernel, str, int]:
        """A program takes a stretch of one padded row (so reads are contiguous) of up to 64 channels."""
        form, last = self.form, self.form.axes[-1]
        kernel = new_kernel(
            form,
            self._local("pack"),
            "The input with channels last and zeros around it"
            + (", scaled by a power of two per image." if self.scaled else "."),
        )
        body, line = kernel.body, kernel.body.line
        define_steps(form, kernel)
        self.define_padding(kernel)
        line("row = tl.program_id(0)")
        outer: list[str] = []
        for axis in reversed(form.axes[:-1]):
            inner = " * ".join(reversed(outer))
            text = f"row // ({inner})" if inner else "row"
            line(f"i{axis.letter} = {text} % padded_{axis.letter}" + _shift(axis))
            outer.append(f"padded_{axis.letter}")
        line("n = " + (f"(row // ({' * '.join(reversed(outer))}))" if outer else "row") + ".to(tl.int64)")
        line(f"q{last.letter} = (tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q))[:, None]")
        line(f"i{last.letter} = q{last.letter}" + _shift(last))
        line("c = (tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]")
        grouped = form.groups.code() != "1"
        tests = ["(c < padded_c)" if not grouped else f"(c < {form.groups.code()} * padded_c)"]
        if grouped:
            line("group = c // padded_c")
            line("ci = c % padded_c")
        else:
            line("ci = c")
        at = []
        guards = [f"(ci < {form.inputs})"] if not grouped else [f"(ci < {form.inputs})", tests[0]]
        for axis in form.axes:
            guards += [f"(i{axis.letter} >= 0)"] if axis.before > 0 else []
            guards.append(f"(i{axis.letter} < {axis.size})")
            at.append(loop_index(f"i{axis.letter}", axis.size) if axis.size.code() != "1" else as_expr(0))
        line(f"inside = {' & '.join(guards)}")
        channel = loop_index("group", form.groups) * form.inputs + loop_index("ci", form.inputs)
        reader = Reader(form.graph, form.group.nodes, body, {})
        v = reader.read(form.x.name, (loop_index("n", form.batch), channel, *at), ("inside",))
        if form.computed(form.x) or form.inputs.code() == "1":
            v = body.let("v", f"tl.where(inside, {v}, 0.0)")
        kernel.add_pointers(reader.pointers)
        if self.scaled:
            self._scale_of_image(kernel)
            v = body.let("v", f"{v} * power_of_two(141 - e)")
        width = f"({form.groups.code()} * padded_c)" if grouped else "padded_c"
        line(f"at = (row.to(tl.int64) * padded_{last.letter} + q{last.letter}) * {width} + c")
        tests.append(f"(q{last.letter} < padded_{last.letter})")
        self._store_halves(kernel, "packed", v, " & ".join(tests))
        blocks = self._pack_tile()
        kernel.meta = {"BLOCK_Q": str(blocks[0]), "BLOCK_C": str(blocks[1])}
        if self.scaled:
            kernel.meta["CHUNKS"] = self.knobs.constant("CHUNKS", self._chunks())
        rows = " * ".join([form.batch.code(), *(f"padded_{axis.letter}" for axis in form.axes[:-1])])
        programs = (
            f"({rows}, triton.cdiv(padded_{last.letter}, {blocks[0]}), "
            f"triton.cdiv({width.strip('()')}, {blocks[1]}))"
        )
        return kernel, programs, 4

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

    def _scale_of_image(self, kernel: Kernel) -> None:
        form, line = self.form, kernel.body.line
        kernel.operands["largest_ptr"] = self._local("largest")
        line("e = scale_exponent(tl.max(tl.load(largest_ptr + n * CHUNKS + tl.arange(0, CHUNKS)), axis=0))")
        kernel.operands["x_scale_ptr"] = self._local("x_scale")
        first = ["(tl.program_id(1) == 0)", "(tl.program_id(2) == 0)"]
        first += (
            [f"(row % ({' * '.join(f'padded_{a.letter}' for a in form.axes[:-1])}) == 0)"]
            if form.axes[1:]
            else []
        )
        line(f"if {' & '.join(first)}:")
        line("    tl.store(x_scale_ptr + n, power_of_two(e - 141))")

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
            self._local("pack_weight"),
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
        reader = Reader(form.graph, form.group.nodes, body, {}, pointers=pointers)
        index = form.weight_index(loop_index("ci", form.inputs), loop_index("o", form.outputs), taps)
        v = reader.read(form.weight.name, index, ("inside",))
        return body.let("v", f"tl.where(inside, {v}, 0.0)")


def _shift(axis: Axis) -> str:
    if axis.before == 0:
        return ""
    return f" {'-' if axis.before > 0 else '+'} {abs(axis.before)}"
