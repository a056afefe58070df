"""A convolution of one tap: weights times positions as they lie, ``sums[o, p] = w[o, k] x[k, p]``.

Channels-first tensors have positions side by side in memory. With output channels as the rows of a product
and positions as its columns, inputs are loaded and results stored as they lie, sixteen bytes a lane, and
nothing is turned around. All input channels are one step, so there is no second tile of sums to add to: half
the registers, and tiles of several programs share a multiprocessor.

A program takes some neighbouring tiles of one image, one after the other. Weights are scaled once for all of
them, inputs of the next tile are under way while this one is stored, and images start at a scalar address.
Precision as in :mod:`.direct`.

With a handful of input channels tensor cores would mostly multiply zeros. Then sums are built up channel by
channel on the ordinary units, which is exact and takes less time than memory does.
"""

from __future__ import annotations

from egg.expert.emit.code import Code
from egg.expert.emit.host import Host
from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.emit.reader import Reader
from egg.expert.index import Expr, loop_index, unflat
from egg.expert.parts import Part, Target, Unfit
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.tiles import RowsTile, in_rows, rows_tile
from egg.expert.patterns.convolution.triton import scaling
from egg.expert.patterns.convolution.triton.frame import new_kernel
from egg.expert.patterns.convolution.triton.tail import Tail, finished, tile_masks
from egg.expert.sizes import ONE

SUMMARY = "one tap: weights times positions as they lie in memory, with what follows in the epilogue"
DOC = (
    "Tiles of output channels by positions of one image, all input channels at once; what follows the "
    "convolution is computed where the sums are."
)


def write_pointwise(form: Form, grade: Grade, target: Target) -> Part:
    tile = rows_tile(form, target.gpu)
    if not in_rows(form):
        raise Unfit("more than one tap, groups, or a tail that needs another order or all channels")
    if not tile.few and (grade.name == "ieee" or form.outputs.value == 1):
        raise Unfit("products on tensor cores are of fp16 numbers, and of more than one output channel")
    tail = Tail.of(form)
    knobs = Knobs(form.group.name, target.settings)
    kernel = new_kernel(form, f"{form.group.name}_kernel", DOC)
    pointers: dict[str, str] = {}
    _open(form, kernel, tile)
    bias = ""
    if form.bias is not None:
        reader = Reader(form.graph, form.group.nodes, kernel.body, tile_masks(form), pointers=pointers)
        bias = reader.read(form.bias.name, (loop_index("c", form.outputs),))
    if tile.few:
        _positions(form, kernel, "first")
        _sum_of_few(form, kernel, pointers)
    else:
        _weights(form, kernel, grade, pointers)
        end = f"tl.minimum(first + BLOCK_P * TILES, {form.plane})"
        kernel.body.line(f"for p in range(first, {end}, BLOCK_P):")
        kernel.body.indent += 1
        _positions(form, kernel, "p")
        _product(form, kernel, grade, pointers)
    reader = Reader(form.graph, form.group.nodes, kernel.body, tile_masks(form), pointers=pointers)
    tail.bind(reader, kernel.body.let("sums", f"acc + {bias}") if bias else "acc")
    tail.store(kernel, reader, "inside & kept", tiled=True)
    kernel.body.indent = 1
    code = Code(call=[*_meta(form, kernel, knobs, tile), *tail.preparations()])
    code.define(() if tile.few else scaling.functions(grade))
    code.launch(kernel, *_launch(form, kernel, knobs, tile))
    return finished(form, code, knobs, SUMMARY)


# -- the kernel --------------------------------------------------------------------------------------


def _open(form: Form, kernel: Kernel, tile: RowsTile) -> None:
    """Which output channels, and which positions of which image, a program has."""
    line = kernel.body.line
    span = "BLOCK_P" if tile.few else "(BLOCK_P * TILES)"
    line("pid = tl.program_id(0)")
    line(f"c = pid % tl.cdiv({form.outputs}, BLOCK_O) * BLOCK_O + tl.arange(0, BLOCK_O)[:, None]")
    line(f"kept = c < {form.outputs}")
    line(f"pid = pid // tl.cdiv({form.outputs}, BLOCK_O)")
    if form.batch == ONE:
        line(f"first = pid * {span}")
        return
    spans = f"tl.cdiv({form.plane}, {span.strip('()')})"
    line(f"image = (pid // {spans}).to(tl.int64)")
    line(f"first = pid % {spans} * {span}")


def _positions(form: Form, kernel: Kernel, first: str) -> None:
    """Of one tile; the image's number once for each, as loads of what has one number per image want it."""
    line = kernel.body.line
    line(f"s = {first} + tl.arange(0, BLOCK_P)[None, :]")
    line(f"inside = s < {form.plane}")
    if form.batch != ONE:
        line("n = image + tl.zeros_like(s)")


