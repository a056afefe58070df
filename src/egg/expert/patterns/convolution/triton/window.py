"""A convolution of few input channels: every input that an output position needs, in one tile.

``sums[position, channel] = x[position, k] w[k, channel]`` with ``k`` over input channels and the whole window
around a position, gathered once straight from memory and kept. For an ordinary convolution the window is the
taps. For a transposed one it is the few inputs around a position that any of its phases reads (2x2x2 of them
for a kernel of 3x3x3 and stride 2), and a program computes all phases of its positions one after the other
(two at a time, side by side, along the innermost axis): the same tile of inputs each time, with weights that
are zero where a phase has no such tap. So inputs are read once rather than once per tap and phase, nothing is
packed beforehand, and rows are written whole.

Precision as in :mod:`.direct`.
"""

from __future__ import annotations

from math import prod

from egg.expert.emit.code import Code
from egg.expert.emit.host import Host
from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.emit.reader import Reader
from egg.expert.index import Expr, loop_index, unflat
from egg.expert.parts import Part, Target, Unfit
from egg.expert.patterns.convolution.axis import Axis
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.tiles import power
from egg.expert.patterns.convolution.triton import scaling
from egg.expert.patterns.convolution.triton.direct import scaled_products
from egg.expert.patterns.convolution.triton.frame import (
    count_positions,
    counted,
    grid,
    new_kernel,
    open_joined,
    open_positions,
    place,
)
from egg.expert.patterns.convolution.triton.gather import Gatherer, runs
from egg.expert.patterns.convolution.triton.phases import define_steps, join_phases, leave_out
from egg.expert.patterns.convolution.triton.tail import Tail, finish, finished, tile_masks
from egg.expert.sizes import ONE, Size

SUMMARY = "few input channels: all inputs of a position in one tile, with what follows in the epilogue"
DOC = (
    "A tile of output positions by output channels; the inputs of a position are gathered once, and what "
    "follows the convolution is computed where the sums are."
)
MOST = 128
"""Inputs of one position that a tile holds."""
MANY_PHASES = 64
FEW_TAPS = 32
"""Inputs of one position up to which this form is the first choice: where it saves reading them again for
every phase, and where it does not."""


def window(axis: Axis) -> int:
    """Inputs along an axis that the outputs of a position read."""
    return axis.span if axis.phases > 1 else axis.kernel


def gathered(form: Form) -> int:
    """Inputs of one position."""
    return form.inputs.value * prod(window(axis) for axis in form.axes)


def windowed(form: Form) -> bool:
    """Whether this is the form to begin with."""
    if form.groups != ONE or form.pointwise:
        return False
    return gathered(form) <= (MANY_PHASES if form.phased else FEW_TAPS)


def write_window(form: Form, grade: Grade, target: Target) -> Part:
    if grade.name == "ieee" or form.groups != ONE:
        raise Unfit("a window of inputs is for tensor cores, and for one group")
    if gathered(form) > MOST:
        raise Unfit(f"{gathered(form)} inputs for every output position")
    tail = Tail.of(form)
    knobs = Knobs(form.group.name, target.settings)
    kernel = new_kernel(form, f"{form.group.name}_kernel", DOC)
    pointers: dict[str, str] = {}
    _open(form, kernel)
    x = _inputs(form, kernel, grade, pointers)
    line = kernel.body.line
    if form.joined is not None:
        open_joined(form, kernel)
        line(f"live = p < {counted(form)}")
    for axis in form.apart:
        line(f"for r{axis.letter} in range({axis.phases}):")
        kernel.body.indent += 1
    line("inside = live")
    leave_out(form, kernel, form.phased)
    if not form.phased:
        line(f"s = {place(form)}")
    for phase in range(form.width):
        _phase(form, kernel, phase)
        _sums(form, kernel, grade, pointers, x)
        if form.joined is not None:
            line(f"acc_{phase} = acc")
    if form.joined is not None:
        join_phases(form, kernel, "acc_0", "acc_1")
    line("c = tl.trans(o)")
    line(f"kept = c < {form.outputs}")
    finish(form, kernel, tail, pointers, "acc")
    kernel.body.indent -= len(form.apart)
    block_k = Host(form.graph, form.group).local("block_k")
    deep = power(gathered(form), 16, MOST)
    columns = power(form.outputs.value, 16, 256 if tail.whole else 64)
    rows = 256 if deep * 256 <= 8192 and columns <= 32 else 128
    kernel.meta = {
        "BLOCK_P": knobs.constant("BLOCK_P", rows, (64, 128, 256), "output positions of a tile"),
        "BLOCK_O": tail.block_o or knobs.constant("BLOCK_O", columns, (), "output channels of a tile"),
        "BLOCK_K": block_k,
    }
    warps = 8 if rows * max(deep, columns) >= 128 * 64 else 4
    options = {
        "num_warps": knobs.constant("NUM_WARPS", warps, (4, 8)),
        "num_stages": knobs.constant("NUM_STAGES", 1),
    }
    programs = grid(form, kernel.meta["BLOCK_P"], kernel.meta["BLOCK_O"], phases=False)
    whole = " * ".join([form.inputs.code(), str(prod(window(axis) for axis in form.axes))])
    code = Code(call=[f"{block_k} = max(16, triton.next_power_of_2({whole}))", *tail.preparations()])
    code.define(scaling.functions(grade))
    code.launch(kernel, programs, options)
    return finished(form, code, knobs, SUMMARY)


