"""A convolution over packed operands: the inner loop of a good matrix product, with next to no addresses in
it.

The input is brought once per call into zero-padded channels-last order, the weights into rows ordered by tap
and channel. Then for one tap the channels of a position lie side by side, borders need no tests (they are
zeros in memory), and of the address arithmetic a handful of numbers per trip is left. Packing also decides
the precision (:mod:`~egg.expert.patterns.convolution.triton.packing`): fp32 operands become fp16 after an
exact scaling by powers of two, one half for TF32's accuracy at twice TF32's speed, two halves and three
products for fp32's. The scales are undone in the epilogue, exactly.
"""

from __future__ import annotations

from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.parts import Part, Target, Unfit
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.tiles import packed_tile
from egg.expert.patterns.convolution.triton.frame import close_tile, grid, new_kernel, open_tile
from egg.expert.patterns.convolution.triton.pack import packing_code
from egg.expert.patterns.convolution.triton.packing import Packing
from egg.expert.patterns.convolution.triton.phases import define_phase
from egg.expert.patterns.convolution.triton.tail import Tail, finish, finished
from egg.expert.sizes import ONE, Size

DOC = (
    "A tile of output positions by output channels from packed operands; what follows the convolution is "
    "computed where the sums are."
)

SUMMARY = "the convolution as a product over packed operands, with what follows it in its epilogue"


def write_packed(form: Form, grade: Grade, target: Target) -> Part:
    if grade.name == "ieee":
        raise Unfit("packed operands are for tensor cores")
    form = form.in_rows()
    tail = Tail.of(form)
    knobs = Knobs(form.group.name, target.settings)
    tile = packed_tile(form, grade, target.gpu, tail.whole)
    meta = {
        "BLOCK_P": knobs.constant("BLOCK_P", tile.rows, (64, 128, 256), "output positions of a tile"),
        "BLOCK_O": tail.block_o
        or knobs.constant("BLOCK_O", tile.columns, tile.column_choices, "output channels of a tile"),
        "BLOCK_K": knobs.constant("BLOCK_K", tile.depth, (), "channels and taps summed at once"),
    }
    packing = Packing(form, grade, knobs, meta["BLOCK_K"])
    kernel = new_kernel(form, f"{form.group.name}_kernel", DOC)
    open_tile(form, kernel)
    packing.define_padding(kernel)
    kernel.operands.update(packing.operands())
    if form.axes[-1].dense:
        _dense_sums(form, kernel, grade, packing.large)
    else:
        _phase_sums(form, kernel, grade, packing.large)
    close_tile(form, kernel)
    sums = packing.unscaled(kernel, "acc")
    finish(form, kernel, tail, {}, sums)
    kernel.meta = dict(meta)
    options = {
        "num_warps": knobs.constant("NUM_WARPS", tail.warps(tile), (4, 8)),
        "num_stages": knobs.constant("NUM_STAGES", tile.stages, (1, 2, 3, 4)),
    }
    code = packing_code(packing)
    code.call += tail.preparations()
    code.launch(kernel, grid(form, meta["BLOCK_P"], meta["BLOCK_O"]), options)
    return finished(form, code, knobs, SUMMARY, packing.counts)


def _phase_sums(form: Form, kernel: Kernel, grade: Grade, large: bool) -> None:
    """Of all phases that a program has."""
    for phase in range(form.width):
        if form.joined is not None:
            define_phase(form, kernel, phase)
        _begin(form, kernel, large)
        if form.uniform:
            _vector_loop(form, kernel, grade)
        elif form.joined is None or form.joined.taps(phase):
            _scalar_loop(form, kernel, grade)
        if form.joined is not None:
            kernel.body.line(f"acc_{phase} = acc")