def _sum_of_few(form: Form, kernel: Kernel, pointers: dict[str, str]) -> None:
    """Channel by channel, on the ordinary units."""
    body = kernel.body
    body.line("acc = tl.zeros((BLOCK_O, BLOCK_P), tl.float32)")
    body.line(f"for k in tl.static_range({form.inputs}):")
    body.indent += 1
    x = _input(form, Reader(form.graph, form.group.nodes, body, tile_masks(form), pointers=pointers))
    reader = Reader(form.graph, form.group.nodes, body, tile_masks(form), pointers=pointers)
    w = _weight(form, reader, loop_index("k", form.inputs))
    body.line(f"acc += {w} * {x}")
    body.indent -= 1


def _weights(form: Form, kernel: Kernel, grade: Grade, pointers: dict[str, str]) -> None:
    """All input channels of a tile's output channels, as the product takes them."""
    body, line = kernel.body, kernel.body.line
    line("k = tl.arange(0, BLOCK_K)[:, None]")
    line("kk = tl.arange(0, BLOCK_K)[None, :]")
    live = f"(kk < {form.inputs})"
    reader = Reader(form.graph, form.group.nodes, body, {"kk": live, "c": "kept"}, pointers=pointers)
    w = _weight(form, reader, loop_index("kk", form.inputs))
    if form.computed(form.weight):
        w = body.let("w", f"tl.where({live}, {w}, 0.0)")
    if not grade.scales:
        line(f"w_high = {scaling.operand(grade, w)}")
        return
    scaling.write_halves(body, grade, "w", w, axis=1)


def _product(form: Form, kernel: Kernel, grade: Grade, pointers: dict[str, str]) -> None:
    """A tile of inputs and the sums."""
    body, line = kernel.body, kernel.body.line
    live = f"(k < {form.inputs})"
    masks = {"k": live} | tile_masks(form)
    x = _input(form, Reader(form.graph, form.group.nodes, body, masks, pointers=pointers))
    if form.computed(form.x):
        x = body.let("x", f"tl.where({live}, {x}, 0.0)")
    if not grade.scales:
        line(f"acc = tl.dot(w_high, {scaling.operand(grade, x)})")
        return
    scaling.write_halves(body, grade, "x", x)
    if grade.name == "fp32":
        line("part = tl.dot(w_low, x_high)  # small ones first")
        line("part = tl.dot(w_high, x_low, part)")
        line("part = tl.dot(w_high, x_high, part)")
    else:
        line("part = tl.dot(w_high, x_high)")
    line("acc = part * power_of_two(x_e - 141) * power_of_two(w_e - 141)")


def _input(form: Form, reader: Reader) -> str:
    at = unflat(loop_index("s", form.plane), tuple(axis.out for axis in form.axes))
    return reader.read(form.x.name, (loop_index("n", form.batch), loop_index("k", form.inputs), *at))


def _weight(form: Form, reader: Reader, inner: Expr) -> str:
    taps = tuple(Expr() for _ in form.axes)
    return reader.read(form.weight.name, form.weight_index(inner, loop_index("c", form.outputs), taps))


# -- the launch --------------------------------------------------------------------------------------


def _meta(form: Form, kernel: Kernel, knobs: Knobs, tile: RowsTile) -> tuple[str, ...]:
    """The kernel's constants, and the line that finds how many channels are one step."""
    kernel.meta = {
        "BLOCK_P": knobs.constant("BLOCK_P", tile.positions, tile.choices, "output positions of a tile"),
        "BLOCK_O": knobs.constant("BLOCK_O", tile.channels, (), "output channels of a tile"),
    }
    if tile.few:
        return ()
    block_k = Host(form.graph, form.group).local("block_k")
    kernel.meta["TILES"] = knobs.constant("TILES", tile.tiles, (), "tiles of a program")
    kernel.meta["BLOCK_K"] = block_k
    return (f"{block_k} = max(16, triton.next_power_of_2({form.inputs}))",)


def _launch(form: Form, kernel: Kernel, knobs: Knobs, tile: RowsTile) -> tuple[str, dict[str, str]]:
    """The grid, and options of the launch."""
    options = {
        "num_warps": knobs.constant("NUM_WARPS", tile.warps, (4, 8)),
        "num_stages": knobs.constant("NUM_STAGES", tile.stages, () if tile.few else (1, 2, 3)),
    }
    span = kernel.meta["BLOCK_P"] if tile.few else f"{kernel.meta['BLOCK_P']} * {kernel.meta['TILES']}"
    programs = [
        f"triton.cdiv({form.plane}, {span})",
        f"triton.cdiv({form.outputs}, {kernel.meta['BLOCK_O']})",
    ]
    if form.batch != ONE:
        programs.insert(0, form.batch.code())
    return f"({' * '.join(programs)},)", options
