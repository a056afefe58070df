"""A convolution straight from memory: no packing, every tile of inputs gathered where it lies.

``sums[position, channel] += x[position, k] w[k, channel]`` with ``k`` over input channels and taps in the
order the weights have them. Positions lie along the lanes, so loads of a channels-first input and stores of
the result are contiguous whatever the channels are. What it costs is address arithmetic and border tests for
every element of a tile, so this is the form for one tap, for few input channels, and for small problems.

For fp32 operands the tile is turned into fp16 numbers on the way, scaled by a power of two per position and
block of ``k`` so that nothing is lost but the bits beyond the eleventh (or beyond the twenty-second, with
two halves): tensor cores take 16-bit operands in any order, while TF32 ones would have to be turned around
in shared memory, four bytes at a time.
"""

from __future__ import annotations

from egg.expert.emit.code import Code
from egg.expert.emit.kernel import Kernel, Knobs
from egg.expert.emit.reader import Body, Reader
from egg.expert.graph import HALF
from egg.expert.index import Expr, Index, loop_index, unflat
from egg.expert.parts import Part, Target
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.patterns.convolution.tiles import direct_tile
from egg.expert.patterns.convolution.triton import scaling
from egg.expert.patterns.convolution.triton.frame import close_tile, grid, new_kernel, open_tile
from egg.expert.patterns.convolution.triton.gather import Gatherer, runs
from egg.expert.patterns.convolution.triton.phases import define_phase
from egg.expert.patterns.convolution.triton.tail import Tail, finish, finished, tile_masks
from egg.expert.sizes import ONE, Size, as_size

SUMMARY = "the convolution gathered straight from memory, with what follows it in its epilogue"


def write_direct(form: Form, grade: Grade, target: Target) -> Part:
    tail = Tail.of(form)
    knobs = Knobs(form.group.name, target.settings)
    kernel = new_kernel(form, f"{form.group.name}_kernel", DOC)
    open_tile(form, kernel)
    pointers: dict[str, str] = {}
    for phase in range(form.width):
        if form.joined is not None:
            define_phase(form, kernel, phase)
        _loop(form, kernel, grade, pointers)
        if form.joined is not None:
            kernel.body.line(f"acc_{phase} = acc")
    close_tile(form, kernel)
    finish(form, kernel, tail, pointers, "acc")
    tile = direct_tile(form, grade, target.gpu, tail.whole)
    kernel.meta = {
        "BLOCK_P": knobs.constant("BLOCK_P", tile.rows, (64, 128, 256), "output positions of a tile"),
        "BLOCK_O": tail.block_o or knobs.constant("BLOCK_O", tile.columns, (), "output channels of a tile"),
        "BLOCK_K": knobs.constant("BLOCK_K", tile.depth, (16, 32, 64), "channels and taps summed at once"),
    }
    options = {
        "num_warps": knobs.constant("NUM_WARPS", tail.warps(tile), (4, 8)),
        "num_stages": knobs.constant("NUM_STAGES", _stages(form, grade, tile.stages)),
    }
    programs = grid(form, kernel.meta["BLOCK_P"], kernel.meta["BLOCK_O"])
    code = Code(call=tail.preparations())
    code.define(scaling.functions(grade))
    code.launch(kernel, programs, options)
    return finished(form, code, knobs, SUMMARY)


def _stages(form: Form, grade: Grade, wanted: int) -> int:
    """One where inputs go from memory to the tensor cores as they are.

    Triton 3.6 then copies the transposed tile of a later step over one that a product still reads: on an
    H200 results differed from call to call. What is computed on the way passes through registers instead.
    """
    straight = form.x.dtype in HALF and not grade.scales and not form.computed(form.x)
    return 1 if straight else wanted


DEEPEST = 64
"""The largest ``BLOCK_K``."""
DOC = (
    "A tile of output positions by output channels, inputs gathered straight from memory; what follows the "
    "convolution is computed where the sums are."
)


def _loop(form: Form, kernel: Kernel, grade: Grade, pointers: dict[str, str]) -> None:
    """The sum over channels and taps."""
    body, depth = kernel.body, _depth(form)
    body.line("acc = tl.zeros((BLOCK_P, BLOCK_O), tl.float32)")
    if form.phased:
        body.line(f"summed = {_depth_text(form)}")
    end = "summed" if form.phased else depth.code()
    body.line(f"for k0 in range(0, {end}, BLOCK_K):")
    body.indent += 1
    body.line("k = k0 + tl.arange(0, BLOCK_K)[:, None]")
    masks = dict.fromkeys(("k", "ci", "jd", "jh", "jw"), f"(k < {end})")
    if form.phased:
        _decompose(form, body)
    elif not depth.factors and depth.number % DEEPEST == 0:
        masks = {}
    inner, taps = _parts(form)
    kind = Reader if runs(form) else Gatherer
    reader = kind(form.graph, form.group.nodes, body, masks | tile_masks(form), pointers=pointers)
    x = _input(form, body, reader, inner, taps, masks.get("k", ""))
    reader.masks = masks | {"o": f"(o < {form.outputs})"}
    taps = tuple(form.tap_at(axis, tap) for axis, tap in zip(form.axes, taps, strict=True))
    w = reader.read(form.weight.name, form.weight_index(inner, loop_index("o", form.outputs), taps))
    if masks and _calculated(form):
        w = body.let("w", f"tl.where({masks['k']}, {w}, 0.0)")
    if depth == ONE or form.outputs == ONE:
        w = body.let("w", f"tl.broadcast_to({w}, (BLOCK_K, BLOCK_O))")
    if grade.scales:
        _scaled_products(body, grade, x, w)
    else:
        x, w = scaling.operand(grade, f"tl.trans({x})"), scaling.operand(grade, w)
        body.line(f"acc = tl.dot({x}, {w}, acc{scaling.precision(grade)})")
    body.indent -= 1


