"""Seconds of one convolution on the GPU: as one of our kernels, and as the library's call.

A kernel of ours is tiles, each a walk over channels and taps. Where there are tiles for every multiprocessor
several times over, the rate of the tensor cores decides, which narrow tiles and short walks do not reach.
Where there are few, nothing hides a walk's latency: a network's last layers, with hundreds of channels and a
few dozen positions, take hundreds of steps one after another on a tenth of the GPU.

The library's convolutions turn the operands of most shapes into another order and the result back, which is
two more passes over memory; few channels and strided transposition make them slow, a single tap does not.

All numbers are fitted to an H200: ours to measured programs, the library's to PyTorch's times for single
convolutions and small networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod, sqrt

from egg.expert.algebra.channels_last import rounds_as_laid
from egg.expert.algebra.upsampled import PHASES
from egg.expert.cost import LAUNCH, Machine, call_bytes
from egg.expert.graph import HALF, Graph, Node, Origin, Value
from egg.expert.parts import Group, Part, Setting, Unfit, Use
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import reference_grade
from egg.expert.patterns.convolution.tiles import exactness_is_free, power
from egg.expert.sizes import ONE
from egg.hardware.gpus import Gpu

# -- ours ----------------------------------------------------------------------------------------------

FULL_WIDTH = 128
"""Output channels of a tile that reaches the rate of packed operands."""
PACKED_STEP, PACKED_OVERLAPPED = 0.55e-6, 0.25e-6
"""Seconds of a step of a lone tile, and where others run beside it."""
TILE = 0.6e-6
"""Seconds to begin and to end a tile."""
GATHERED_STEP, ROWS_STEP = 3.2e-6, 1.7e-6
"""The same for operands that are gathered where they lie, and for one tap."""
TURNED_TILE = 4.8e-6
"""Seconds more of a tile of one tap whose sums are turned around and stored while nothing else runs: where it
is so large that its registers leave no room for another one (192 channels at 4 x 8192 positions took 77 us,
their steps alone come to 20), and where there are no others. ShuffleNet's 26 of 58 and 116 channels at
28 x 28 and 14 x 14 took 322 us; their steps alone come to 143."""
AS_IT_LIES, AS_IT_LIES_RESIDENT = 2.5e-6, 3
"""Seconds of 64 positions of one tap that are taken as they lie, and such tiles that a multiprocessor has."""
PACKING = 2.0
"""How often packing reads its operand: once for the largest magnitude, once to write it."""
LEAST_PASS = 4.5e-6
WINDOW, WINDOW_INPUT, WINDOW_PHASE = 40e-12, 1e-12, 20e-12
"""Seconds for each output position, for each input of it, and for each further phase, where all inputs of a
position fit one tile."""
KEPT, KEPT_INPUT, COARSE = 55e-12, 0.8e-12, 0.5
"""The same where packed weights of short sums are kept, at 64 output channels and fp32's accuracy, and what
is left of the second where one product is enough."""
PHASED = 1.5
"""Times longer where phases of a transposed convolution interleave their stores."""
LINE = 0.6
"""Of the rate of packed fp32 operands, what convolutions over lines reach: 128 channels at 16 x 8192
positions with 7 taps run at 316 TFLOP/s."""
SLOW_ELEMENT = 7e-12
"""Seconds for each element of a function with a branch for large arguments beside a tile: with snakes around
192 channels at 4 x 8192 positions packing took 58 us instead of 13, and the kernel 115 instead of some 70."""
SHALLOW, SHALLOWEST = 1.8, 16
"""Times longer with fewer input channels than that, whose taps are gathered one by one."""
HALF_PACKED = 0.42
"""Of the rate of packed operands, what 16-bit operands reach: seen at 640 channels of 64 x 64 positions and
at 256 to 512 channels of a decoder, 240 TFLOP/s where the same kernel runs fp32 programs at 550."""
CHANNEL_STRIP, STRIP_TAPS = 1.55, 9
"""Times faster a stencil with more than that many taps, walking down a strip of channels."""
RESIDENT, MOST_RESIDENT = 2, 8
"""Tiles that a multiprocessor has at the same time, large ones and small ones."""

# -- the library ---------------------------------------------------------------------------------------

TURNED = 3.5e12
"""Bytes per second of the passes that change the order in memory."""
FULL_CHANNELS = 64
"""Channels of either side from which on the rate is reached. Of TF32 with the channels last, fewer output
channels leave as much of each tile unused: 64 run at 240 TFLOP/s, 32 at 80 to 100 with what is converted."""
FEW_CHANNELS = 4
"""Three dimensions with few channels run on the ordinary units; images with few are padded to eight."""
STRIDED = {1: 0.85e12, 2: 1.2e12, 3: 0.68e12}
"""Bytes per second of transposed convolutions with a stride, by dimensions."""
STRIDED_FEW, STRIDED_GROUPS = 0.27e12, 0.06e12
"""The same with few channels, and with groups."""
STENCIL = 0.86e12
"""Bytes per second of depthwise convolutions."""
HALF_STENCIL, HALF_STENCIL_TAPS = 2.2e12, 6.6e12
"""Bytes per second of those with 16-bit operands whose channels are last, and taps per second."""
GROUPED = 4.0
"""Times slower with groups."""
GROUPED_LINE, LONG_GROUPED, LONG_TAPS = 12e12, 0.6e12, 64
"""Operations per second of convolutions over lines with groups (7 to 20 TFLOP/s seen at 9 to 128 taps, at
4 x 200 positions), and of 16-bit ones with more taps than that: 128 taps of 16 groups of 48 channels
take 12 ms."""
EACH_GROUP = 11e-6
"""Seconds for every group of a 16-bit convolution of one tap with the channels last, of which cuDNN slices,
multiplies and joins one after the other: 24 groups of 16 channels at 16 x 28 x 28 took 277 us."""
LIBRARY_LEAST, LIBRARY_STEP = 10e-6, 0.12e-6
"""Seconds of the smallest one with what it converts, and for every 32 channels and taps of a lone tile."""
WIDE_WINDOWS = 45e12
"""Operations per second of 16-bit images with few channels under windows of many taps: 1024 patterns of
14 x 14 pixels on 32768 patches take 0.88 ms."""
HALF_RATE = 2.3
"""Times faster with 16-bit operands whose channels are last: 620 TFLOP/s seen."""
LAST_LEAST, LAST_STEP = 5e-6, 0.06e-6
"""The least of those with the channels last, which convert nothing: also in TF32."""


def own_seconds(
    graph: Graph, group: Group, part: Part, grade: str | None, machine: Machine, moved: float
) -> float:
    """Packing and the kernel; ``grade`` where one was asked for, ``moved``: bytes read and written."""
    form = _form(graph, group)
    constants = {c.name.removeprefix(f"{group.name.upper()}_"): c.value for c in part.constants}
    packed = Use.PACKING in part.uses
    exact = _exact(form, grade, "BLOCK_K" not in constants, machine.gpu)
    work = 3.0 if exact else 1.0
    memory = moved / machine.memory
    if "BLOCK_P" not in constants:
        taps = float(form.result.elements.value) * form.taps
        strip = {"BLOCK_C", "ROWS"} <= set(constants) and form.taps > STRIP_TAPS
        return max(memory, taps / (machine.rate("convolution, stencil") * (CHANNEL_STRIP if strip else 1.0)))
    rows = int(constants["BLOCK_P"])
    columns = int(constants.get("BLOCK_O", power(form.outputs.value, 16, 256)))
    blocks = ceil(form.outputs.value / columns) * form.groups.value
    deep = form.inputs.value * form.most_taps
    passes = 0.0
    if packed:
        written = 0.5 * (2.0 if exact else 1.0)
        passes = max(form.x.bytes * (PACKING + written) / machine.memory, 2 * LEAST_PASS)
        passes += form.slow_elements * SLOW_ELEMENT
    if packed and "TILES" in constants:
        each = KEPT + KEPT_INPUT * power(deep, 16, 128) * (1.0 if exact else COARSE)
        wide = max(0.5, form.outputs.value / FULL_CHANNELS)
        return passes + max(memory, form.positions * each * wide / machine.products)
    if "BLOCK_K" not in constants and form.pointwise:
        return max(memory, _as_it_lies(form, constants, machine)) + LEAST_PASS
    if "BLOCK_K" not in constants:
        each = WINDOW + WINDOW_INPUT * power(form.inputs.value * form.most_taps, 16, 1024)
        each += WINDOW_PHASE * (form.phases - 1)
        wide = max(1.0, form.outputs.value / FULL_CHANNELS)
        return max(memory, form.positions * each * wide / machine.products) + LEAST_PASS
    tiles = ceil(form.positions / rows) * blocks * form.phases
    waves = tiles / machine.sms
    depth = int(constants["BLOCK_K"])
    steps = ceil(deep / depth)
    flops = 2.0 * rows * columns * depth * work
    if packed:
        rate = machine.rate("convolution, packed") * min(1.0, columns / FULL_WIDTH) ** 0.8
        lines = LINE if len(form.axes) == 1 else 1.0
        rate *= HALF_PACKED if form.x.dtype in HALF else lines
        least = PACKED_STEP if waves < 1 else PACKED_OVERLAPPED
        each = steps * max(least, flops * machine.sms / rate) + TILE
        kernel = each * (ceil(waves) if waves < RESIDENT else waves)
        slower = PHASED if form.phased else SHALLOW if form.inputs.value < SHALLOWEST else 1.0
        return passes + max(memory, kernel * slower)
    step, how = (ROWS_STEP, "one tap") if form.pointwise else (GATHERED_STEP, "gathered")
    beside = max(RESIDENT, min(MOST_RESIDENT, 2 * FULL_WIDTH * FULL_WIDTH // (rows * columns)))
    latency = steps * step * ceil(waves / beside)
    if form.pointwise and waves < beside:
        latency += TURNED_TILE
    elif form.pointwise and rows * columns >= FULL_WIDTH * FULL_WIDTH:
        latency = (steps * step + TURNED_TILE) * waves
    return max(memory, latency, tiles * steps * flops / machine.rate(f"convolution, {how}"))


def _as_it_lies(form: Form, constants: Mapping[str, Setting], machine: Machine) -> float:
    """One tap: sums on the ordinary units, or tiles of products one after the other."""
    if "TILES" not in constants:
        return form.flops / machine.gpu.vector["fp32"]
    positions, channels = int(constants["BLOCK_P"]), int(constants["BLOCK_O"])
    tiles = ceil(form.positions / positions) * ceil(form.outputs.value / channels)
    each = AS_IT_LIES * positions / 64
    return tiles * each / (machine.sms * AS_IT_LIES_RESIDENT)


def _form(graph: Graph, group: Group) -> Form:
    """Of the convolution with what follows it, or by itself where that is written in some other way."""
    try:
        return Form.of(graph, group)
    except Unfit:
        nodes = tuple(node for node in group.nodes if node.op == "conv")
        return Form.of(graph, Group(group.name, nodes, group.pattern))


def _exact(form: Form, grade: str | None, windowed: bool, gpu: Gpu) -> bool:
    """Whether fp32's accuracy is kept: as asked, as the reference, or where it costs nothing."""
    if form.x.dtype != "float32":
        return False
    if grade is not None:
        return grade != "tf32"
    return windowed or reference_grade(form) == "fp32" or exactness_is_free(form, gpu)


