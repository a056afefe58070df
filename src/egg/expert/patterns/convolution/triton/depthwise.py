"""One input channel per output channel: no product for tensor cores, just a stencil at the speed of memory.

In two dimensions and with neighbouring taps, a program walks down a strip of one plane: each row of the
input is loaded once (as many shifted vectors as the kernel is wide, all but one of them from L1) and feeds
every output row it belongs to through rolling sums, with the weights in registers. With a stride, a step of
the walk takes that many input rows: five by five taps at stride two load ten vectors for each output row, not
twenty-five. Otherwise a program takes
a stretch of one plane and gathers tap by tap. Where the channels are innermost in memory, lanes run along
them: a program has a block of channels of a narrow strip, or at a few neighbouring positions.
"""

from __future__ import annotations

from egg.expert.emit.code import Code
from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.emit.reader import Reader, is_fixed_norm
from egg.expert.graph import Value
from egg.expert.index import Expr, Index, as_expr, loop_index, unflat
from egg.expert.parts import Part, Target, Unfit
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.triton.frame import new_kernel
from egg.expert.patterns.convolution.triton.tail import Tail, finished
from egg.expert.sizes import ONE

MOST_TAPS = 49
"""Weights that one program keeps in registers."""

LEAST_CHANNELS = 16
"""That lanes run along, where they are innermost in memory."""

SUMMARY = "one input channel per output channel: a stencil, with what follows it in registers"


def write_depthwise(form: Form, target: Target) -> Part:
    if form.inputs != ONE or form.phased:
        raise Unfit("not one input channel per output channel")
    if form.plane == ONE:
        raise Unfit("planes of one position: there is no stretch of them")
    knobs = Knobs(form.group.name, target.settings)
    kernel = new_kernel(form, f"{form.group.name}_kernel", "")
    if _in_strips(form):
        tail, programs = _strips(form, kernel, knobs)
    elif _channels_last(form):
        tail, programs = _across_channels(form, kernel, knobs)
    else:
        tail, programs = _stretches(form, kernel, knobs)
    code = Code(call=tail.allocations())
    warps = knobs.constant("NUM_WARPS", _warps(kernel, knobs), (1, 2, 4))
    code.launch(kernel, programs, {"num_warps": warps})
    return finished(form, code, knobs, SUMMARY)


def _channels_last(form: Form) -> bool:
    """Whether neighbouring channels of the operand are neighbours in memory."""
    wide = form.groups.value >= LEAST_CHANNELS and form.outputs == ONE
    return wide and _innermost(form.x)


def _innermost(value: Value) -> bool:
    return value.stride[1] == ONE and not value.contiguous