def _dense_sums(form: Form, kernel: Kernel, grade: Grade, large: bool) -> None:
    """Tap by tap along the innermost axis; to an output that no input reaches by a tap it adds zeros."""
    line, axis = kernel.body.line, form.axes[-1]
    x = axis.letter
    line("live = inside")
    for tap in range(axis.kernel):
        line(f"j{x} = {tap}")
        shift = axis.padding - tap * axis.dilation
        line(f"u{x} = q{x} {'-' if shift < 0 else '+'} {abs(shift)}")
        line(f"in_{x} = u{x} // {axis.stride}")
        line(f"inside = live & (u{x} >= 0) & (in_{x} * {axis.stride} == u{x}) & (in_{x} < {axis.size})")
        if tap:
            open_rows(form, kernel, large)
        else:
            _begin(form, kernel, large)
        _scalar_loop(form, kernel, grade, ", mask=tl.trans(inside), other=0.0")
    line("inside = live")


def _begin(form: Form, kernel: Kernel, large: bool) -> None:
    open_rows(form, kernel, large)
    open_columns(form, kernel)
    kernel.body.line("acc = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)")


def open_rows(form: Form, kernel: Kernel, large: bool) -> None:
    """Where the first tap of each position lies in the packed input.

    In 32 bits where those reach: what is added to it in the loop is half of the addresses' arithmetic.
    """
    line = kernel.body.line
    grouped = form.groups != ONE
    width = f"({form.groups} * padded_c)" if grouped else "padded_c"
    place = f"({_position(form)}).to(tl.int64)" if form.batch == ONE else f"({_position(form)})"
    reached = "" if large else ".to(tl.int32)"
    line(f"row = tl.trans(tl.where(inside, {place}, {_position(form, first=True)})){reached} * {width}")
    if grouped:
        line("row += group * padded_c")


def open_columns(form: Form, kernel: Kernel) -> None:
    """Where the first tap of each output channel lies in the packed weights."""
    channel = f"group * {_wrapped(form.outputs)} + o" if form.groups != ONE else "o"
    last = f"{form.groups * form.outputs} - 1"
    kernel.body.line(f"column = tl.trans(tl.minimum({channel}, {last})) * summed")


def _position(form: Form, first: bool = False) -> str:
    """Of an output's first tap among the packed positions; or that of the very first output."""
    place = "" if first or form.batch == ONE else "n"
    for axis in form.axes:
        summands = [] if first else [f"q{axis.letter}" + (f" * {axis.step}" if axis.step > 1 else "")]
        if axis.dense:
            place = _nested(place, f"padded_{axis.letter}", "" if first else f"in_{axis.letter}")
            continue
        summands += [f"origin_{axis.letter}"] if axis.phases > 1 else []
        shift = axis.before + (axis.origin(0) if axis.phases == 1 else 0)
        summands += [str(shift)] if shift else []
        place = _nested(place, f"padded_{axis.letter}", " + ".join(summands))
    return place or "0"


def _offsets(form: Form) -> tuple[str, str]:
    """What the taps ``j`` of a phase move the input and the weights by, in positions and taps."""
    width = f"({form.groups} * padded_c)" if form.groups != ONE else "padded_c"
    x = w = ""
    for axis in form.axes:
        if axis.dense:
            x = _nested(x, f"padded_{axis.letter}", "")
            w = _nested(w, str(axis.kernel), f"j{axis.letter}")
            continue
        if axis.most_taps == 1 and axis.reach and axis.uniform:
            step = ""
        else:
            step = f"j{axis.letter}" + (f" * {axis.reach}" if axis.reach != 1 else "")
        tap = "" if not step else f"j{axis.letter}" + (f" * {axis.pace}" if axis.pace != 1 else "")
        if axis.phases > 1:
            tap = f"first_{axis.letter} + {tap}" if tap else f"first_{axis.letter}"
        x = _nested(x, f"padded_{axis.letter}", step)
        w = _nested(w, str(axis.kernel), tap)
    return (f"({x}) * {width}" if x else ""), (f"({w}) * padded_c" if w else "")


