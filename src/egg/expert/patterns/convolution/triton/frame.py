"""What every convolution kernel begins with: which tile a program owns.

A tile is ``BLOCK_P`` output positions by ``BLOCK_O`` output channels of one group and one phase (of both,
where the innermost axis has two). Phases are the fastest part of the program number, then blocks of channels
(they read the same inputs), then groups, then positions (neighbours share rows of the input in L2).
"""

from __future__ import annotations

from math import prod

from egg.expert.emit.kernel import Kernel
from egg.expert.emit.words import CONVOLUTION, PRODUCT
from egg.expert.index import flat, loop_index
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.triton.phases import define_phases, define_steps, join_phases, leave_out
from egg.expert.sizes import ONE


def new_kernel(form: Form, name: str, doc: str) -> Kernel:
    """An empty kernel; every size but the batch is known when it is compiled, so that divisions are cheap."""
    batch = {symbol.name for symbol in form.batch.factors}
    shapes = (*form.x.shape[1:], *form.weight.shape, *form.result.shape[1:])
    parts = [form.graph.value(name) for name in form.group.writes(form.graph)]
    shapes += tuple(stride for value in parts if value.lent for stride in value.stride)
    sizes = {symbol.name for size in shapes for symbol in size.factors} - batch
    return Kernel(name, doc, form.graph, PRODUCT | CONVOLUTION, fixed=frozenset(sizes))


def open_tile(form: Form, kernel: Kernel) -> None:
    """Lines that find the tile of a program and its indices."""
    open_channels(form, kernel)
    open_places(form, kernel)


def open_channels(form: Form, kernel: Kernel) -> None:
    """The output channels of a program; ``pid`` is the number of its positions then."""
    line = kernel.body.line
    line("pid = tl.program_id(0)")
    for axis in reversed(form.apart):
        line(f"r{axis.letter} = pid % {axis.phases}")
        line(f"pid = pid // {axis.phases}")
    blocks = f"tl.cdiv({form.outputs}, BLOCK_O)"
    line(f"o = pid % {blocks} * BLOCK_O + tl.arange(0, BLOCK_O)[None, :]")
    line(f"pid = pid // {blocks}")
    if form.groups.value != 1 or form.groups.factors:
        line(f"group = pid % {_wrapped(form.groups.code())}")
        line(f"pid = pid // {_wrapped(form.groups.code())}")


def open_places(form: Form, kernel: Kernel) -> None:
    """The output positions of tile number ``pid``."""
    line = kernel.body.line
    define_steps(form, kernel)
    count_positions(form, kernel, "inside")
    open_positions(form, kernel)
    leave_out(form, kernel, form.apart)
    if not form.phased:
        line(f"s = {place(form)}")
    define_phases(form, kernel)


def close_tile(form: Form, kernel: Kernel) -> None:
    """The sums turned around: positions along the lanes, so that channels-first stores are contiguous."""
    close_positions(form, kernel)
    close_channels(form, kernel)


def close_positions(form: Form, kernel: Kernel) -> None:
    line = kernel.body.line
    if form.joined is None:
        line("acc = tl.trans(acc)")
    else:
        join_phases(form, kernel, "tl.trans(acc_0)", "tl.trans(acc_1)")
        open_joined(form, kernel)
        line(f"inside = p < {counted(form)}")
        leave_out(form, kernel, form.phased)


def close_channels(form: Form, kernel: Kernel) -> None:
    line = kernel.body.line
    line("o = tl.trans(o)")
    line(f"kept = o < {form.outputs}")
    line(f"c = group * {_wrapped(form.outputs.code())} + o" if form.groups.code() != "1" else "c = o")


def open_joined(form: Form, kernel: Kernel) -> None:
    """The positions of a tile once more, now each as often as the innermost axis has phases: as in memory."""
    line, axis = kernel.body.line, form.axes[-1]
    line(f"v = tl.arange(0, {axis.phases} * BLOCK_P)[None, :]")
    line(f"r{axis.letter} = v % {axis.phases}")
    line(f"p = pid * BLOCK_P + v // {axis.phases}")
    open_positions(form, kernel)


def count_positions(form: Form, kernel: Kernel, mask: str) -> None:
    """The numbers of a tile's positions, and which of them there are."""
    line = kernel.body.line
    if form.imaged:
        line(f"tiles = tl.cdiv({counted(form)}, BLOCK_P)")
        line("image = (pid // tiles).to(tl.int64)")
        line("pid = pid % tiles")
    line("p = pid * BLOCK_P + tl.arange(0, BLOCK_P)[None, :]")
    line(f"{mask} = p < {counted(form)}")


def counted(form: Form) -> str:
    """How many output positions there are to count: per phase, and per image where tiles have but one."""
    if form.windows is not None:
        return form.windows.counted(0).code()
    batch = [form.batch.code()] if form.batch != ONE and not form.imaged else []
    return " * ".join([*batch, *(axis.count.code() for axis in form.axes)])


def place(form: Form) -> str:
    """Of an output position in its image."""
    if form.windows is None and form.imaged:
        return "p"
    if form.windows is None:
        return f"p % {_wrapped(form.plane.code())}"
    steps = tuple(loop_index(f"q{axis.letter}", axis.out) for axis in form.axes)
    return flat(steps, tuple(axis.out for axis in form.axes)).code()


def open_positions(form: Form, kernel: Kernel) -> None:
    """``p`` as image and steps along each axis."""
    line = kernel.body.line
    if form.windows is not None:
        image, at = form.windows.places(0, "p")
        for axis, step in zip(form.axes, at, strict=True):
            line(f"q{axis.letter} = {step}")
        if form.batch != ONE:
            line("n = image + tl.zeros_like(p)" if form.imaged else f"n = {image}.to(tl.int64)")
        return
    inner: list[str] = []
    for axis in reversed(form.axes):
        text = f"p // {_wrapped(' * '.join(reversed(inner)))}" if inner else "p"
        if axis is not form.axes[0] or (form.batch != ONE and not form.imaged):
            text = f"{text} % {_wrapped(axis.count.code())}"
        line(f"q{axis.letter} = {text}")
        inner.append(axis.count.code())
    if form.batch != ONE and form.imaged:
        line("n = image + tl.zeros_like(p)")
    elif form.batch != ONE:
        line(f"n = (p // {_wrapped(' * '.join(reversed(inner)))}).to(tl.int64)")


def grid(form: Form, block_p: str, block_o: str, phases: bool = True) -> str:
    """How many programs there are; without ``phases`` each takes all of them."""
    programs = [tiles_of(form, block_p), f"triton.cdiv({form.outputs}, {block_o})"]
    programs += [form.groups.code()] if form.groups.code() != "1" else []
    turns = prod(axis.phases for axis in form.apart)
    programs += [str(turns)] if phases and turns > 1 else []
    return f"({' * '.join(programs)},)"


def tiles_of(form: Form, block_p: str) -> str:
    """How many tiles of positions there are, for the host."""
    batch = [_wrapped(form.batch.code())] if form.batch != ONE else []
    total = " * ".join([*batch, *(_wrapped(axis.count_text) for axis in form.axes)])
    total = counted(form) if form.windows is not None or form.imaged else total
    return " * ".join([*(batch if form.imaged else []), f"triton.cdiv({total}, {block_p})"])


def _wrapped(text: str) -> str:
    return f"({text})" if " " in text else text