def _open(form: Form, kernel: Kernel) -> None:
    """The tile of a program: positions, which stand for all phases, and output channels."""
    line = kernel.body.line
    line("pid = tl.program_id(0)")
    blocks = f"tl.cdiv({form.outputs}, BLOCK_O)"
    line(f"o = pid % {blocks} * BLOCK_O + tl.arange(0, BLOCK_O)[None, :]")
    line(f"pid = pid // {blocks}")
    define_steps(form, kernel)
    count_positions(form, kernel, "live")
    open_positions(form, kernel)


def _inputs(form: Form, kernel: Kernel, grade: Grade, pointers: dict[str, str]) -> str:
    """The window of every position, ``BLOCK_K`` by ``BLOCK_P``: zero beyond borders and the last ``k``."""
    body, line = kernel.body, kernel.body.line
    depth = form.inputs * prod(window(axis) for axis in form.axes)
    line("k = tl.arange(0, BLOCK_K)[:, None]")
    inner, *taps = unflat(loop_index("k", depth), (form.inputs, *(Size(window(axis)) for axis in form.axes)))
    line(f"ci = {inner}")
    for axis, tap in zip(form.axes, taps, strict=True):
        line(f"u{axis.letter} = {tap}")
    at: list[Expr] = []
    guards: list[str] = [f"(k < {depth})"]
    for axis in form.axes:
        step = loop_index(f"q{axis.letter}", axis.count) * axis.step
        if axis.phases > 1:
            place = step + loop_index(f"u{axis.letter}", window(axis)) - axis.before
        else:
            place = step + loop_index(f"u{axis.letter}", window(axis)) * axis.reach + axis.origin(0)
        at.append(place)
        guards += [f"({place} >= 0)"] if place.may_be_negative() else []
        guards += [f"({place} < {axis.size})"] if axis.phases > 1 or not place.below(axis.size) else []
    masks = {name: "live" for name, mask in tile_masks(form).items() if mask == "inside"}
    kind = Reader if runs(form) else Gatherer
    reader = kind(form.graph, form.group.nodes, body, masks, pointers=pointers)
    channel = loop_index("ci", form.inputs)
    x = reader.read(form.x.name, (loop_index("n", form.batch), channel, *at), tuple(guards))
    x = body.let("x", f"tl.where(live & {' & '.join(guards)}, {x}, 0.0)")
    if grade.scales:
        scaling.write_halves(body, grade, "x", x, turned=True)
        return "x_high"
    return body.let("x", scaling.operand(grade, f"tl.trans({x})"))


def _phase(form: Form, kernel: Kernel, joined: int) -> None:
    """Which tap of the kernel belongs to which input of the window."""
    for axis in form.phased:
        far, x = axis.padding + axis.before * axis.stride, axis.letter
        at = str(joined + far) if axis is form.joined else f"r{x} + {far}"
        kernel.body.line(f"j{x} = {at} - u{x} * {axis.stride}")


def _sums(form: Form, kernel: Kernel, grade: Grade, pointers: dict[str, str], x: str) -> None:
    """The product with the weights of a phase, turned around: positions along the lanes."""
    body, line = kernel.body, kernel.body.line
    guards: list[str] = []
    taps: list[Expr] = []
    for axis in form.axes:
        if axis.phases == 1:
            taps.append(loop_index(f"u{axis.letter}", axis.kernel) * axis.pace)
            continue
        j = f"j{axis.letter}"
        if axis.dilation > 1:
            guards.append(f"({j} % {axis.dilation} == 0)")
        guards += [f"({j} >= 0)", f"({j} < {(axis.kernel - 1) * axis.dilation + 1})"]
        tap = loop_index(j, axis.kernel * axis.dilation)
        taps.append(tap // axis.dilation if axis.dilation > 1 else tap)
    depth = form.inputs * prod(window(axis) for axis in form.axes)
    guards += [f"(k < {depth})", f"(o < {form.outputs})"]
    reader = Reader(form.graph, form.group.nodes, body, {}, pointers=pointers)
    inner, outer = loop_index("ci", form.inputs), loop_index("o", form.outputs)
    w = reader.read(form.weight.name, form.weight_index(inner, outer, tuple(taps)), tuple(guards))
    w = body.let("w", f"tl.where({' & '.join(guards)}, {w}, 0.0)")
    if grade.scales:
        scaled_products(body, grade, w)
    else:
        line(f"part = tl.dot({x}, {scaling.operand(grade, w)})")
        line("acc = tl.trans(part)")