def _across_channels(form: Form, kernel: Kernel, knobs: Knobs) -> tuple[Tail, str]:
    """A block of channels at neighbouring positions, tap by tap."""
    kernel.doc = "A block of channels at neighbouring positions, tap by tap; what taps share comes from L1."
    line, plane = kernel.body.line, form.plane
    channels = form.groups * form.outputs
    line("pid = tl.program_id(0)")
    _open_channels(form, kernel)
    line(f"s = (pid % tl.cdiv({plane}, BLOCK) * BLOCK + tl.arange(0, BLOCK))[:, None]")
    if form.batch != ONE:
        line(f"n = (pid // tl.cdiv({plane}, BLOCK)).to(tl.int64)")
    masks = {"s": f"(s < {plane})", "c": f"(c < {_whole_channels(form)})"}
    line(f"inside = {' & '.join(masks.values())}")
    pointers: dict[str, str] = {}
    line("acc = tl.zeros((BLOCK, BLOCK_C), tl.float32)")
    outputs = _sum_taps(form, kernel, masks, pointers, rolled=True)
    index = (loop_index("n", form.batch), _channel(form), *outputs)
    tail = _finish_stencil(form, kernel, pointers, index, masks)
    widest = 128 if _innermost(form.result) else 32  # else a tile is turned on its way out
    width = min(widest, 1 << (channels.value - 1).bit_length())
    kernel.meta = {
        "BLOCK_C": knobs.constant("BLOCK_C", width, (32, 64, 128), "channels of a program"),
        "BLOCK": knobs.constant("BLOCK", max(4, 2048 // width), (16, 32, 64), "neighbouring positions"),
    }
    blocks = (
        f"triton.cdiv({channels}, {kernel.meta['BLOCK_C']}) * triton.cdiv({plane}, {kernel.meta['BLOCK']})"
    )
    return tail, f"({blocks} * {form.batch.code()},)"


def _open_channels(form: Form, kernel: Kernel) -> None:
    """Which channels a program has, along the lanes."""
    channels = form.groups * form.outputs
    kernel.body.line(f"c = (pid % tl.cdiv({channels}, BLOCK_C) * BLOCK_C + tl.arange(0, BLOCK_C))[None, :]")
    kernel.body.line(f"pid = pid // tl.cdiv({channels}, BLOCK_C)")


def _whole_channels(form: Form) -> str:
    channels = form.groups * form.outputs
    return f"({channels})" if " " in channels.code() else channels.code()


def _in_strips(form: Form) -> bool:
    """Whether rows of a plane feed each other's sums; a strip of one column has no lanes to run along it."""
    if len(form.axes) != 2 or form.axes[1].out == ONE:
        return False
    rows = form.axes[0]
    if rows.step > 1 and (_channels_last(form) or rows.step > rows.kernel):
        return False
    return rows.reach == 1 and form.taps <= MOST_TAPS


def _strips(form: Form, kernel: Kernel, knobs: Knobs) -> tuple[Tail, str]:
    """Down the rows of a plane, with rolling sums; of a block of channels where those are innermost."""
    kernel.doc = "Walks down a strip of one plane; every input row feeds all output rows it belongs to."
    rows, columns = form.axes
    body, line = kernel.body, kernel.body.line
    across = _channels_last(form)
    _open_strip(form, kernel, across)
    masks = {"c": f"(c < {_whole_channels(form)})"} if across else {}
    shape = "(BLOCK_W, BLOCK_C)" if across else "(BLOCK_W,)"
    pointers: dict[str, str] = {}
    reader = Reader(form.graph, form.group.nodes, body, masks, pointers=pointers)
    weights = {
        (kh, kw): reader.read(form.weight.name, _weight_index(form, (as_expr(kh), as_expr(kw))))
        for kh in range(rows.kernel)
        for kw in range(columns.kernel)
    }
    last = -(-rows.kernel // rows.step) - 1
    for at in range(last):
        line(f"sum_{at} = tl.zeros({shape}, tl.float32)")
    line(f"for step in range(ROWS + {last}):" if last else "for step in range(ROWS):")
    body.indent += 1
    seen = {
        (phase, kw): x
        for phase in range(rows.step)
        for kw, x in enumerate(_input_row(form, kernel, phase, masks, pointers))
    }
    for at in range(last, -1, -1):
        taps = [(row, kw) for row in range(rows.kernel) for kw in range(columns.kernel)]
        own = [(row, kw) for row, kw in taps if row // rows.step == at]
        products = " + ".join(f"{seen[row % rows.step, kw]} * {weights[row, kw]}" for row, kw in own)
        name = "acc" if at == last else f"sum_{at}"
        line(f"{name} = {f'sum_{at - 1} + ' if at else ''}{products}")
    line(f"qh = first + step - {last}" if last else "qh = first + step")
    there = [f"(qw < {columns.out})", "(qh >= first)", f"(qh < {rows.out})", *masks.values()]
    line(f"inside = {' & '.join(there)}")
    index = (
        loop_index("n", form.batch),
        _channel(form),
        loop_index("qh", rows.out),
        loop_index("qw", columns.out),
    )
    tail = _finish_stencil(form, kernel, pointers, index, {"qh": "inside", "qw": "inside", **masks})
    body.indent -= 1
    blocks = _strip_of_channels(form, knobs) if across else _strip_of_plane(form, knobs)
    kernel.meta = blocks
    strips = f"triton.cdiv({columns.out}, {blocks['BLOCK_W']}) * triton.cdiv({rows.out}, {blocks['ROWS']})"
    if across:
        channels = (form.groups * form.outputs).code()
        return tail, f"(triton.cdiv({channels}, {blocks['BLOCK_C']}) * {strips} * {form.batch.code()},)"
    return tail, f"({strips} * {_planes(form)},)"


def _input_row(
    form: Form, kernel: Kernel, phase: int, masks: dict[str, str], pointers: dict[str, str]
) -> list[str]:
    """One of the input rows that a step of the walk begins with, as many as an output row is wide: shifted
    for each tap."""
    rows, columns = form.axes
    at = "first + step" if rows.step == 1 else f"(first + step) * {rows.step}"
    more = phase - rows.padding
    shift = f" {'-' if more < 0 else '+'} {abs(more)}" if more else ""
    row = kernel.body.let("in_h", f"{at}{shift}")
    reader = Reader(form.graph, form.group.nodes, kernel.body, masks, pointers=pointers)
    return [_row_at(form, kernel, reader, row, kw) for kw in range(columns.kernel)]


def _open_strip(form: Form, kernel: Kernel, across: bool) -> None:
    """Which strip a program walks down: its columns ``qw``, its first row, its channels, its image."""
    rows, columns = form.axes
    line = kernel.body.line
    line("pid = tl.program_id(0)")
    if across:
        _open_channels(form, kernel)
    lanes = f"pid % tl.cdiv({columns.out}, BLOCK_W) * BLOCK_W + tl.arange(0, BLOCK_W)"
    line(f"qw = ({lanes})[:, None]" if across else f"qw = {lanes}")
    line(f"pid = pid // tl.cdiv({columns.out}, BLOCK_W)")
    line(f"first = pid % tl.cdiv({rows.out}, ROWS) * ROWS")
    if not across:
        _plane(form, kernel, f"pid // tl.cdiv({rows.out}, ROWS)")
    elif form.batch != ONE:
        line(f"n = (pid // tl.cdiv({rows.out}, ROWS)).to(tl.int64)")


def _strip_of_plane(form: Form, knobs: Knobs) -> dict[str, str]:
    rows, columns = form.axes
    width = min(256, max(32, 1 << (columns.out.value - 1).bit_length()))
    return {
        "BLOCK_W": knobs.constant("BLOCK_W", width, (64, 128, 256), "columns of a strip"),
        "ROWS": knobs.constant(
            "ROWS", 32 if rows.out.value >= 64 else 16, (16, 32, 64), "output rows of a strip"
        ),
    }


def _strip_of_channels(form: Form, knobs: Knobs) -> dict[str, str]:
    """Two elements a thread, or the weights of all taps would not stay in registers. A strip is long where it
    begins with many rows that give no result."""
    rows = form.axes[0]
    length = min(64, rows.out.value) if rows.kernel > 3 else 16
    return {
        "BLOCK_C": knobs.constant("BLOCK_C", 32, (16, 32, 64), "channels of a program"),
        "BLOCK_W": knobs.constant("BLOCK_W", 8, (4, 8, 16), "columns of a strip"),
        "ROWS": knobs.constant("ROWS", length, (16, 32, 64), "output rows of a strip"),
    }


def _row_at(form: Form, kernel: Kernel, reader: Reader, row: str, kw: int) -> str:
    """The input row, shifted for one tap."""
    rows, columns = form.axes
    iw = loop_index("qw", columns.out) * columns.step + columns.origin(0) + kw * columns.reach
    in_h = loop_index(row, rows.size)
    guards = [f"({row} >= 0)"] if rows.padding > 0 else []
    guards += [f"({row} < {rows.size})"]
    guards += [f"({iw} >= 0)"] if iw.may_be_negative() else []
    guards += [f"({iw} < {columns.size})"]
    x = reader.read(form.x.name, (loop_index("n", form.batch), _input_channel(form), in_h, iw), tuple(guards))
    return kernel.body.let("x", f"tl.where({' & '.join(guards)}, {x}, 0.0)") if form.computed(form.x) else x


def _stretches(form: Form, kernel: Kernel, knobs: Knobs) -> tuple[Tail, str]:
    """A stretch of a plane's positions, tap by tap."""
    kernel.doc = "A stretch of one plane, tap by tap; neighbouring taps find most of their inputs in L1."
    line = kernel.body.line
    line("pid = tl.program_id(0)")
    line(f"s = pid % tl.cdiv({form.plane}, BLOCK) * BLOCK + tl.arange(0, BLOCK)")
    line(f"inside = s < {form.plane}")
    _plane(form, kernel, f"pid // tl.cdiv({form.plane}, BLOCK)")
    pointers: dict[str, str] = {}
    line("acc = tl.zeros((BLOCK,), tl.float32)")
    outputs = _sum_taps(form, kernel, {"s": "inside"}, pointers)
    tail = _finish_stencil(form, kernel, pointers, (loop_index("n", form.batch), _channel(form), *outputs))
    block = min(1024, max(32, 1 << (form.plane.value - 1).bit_length()))
    kernel.meta = {"BLOCK": knobs.constant("BLOCK", block, (256, 512, 1024), "positions of a stretch")}
    return tail, f"(triton.cdiv({form.plane}, {kernel.meta['BLOCK']}) * {_planes(form)},)"


def _sum_taps(
    form: Form, kernel: Kernel, masks: dict[str, str], pointers: dict[str, str], rolled: bool = False
) -> Index:
    """Add up the products of all taps at the positions ``s`` of the plane, and say where those lie."""
    body = kernel.body
    taps = _tap_loops(form, kernel, rolled)
    outputs = unflat(loop_index("s", form.plane), tuple(axis.out for axis in form.axes))
    at = tuple(
        out * axis.step + axis.origin(0) + tap * axis.reach
        for axis, out, tap in zip(form.axes, outputs, taps, strict=True)
    )
    reader = Reader(form.graph, form.group.nodes, body, masks, pointers=pointers)
    borders = form.outside(at)
    x = reader.read(form.x.name, (loop_index("n", form.batch), _input_channel(form), *at), borders)
    if borders and form.computed(form.x):
        x = body.let("x", f"tl.where({' & '.join(borders)}, {x}, 0.0)")
    w = reader.read(form.weight.name, _weight_index(form, taps))
    body.line(f"acc += {x} * {w}")
    body.indent -= sum(axis.kernel > 1 for axis in form.axes)
    return outputs


def _tap_loops(form: Form, kernel: Kernel, rolled: bool) -> Index:
    """Loops over the taps, one per axis; unrolled where they are few.

    ``rolled``: all but the innermost loop stay loops. The addresses and masks of all taps at once take so
    many registers that a multiprocessor has half the programs (an H200, channels innermost: a block around 25
    taps takes 0.67x of the time with five loops of five, one around nine taps 0.87x).

    Not one loop whose counter is divided: Triton 3.6 reads beyond the tensor where such quotients stand in
    masks.
    """
    taps: list[Expr] = []
    innermost = max((axis for axis in form.axes if axis.kernel > 1), key=form.axes.index, default=None)
    for axis in form.axes:
        if axis.kernel == 1:
            taps.append(Expr())
            continue
        unrolled = form.taps <= MOST_TAPS and (axis is innermost or not rolled)
        spelled = "tl.static_range" if unrolled else "range"
        kernel.body.line(f"for j{axis.letter} in {spelled}({axis.kernel}):")
        kernel.body.indent += 1
        taps.append(loop_index(f"j{axis.letter}", axis.kernel))
    return tuple(taps)


def _plane(form: Form, kernel: Kernel, rest: str) -> None:
    """Which image and which channel a program works on."""
    text = _whole_channels(form)
    kernel.body.line(f"plane = {rest}")
    if form.batch == ONE:
        kernel.body.line("c = plane")
        return
    kernel.body.line(f"c = plane % {text}")
    kernel.body.line(f"n = (plane // {text}).to(tl.int64)")


def _planes(form: Form) -> str:
    return (form.batch * form.groups * form.outputs).code()


def _channel(form: Form) -> Expr:
    return loop_index("c", form.groups * form.outputs)


def _input_channel(form: Form) -> Expr:
    return _channel(form) // form.outputs


def _weight_index(form: Form, taps: Index) -> Index:
    if form.transposed:
        return (_channel(form) // form.outputs, _channel(form) % form.outputs, *taps)
    return (_channel(form), Expr(), *taps)


def _finish_stencil(
    form: Form,
    kernel: Kernel,
    pointers: dict[str, str],
    index: Index,
    masks: dict[str, str] | None = None,
) -> Tail:
    """``masks``: by the lanes of a program; those of one plane where none are given."""
    tail = Tail.of(form, index)
    if not all(is_fixed_norm(node) for node in tail.operations):
        raise Unfit("a program does not have all channels, so nothing over channels follows in it")
    masks = masks or dict.fromkeys(("s", "qd", "qh", "qw"), "inside")
    reader = Reader(form.graph, form.group.nodes, kernel.body, masks, pointers=pointers)
    sums = "acc"
    if form.bias is not None:
        bias = reader.read(form.bias.name, (_channel(form),))
        sums = kernel.body.let("sums", f"acc + {bias}")
    tail.bind(reader, sums)
    tail.store(kernel, reader, "inside")
    return tail


def _warps(kernel: Kernel, knobs: Knobs) -> int:
    """Two to four elements for each thread."""
    if "BLOCK_C" in kernel.meta:
        return 4
    wide = max(int(knobs.made[name].value) for key, name in kernel.meta.items() if key != "ROWS")
    return max(1, min(8, wide // 64 if "ROWS" in kernel.meta else wide // 128))