def _nested(outer: str, size: str, inner: str) -> str:
    if not outer:
        return inner
    scaled = f"({outer}) * {size}" if " " in outer else f"{outer} * {size}"
    return f"{scaled} + {inner}" if inner else scaled


def _vector_loop(form: Form, kernel: Kernel, grade: Grade) -> None:
    """Taps and channels in one run of ``k``: blocks may begin and end anywhere."""
    line = kernel.body.line
    _, w = _offsets(form)
    length = f"{form.most_taps} * padded_c" if form.most_taps > 1 else "padded_c"
    line(f"for k0 in range(0, {length}, BLOCK_K):")
    kernel.body.indent += 1
    line("k = k0 + tl.arange(0, BLOCK_K)")
    line(f"live = (k < {length})[None, :]")
    offset = take_apart(form, kernel)
    contiguous = not form.phased
    line(f"x_at = row + ({offset})[None, :]")
    line("w_at = column + k[None, :]" if contiguous else f"w_at = column + ({w} + ci)[None, :]")
    _products(kernel, grade, *[", mask=live, other=0.0"] * 2)
    kernel.body.indent -= 1


def take_apart(form: Form, kernel: Kernel) -> str:
    """``k`` as taps and a channel, and what they move the input by."""
    line, (x, _) = kernel.body.line, _offsets(form)
    rest = [axis for axis in form.axes if axis.most_taps > 1]
    counts = [axis.most_taps for axis in rest]
    for at, axis in enumerate(rest):
        inner = "padded_c"
        for count in counts[at + 1 :]:
            inner += f" * {count}"
        inner = f"({inner})" if " " in inner else inner
        line(f"j{axis.letter} = k // {inner}" + (f" % {axis.most_taps}" if at else ""))
    line("ci = k % padded_c" if rest else "ci = k")
    return f"{x} + ci" if x else "ci"


def _scalar_loop(form: Form, kernel: Kernel, grade: Grade, masked: str = "") -> None:
    """Phases with different numbers of taps: a trip stays within one tap, so it has a single offset."""
    line = kernel.body.line
    x, w = _offsets(form)
    axes = [axis for axis in form.axes if not axis.dense]
    counts = [f"taps_{a.letter}" if a.phases > 1 else str(a.kernel) for a in axes] or ["1"]
    line("kk = tl.arange(0, BLOCK_K)[None, :]")
    line(f"for k0 in range(0, {' * '.join(counts)} * padded_c // BLOCK_K):")
    kernel.body.indent += 1
    line("ci = k0 % (padded_c // BLOCK_K) * BLOCK_K")
    line("t = k0 // (padded_c // BLOCK_K)")
    for at, axis in enumerate(axes):
        inner = " * ".join(counts[at + 1 :])
        text = f"t // ({inner})" if inner else "t"
        line(f"j{axis.letter} = {text}" + (f" % {counts[at]}" if at else ""))
    line(f"x_at = row + ({f'{x} + ' if x else ''}ci) + kk")
    line(f"w_at = column + ({w} + ci) + kk")
    _products(kernel, grade, masked, "")
    kernel.body.indent -= 1


def _products(kernel: Kernel, grade: Grade, x_masked: str, w_masked: str) -> None:
    line = kernel.body.line
    line(f"x = tl.load(packed_ptr + x_at{x_masked})")
    line(f"w = tl.load(rows_ptr + w_at{w_masked})")
    if grade.name != "fp32":
        line("acc = tl.dot(x, w.T, acc)")
        return
    line(f"x_low = tl.load(packed_low_ptr + x_at{x_masked})")
    line(f"w_low = tl.load(rows_low_ptr + w_at{w_masked})")
    line("part = tl.dot(x_low, w.T)  # small ones first, and each block from zero:")
    line("part = tl.dot(x, w_low.T, part)  # tensor cores cut off where they add up,")
    line("part = tl.dot(x, w.T, part)")
    line("acc += part  # while this rounds")


def _wrapped(size: Size) -> str:
    return f"({size})" if " " in size.code() else size.code()
