"""The kernels that pack the operands of a convolution, and their launches.

The scale of an image comes from a sample of it, so that no pass over the whole input is needed before the one
that packs it. That pass notes the largest number there really is; where it did not fit, a second launch packs
the image again (and returns at once where it did).
"""

from __future__ import annotations

from math import prod

from egg.expert.emit.code import Code
from egg.expert.emit.kernel import Kernel
from egg.expert.emit.reader import Reader
from egg.expert.emit.triton.types import TYPES
from egg.expert.index import as_expr, loop_index, unflat
from egg.expert.parts import Use, spelled
from egg.expert.patterns.convolution.form import Axis
from egg.expert.patterns.convolution.triton import scaling
from egg.expert.patterns.convolution.triton.frame import define_steps, new_kernel
from egg.expert.patterns.convolution.triton.packing import Packing
from egg.expert.sizes import Size, product

SAMPLE = 1024
"""Numbers of an image that its scale is guessed from."""
ROOM = 8
"""Powers of two that the largest number may lie above the largest of the sample."""
LONG = 2**21
"""Elements of an input that has large tiles for every multiprocessor."""
RESIDENT = 2048
"""Programs of a packing kernel that a large GPU holds at once."""


def packing_code(packing: Packing) -> Code:
    """The packing kernels and their launches; a second one for what may not fit the scale of the first."""
    code = Code(call=_allocations(packing), uses={Use.PACKING})
    code.define(scaling.functions(packing.grade))
    for kernel, programs, warps in (_pack_input(packing), _pack_weight(packing)):
        for again in ("False", "True") if "AGAIN" in kernel.reads() else ("False",):
            kernel.meta["AGAIN"] = again
            code.launch(kernel, programs, {"num_warps": str(warps)})
    return code


def _allocations(packing: Packing) -> list[str]:
    form = packing.form
    device = f"{spelled(form.graph, form.group.reads(form.graph)[0])}.device"
    lines: list[str] = []
    for axis in form.phased:
        if axis.count.factors:
            lines.append(f"steps_{axis.letter} = {axis.count_text}")
    *padding, (_, summed) = packing.padding_lines()  # a tensor may be called like the last
    lines += [f"{name} = {text}" for name, text in padding]
    double = "2, " if packing.split else ""
    space = ", ".join(f"padded_{axis.letter}" for axis in form.axes)
    kind = f"device={device}, dtype=torch.{packing.dtype}"
    packed = f"({double}{form.batch}, {space}, {packing.width})"
    lines.append(f"{packing.local('packed')} = torch.empty({packed}, {kind})")
    channels = form.groups * form.outputs
    lines.append(f"{packing.local('rows')} = torch.empty(({double}{channels}, {summed}), {kind})")
    if packing.scaled:
        single = f"device={device}, dtype=torch.float32"
        chunks = packing.knobs.constant("CHUNKS", _chunks(packing), (), "programs that pack one image")
        lines.append(f"{packing.local('largest')} = torch.empty(({form.batch}, {chunks}), {single})")
        lines.append(f"{packing.local('x_scale')} = torch.empty(({form.batch},), {single})")
        lines.append(f"{packing.local('w_scale')} = torch.empty(({channels},), {single})")
    return lines


def _items(packing: Packing) -> tuple[str, str, str]:
    """Of one image: rows but for the last axis, stretches of a row, blocks of channels."""
    last = packing.form.axes[-1]
    rows = " * ".join(f"padded_{axis.letter}" for axis in packing.form.axes[:-1])
    return rows, f"tl.cdiv(padded_{last.letter}, BLOCK_Q)", f"tl.cdiv({packing.width}, BLOCK_C)"