def _calculated(form: Form) -> bool:
    """Whether weights are calculated from what is loaded: of zeros behind the last ``k``, that need not be
    zero again (a quotient is none)."""
    name = form.weight.name
    while (maker := form.graph.producer(name)) is not None and maker.op == "view":
        name = str(maker.inputs[0])
    return maker is not None and maker in form.group.nodes


def _scaled_products(body: Body, grade: Grade, x: str, w: str) -> None:
    """Both operands as fp16, scaled by a power of two per position and per channel, undone block by block."""
    scaling.write_halves(body, grade, "x", x, turned=True)
    _weight_products(body, grade, w)
    body.line("acc += part * tl.trans(power_of_two(x_e - 141)) * power_of_two(w_e - 141)")


def scaled_products(body: Body, grade: Grade, w: str) -> None:
    """All there is to sum, from inputs that are scaled already; channels by positions."""
    _weight_products(body, grade, w)
    body.line("acc = tl.trans(part * power_of_two(w_e - 141)) * power_of_two(x_e - 141)")


def _weight_products(body: Body, grade: Grade, w: str) -> None:
    scaling.write_halves(body, grade, "w", w)
    if grade.name == "fp32":
        body.line("part = tl.dot(x_low, w_high)  # small ones first, and each block from zero:")
        body.line("part = tl.dot(x_high, w_low, part)  # tensor cores cut off where they add up")
        body.line("part = tl.dot(x_high, w_high, part)")
    else:
        body.line("part = tl.dot(x_high, w_high)")


def _input(form: Form, body: Body, reader: Reader, inner: Expr, taps: Index, live: str) -> str:
    """A tile of inputs, ``BLOCK_K`` by ``BLOCK_P``; zero beyond the borders and the last ``k``."""
    if form.pointwise:
        at = unflat(loop_index("s", form.plane), tuple(axis.out for axis in form.axes))
        borders: tuple[str, ...] = ()
    else:
        at = tuple(form.input_at(axis, tap) for axis, tap in zip(form.axes, taps, strict=True))
        borders = form.outside(at)
    channel = loop_index("group", form.groups) * form.inputs + inner
    x = reader.read(form.x.name, (loop_index("n", form.batch), channel, *at), borders)
    guards = [*borders, *([live] if live else [])]
    lonely = _depth(form) == ONE or form.batch * form.plane == ONE or _repeated(form)
    if guards and (lonely or form.computed(form.x)):
        x = body.let("x", f"tl.where({' & '.join(guards)}, {x}, 0.0)")
    return body.let("x", f"tl.broadcast_to({x}, (BLOCK_K, BLOCK_P))") if lonely else x


def _repeated(form: Form) -> bool:
    """Whether input channels may be one and the same in memory: what is loaded does not follow ``k`` then."""
    spread = any(node.op == "view" and node["how"] == "expand" for node in form.group.nodes)
    return spread or any(stride.number == 0 for stride in form.x.stride)


def _depth(form: Form) -> Size:
    return form.inputs * form.taps


def _tap_counts(form: Form) -> list[str]:
    return [f"taps_{a.letter}" if a.phases > 1 else str(a.kernel) for a in form.axes]


def _depth_text(form: Form) -> str:
    return " * ".join([form.inputs.code(), *_tap_counts(form)])


def _decompose(form: Form, body: Body) -> None:
    """Channel and taps of ``k`` where a phase knows only when it runs how many taps it has."""
    counts = _tap_counts(form)
    body.line(f"ci = k // ({' * '.join(counts)})")
    for at, axis in enumerate(form.axes):
        rest = counts[at + 1 :]
        text = f"k // ({' * '.join(rest)})" if rest else "k"
        body.line(f"j{axis.letter} = {text} % {counts[at]}")


def _parts(form: Form) -> tuple[Expr, Index]:
    """Input channel and tap along each axis."""
    if form.phased:
        taps = tuple(loop_index(f"j{axis.letter}", max(2, axis.most_taps)) for axis in form.axes)
        return loop_index("ci", as_size(2) * form.inputs), taps
    k = loop_index("k", _depth(form))
    inner, *taps = unflat(k, (form.inputs, *(Size(axis.kernel) for axis in form.axes)))
    return inner, tuple(taps)