def operations(graph: Graph, node: Node) -> float:
    made, x, weight = (graph.value(str(name)) for name in (node.outputs[0], *node.inputs[:2]))
    taps = weight.elements.value / max(1, weight.shape[0].value)
    return 2.0 * (x if node["transposed"] else made).elements.value * taps


def library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine) -> float:
    """One call of PyTorch's."""
    return _library_seconds(graph, node, grade, machine, call_bytes(graph, node)) + LAUNCH


def _library_seconds(graph: Graph, node: Node, grade: str | None, machine: Machine, moved: float) -> float:
    x, weight = graph.operands(node)[:2]
    assert x is not None
    assert weight is not None
    made = graph.value(node.outputs[0])
    groups, transposed = number(node["groups"]), bool(node["transposed"])
    channels = x.shape[1].value // max(1, groups)
    outputs = made.shape[1].value // max(1, groups)
    dimensions = min(max(len(x.shape) - 2, 1), 3)
    taps = prod(size.value for size in weight.shape[2:])
    if PHASES in node.attributes:
        taps = prod(number(pad) + 1 for pad in node["padding"])
    flops = 2.0 * (x if transposed else made).elements.value * weight.shape[1].value * taps
    half, last = x.dtype in HALF, lies_as_wanted(graph, node)
    least, step = (LAST_LEAST, LAST_STEP) if last else (LIBRARY_LEAST, LIBRARY_STEP)
    floor = max(moved / machine.memory, least + step * ceil(channels * taps / 32) / max(1, groups))
    if groups > 1 and channels == 1 and half:
        seconds = max(moved / HALF_STENCIL, made.elements.value * taps / HALF_STENCIL_TAPS)
        return max(floor, seconds / machine.bandwidth)
    if groups > 1 and channels == 1:
        return max(floor, moved / (STENCIL * machine.bandwidth))
    if groups > 1 and half and taps == 1 and not transposed and dimensions > 1:
        return max(floor, groups * EACH_GROUP)
    if groups > 1 and dimensions == 1 and not transposed:
        return max(floor, flops / (LONG_GROUPED if half and taps > LONG_TAPS else GROUPED_LINE))
    if transposed and prod(number(step) for step in node["stride"]) > 1:
        return max(floor, _strided(dimensions, taps, groups, channels, flops, moved, machine))
    if taps == 1 and groups == 1 and not half:
        return max(floor, flops / machine.rate("library convolution"))
    rate = machine.rate("library convolution")
    rate *= sqrt(min(1.0, channels / FULL_CHANNELS) * min(1.0, outputs / FULL_CHANNELS))
    if last and not half:
        rate *= sqrt(min(1.0, outputs / FULL_CHANNELS))  # no tile is narrower
    if dimensions == 3 and transposed:
        few = "" if min(channels, outputs) >= FULL_CHANNELS else ", few channels"
        rate = machine.rate(f"library convolution, transposed 3d{few}")
    elif dimensions == 3 and channels <= FEW_CHANNELS:
        rate = machine.rate("library convolution, few channels 3d")
        rate *= sqrt(min(1.0, outputs / FULL_CHANNELS))
    if half and dimensions == 2 and channels <= FEW_CHANNELS and taps > FULL_CHANNELS:
        rate = WIDE_WINDOWS
    elif half:
        rate *= HALF_RATE
    elif grade is not None and grade != "tf32":
        rate = min(rate, machine.rate("library convolution, fp32"))
    rate /= GROUPED if groups > 1 else 1.0
    turned = sum(value.bytes for value in (x, made) if _is_turned(graph, value, last))
    return max(floor, flops / rate + 2.0 * turned / (TURNED * machine.bandwidth))