def _chunks(packing: Packing) -> int:
    """Enough programs to fill the GPU, few enough that each has several stretches to do."""
    form, (wide, columns) = packing.form, _pack_tile(packing)
    items = -(-form.axes[-1].padded() // wide) * -(-packing.channels // columns)
    for axis in form.axes[:-1]:
        items *= axis.padded()
    wanted = max(1, min(RESIDENT // form.batch.value, items // (2 if _is_long(packing) else 1), 1024))
    return 1 << (wanted.bit_length() - 1)


def _pack_input(packing: Packing) -> tuple[Kernel, str, int]:
    """Programs take stretches of padded rows (so reads are contiguous) of up to 64 channels."""
    form, last = packing.form, packing.form.axes[-1]
    kernel = new_kernel(
        form,
        f"{form.group.name}_pack",
        "The input with channels last and zeros around it"
        + (
            ", scaled by a power of two per image: that of a sample, unless some number was too large "
            "for it; then the image is packed again."
            if packing.scaled
            else "."
        ),
    )
    body, line = kernel.body, kernel.body.line
    define_steps(form, kernel)
    packing.define_padding(kernel)
    line("n = tl.program_id(0).to(tl.int64)")
    rows, stretches, blocks = _items(packing)
    line(f"end = {f'{rows} * ' if rows else ''}{stretches} * {blocks}")
    pointers: dict[str, str] = {}
    if packing.scaled:
        _scale_of_image(packing, kernel, pointers)
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
    v = _input_at(packing, kernel, pointers)
    if packing.scaled:
        size = body.let("size", f"tl.abs({v})")
        line("if not AGAIN:")
        line(f'    top = tl.maximum(top, tl.max(tl.where({size} < float("inf"), {size}, 0.0)))')
        v = body.let("v", f"{v} * scale")
    place = f"(n * ({rows}) + row)" if rows else "n"
    line(f"at = ({place} * padded_{last.letter} + q{last.letter}) * ({packing.width}) + c")
    _store_halves(
        packing, kernel, "packed", v, f"(c < {packing.width}) & (q{last.letter} < padded_{last.letter})"
    )
    body.indent -= 1
    if packing.scaled:
        line("if not AGAIN:")
        line("    tl.store(largest_ptr + n * CHUNKS + tl.program_id(1), top)")
    kernel.add_pointers(pointers)
    wide, columns = _pack_tile(packing)
    chunks = packing.knobs.constant("CHUNKS", _chunks(packing), (), "programs that pack one image")
    kernel.meta = {"BLOCK_Q": str(wide), "BLOCK_C": str(columns), "CHUNKS": chunks}
    if packing.scaled:
        kernel.meta["SAMPLE"] = packing.knobs.constant(
            "SAMPLE", SAMPLE, (), "numbers of an image that its scale is guessed from"
        )
    return kernel, f"({form.batch}, {chunks})", 2 if wide * columns <= 1024 else 4


def _input_at(packing: Packing, kernel: Kernel, pointers: dict[str, str]) -> str:
    """The inputs of a stretch; zero around the image and behind its channels."""
    form, body, line = packing.form, kernel.body, kernel.body.line
    guards: list[str] = []
    if form.groups.code() != "1":
        line("group = c // padded_c")
        line("ci = c % padded_c")
        guards.append(f"(c < {packing.width})")
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


def _pack_tile(packing: Packing) -> tuple[int, int]:
    columns = min(64, 1 << (packing.channels - 1).bit_length())
    long = packing.form.axes[-1].padded()
    limit = max(32, (8192 if _is_long(packing) else 2048) // columns)
    choices = [q for q in (32, 64, 128, 256, 512, 1024) if q <= limit]
    waste = {q: (-(-long // q) * q, -q) for q in choices}
    return min(choices, key=lambda q: (waste[q][0] > 1.15 * min(w for w, _ in waste.values()), -q)), columns


def _is_long(packing: Packing) -> bool:
    """Whether there are large tiles for all multiprocessors, several in turn. Where there are not, a pass
    takes as long as one program does. Functions with long code want many small programs, too."""
    positions = prod(axis.padded() for axis in packing.form.axes)
    return not packing.form.slow_elements and packing.form.batch.value * packing.channels * positions >= LONG


def _scale_of_image(packing: Packing, kernel: Kernel, pointers: dict[str, str]) -> None:
    """Guess the exponent of an image's largest from a sample, with room above; or know it by now.

    Every program of an image looks at the same few numbers, so all of them agree. A guess that was too
    small shows when the largest of all is known: then (``AGAIN``) the loop runs once more, and otherwise
    not at all.
    """
    form, body, line = packing.form, kernel.body, kernel.body.line
    count = product(form.x.shape[1:])
    line(f"u = tl.arange(0, SAMPLE) * (({count} + SAMPLE - 1) // SAMPLE)")
    reader = Reader(form.graph, form.group.nodes, body, {"u": f"(u < {count})"}, pointers=pointers)
    index = unflat(loop_index("u", count), form.x.shape[1:])
    v = reader.read(form.x.name, (loop_index("n", form.batch), *index))
    v = body.let("size", f"tl.abs({v})")
    guard = f" & (u < {count})" if form.computed(form.x) else ""
    line(f'e = scale_exponent(tl.max(tl.where(({v} < float("inf")){guard}, {v}, 0.0), axis=0))')
    kernel.operands["largest_ptr"] = packing.local("largest")
    line("if AGAIN:")
    line("    top = tl.max(tl.load(largest_ptr + n * CHUNKS + tl.arange(0, CHUNKS)), axis=0)")
    line("    top_e = scale_exponent(top)")
    line(f"    end = tl.where(top_e > e + {ROOM}, end, 0)")
    line(f"    e = tl.maximum(e, top_e - {ROOM})")
    line("else:")
    line("    top = 0.0")
    line(f"scale = power_of_two({141 - ROOM} - e)")
    kernel.operands["x_scale_ptr"] = packing.local("x_scale")
    line("if tl.program_id(1) == 0:")
    line(f"    tl.store(x_scale_ptr + n, power_of_two(e - {141 - ROOM}))")


def _store_halves(packing: Packing, kernel: Kernel, what: str, text: str, mask: str) -> None:
    line, source = kernel.body.line, packing.local(what)
    if not packing.split:
        kernel.operands[f"{what}_ptr"] = source
        cast = f"{text}.to({TYPES[packing.dtype]})"
        line(f"tl.store({what}_ptr + at, {cast}, mask={mask})")
        return
    kernel.operands[f"{what}_ptr"] = f"{source}[0]"
    kernel.operands[f"{what}_low_ptr"] = f"{source}[1]"
    line(f"high = {text}.to(tl.float16)")
    line(f"tl.store({what}_ptr + at, high, mask={mask})")
    line(f"tl.store({what}_low_ptr + at, ({text} - high.to(tl.float32)).to(tl.float16), mask={mask})")


def _pack_weight(packing: Packing) -> tuple[Kernel, str, int]:
    """A program takes one output channel."""
    form = packing.form
    kernel = new_kernel(
        form,
        f"{form.group.name}_pack_weight",
        "The weights as rows by tap and channel"
        + (", scaled by a power of two per output channel." if packing.scaled else "."),
    )
    body, line = kernel.body, kernel.body.line
    packing.define_padding(kernel, {"padded_c", "summed"})
    line("c = tl.program_id(0)")
    if form.groups.code() != "1":
        outputs = f"({form.outputs})" if " " in form.outputs.code() else form.outputs.code()
        line(f"group = c // {outputs}")
        line(f"o = c % {outputs}")
    else:
        line("o = c")
    if form.computed(form.weight):  # pieces of it are loaded where a tap is theirs: a mask needs a block
        line("o += tl.zeros((BLOCK,), tl.int32)")
    pointers: dict[str, str] = {}
    if packing.scaled:
        line("top = tl.zeros((BLOCK,), tl.float32)")
        line("for k0 in range(0, summed, BLOCK):")
        body.indent += 1
        v = _weight_at(packing, kernel, pointers)
        v = body.let("size", f"tl.abs({v})")
        line(f'top = tl.maximum(top, tl.where({v} < float("inf"), {v}, 0.0))')
        body.indent -= 1
        line("e = scale_exponent(tl.max(top, axis=0))")
        line("scale = power_of_two(141 - e)")
        line("tl.store(w_scale_ptr + c, power_of_two(e - 141))")
    line("for k0 in range(0, summed, BLOCK):")
    body.indent += 1
    v = _weight_at(packing, kernel, pointers)
    v = body.let("scaled", f"{v} * scale") if packing.scaled else v
    line("at = c * summed + k")
    kernel.add_pointers(pointers)
    _store_halves(packing, kernel, "rows", v, "k < summed")
    body.indent -= 1
    if packing.scaled:
        kernel.operands["w_scale_ptr"] = packing.local("w_scale")
    deep = form.taps * form.inputs.value
    kernel.meta = {"BLOCK": str(min(2048, max(128, 1 << (deep - 1).bit_length())))}
    return kernel, f"({form.groups * form.outputs},)", 4


def _weight_at(packing: Packing, kernel: Kernel, pointers: dict[str, str]) -> str:
    form, body = packing.form, kernel.body
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
