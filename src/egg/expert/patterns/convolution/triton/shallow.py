"""A convolution over packed operands whose sums are short: few input channels and few taps.

Nine taps of eight channels are 72 products for an output. A tile of such a convolution ends as soon as it has
begun: it would load as many bytes of weights as of inputs, for every tile anew. So a program takes several
tiles, one after the other, and loads the weights once for all of them. The whole sum is two steps, the
largest power of two that fits into it and what is left (64 and 16 for 72), and their offsets are computed
once.

Seen on an H200 for images of 254 x 254 positions and 64 output channels at fp32's accuracy: 1.5 ms with what
packs the operands, where the walk of :mod:`.packed` takes 2.5 ms. Small tiles of four warps without a second
buffer are the fastest: several of them share a multiprocessor, and neighbouring taps are found in L1.
"""

from __future__ import annotations

from egg.expert.emit.host import Host
from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.parts import Part, Target, Unfit
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.tiles import shallow, shallow_tile
from egg.expert.patterns.convolution.triton.frame import (
    close_channels,
    close_positions,
    counted,
    new_kernel,
    open_channels,
    open_places,
    tiles_of,
)
from egg.expert.patterns.convolution.triton.pack import packing_code
from egg.expert.patterns.convolution.triton.packed import open_columns, open_rows, take_apart
from egg.expert.patterns.convolution.triton.packing import Packing
from egg.expert.patterns.convolution.triton.tail import Tail, finish, finished
from egg.expert.sizes import ONE

SUMMARY = (
    "the convolution as a product over packed operands, whose weights are loaded once for some tiles, with "
    "what follows it in its epilogue"
)
DOC = (
    "Tiles of output positions by output channels from packed operands, all channels and taps at once; what "
    "follows the convolution is computed where the sums are."
)


def write_shallow(form: Form, grade: Grade, target: Target) -> Part:
    if grade.name == "ieee" or not shallow(form):
        raise Unfit("short sums over packed operands, of one group without phases, are for tensor cores")
    tail = Tail.of(form)
    knobs = Knobs(form.group.name, target.settings)
    tile = shallow_tile(form, target.gpu, tail.whole)
    host = Host(form.graph, form.group)
    block_k, block_r = host.local("block_k"), host.local("block_r")
    meta = {
        "BLOCK_P": knobs.constant("BLOCK_P", tile.positions, (64, 128), "output positions of a tile"),
        "BLOCK_O": tail.block_o or knobs.constant("BLOCK_O", tile.channels, (), "output channels of a tile"),
        "TILES": knobs.constant("TILES", tile.tiles, tile.tile_choices, "tiles of a program"),
        "BLOCK_K": block_k,
        "BLOCK_R": block_r,
    }
    packing = Packing(form, grade, knobs, "")
    kernel = new_kernel(form, f"{form.group.name}_kernel", DOC)
    kernel.operands.update(packing.operands())
    _kept_weights(form, kernel, packing)
    _open_turn(form, kernel)
    open_rows(form, kernel, packing.large)
    _sums(kernel, packing)
    close_positions(form, kernel)
    finish(form, kernel, tail, {}, packing.unscaled(kernel, "acc"))
    kernel.body.indent -= 1
    kernel.meta = dict(meta)
    code = packing_code(packing)
    summed = f"({form.taps} * padded_c)"
    code.call += [
        f"{block_k} = max(16, triton.next_power_of_2({summed} + 1) // 2)",
        f"{block_r} = max(16, triton.next_power_of_2(max(1, {summed} - {block_k})))",
        *tail.preparations(),
    ]
    programs = f"triton.cdiv({tiles_of(form, meta['BLOCK_P'])}, {meta['TILES']})"
    options = {
        "num_warps": knobs.constant("NUM_WARPS", tile.warps, (4, 8)),
        "num_stages": knobs.constant("NUM_STAGES", 1, (1, 2)),
    }
    code.launch(kernel, f"({programs} * triton.cdiv({form.outputs}, {meta['BLOCK_O']}),)", options)
    return finished(form, code, knobs, SUMMARY, packing.counts)


def _kept_weights(form: Form, kernel: Kernel, packing: Packing) -> None:
    """The weights of a program's output channels, and where the inputs that they belong to lie behind the
    first one of a position."""
    line = kernel.body.line
    open_channels(form, kernel)
    line("first = pid * TILES")
    packing.define_padding(kernel)
    open_columns(form, kernel)
    for part, span in (("", "tl.arange(0, BLOCK_K)"), ("_rest", "BLOCK_K + tl.arange(0, BLOCK_R)")):
        line(f"k = {span}")
        line(f"live{part} = (k < summed)[None, :]")
        line(f"at{part} = ({take_apart(form, kernel)})[None, :]")
        for low in ("", "_low") if packing.split else ("",):
            place = f"rows{low}_ptr + column + k[None, :]"
            line(f"w{part}{low} = tl.load({place}, mask=live{part}, other=0.0)")
    close_channels(form, kernel)


def _open_turn(form: Form, kernel: Kernel) -> None:
    """One tile after the other."""
    batch = f"{form.batch.code()} * " if form.imaged and form.batch != ONE else ""
    end = f"{batch}tl.cdiv({counted(form)}, BLOCK_P)"
    kernel.body.line(f"for tile in range(first, tl.minimum(first + TILES, {end})):")
    kernel.body.indent += 1
    kernel.body.line("pid = tile")
    open_places(form, kernel)


def _sums(kernel: Kernel, packing: Packing) -> None:
    """Of both steps: each from zero at fp32's accuracy, since tensor cores cut off where they add up."""
    line = kernel.body.line
    for part in ("", "_rest"):
        for low in ("", "_low") if packing.split else ("",):
            place = f"packed{low}_ptr + row + at{part}"
            line(f"x{part}{low} = tl.load({place}, mask=live{part}, other=0.0)")
    if not packing.split:
        line("acc = tl.dot(x, w.T)")
        line("acc = tl.dot(x_rest, w_rest.T, acc)")
        return
    line("acc = tl.dot(x_low, w.T)  # small ones first")
    line("acc = tl.dot(x, w_low.T, acc)")
    line("acc = tl.dot(x, w.T, acc)")
    line("part = tl.dot(x_rest_low, w_rest.T)")
    line("part = tl.dot(x_rest, w_rest_low.T, part)")
    line("acc += tl.dot(x_rest, w_rest.T, part)")