def lies_as_wanted(graph: Graph, node: Node) -> bool:
    """Whether the library's convolution finds its operand as its kernels load it: of 16 bits, or of fp32
    images inside a program (:mod:`egg.expert.algebra.channels_last`). There it turns nothing around."""
    if graph.value(str(node.inputs[0])).dtype in HALF:
        return True
    return rounds_as_laid(graph, node)


def _is_turned(graph: Graph, value: Value, last: bool) -> bool:
    """Whether the library turns a tensor around. Where it has the channels last, only what the caller gives
    or gets: the others are made so."""
    chosen = last and value.origin is Origin.NODE and value.name not in graph.results
    return not chosen and not _channels_last(value)


def _channels_last(value: Value) -> bool:
    """As the library's kernels have it: it need not turn such a tensor around."""
    return value.stride[1] == ONE and not value.contiguous


def _strided(
    dimensions: int, taps: int, groups: int, channels: int, flops: float, moved: float, machine: Machine
) -> float:
    if taps > FULL_CHANNELS:
        return flops / machine.rate("library convolution, strided fp32")
    if groups > 1:
        return moved / (STRIDED_GROUPS * machine.bandwidth)
    few = dimensions == 3 and channels < 16
    return moved / ((STRIDED_FEW if few else STRIDED[dimensions]) * machine.bandwidth)


def number(value: object) -> int:
    return int(getattr(value, "value", value))  # type: ignore[call-overload]
