"""Which tile a convolution is cut into, and whether packing its operands pays."""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.graph import BYTES
from egg.expert.patterns.convolution.form import Form
from egg.expert.patterns.convolution.grade import Grade
from egg.expert.sizes import ONE
from egg.hardware.gpus import Gpu

LAUNCH_S = 4e-6
MEMORY_SHARE = 0.85
"""Of the data sheet's bandwidth, as passes over large tensors get it."""
PACKED_SHARE = 0.45
"""Of the tensor cores' peak, as the product over packed operands gets it."""
ROWS_SHARE = 0.25
"""The same where inputs of one tap are taken as they lie."""
GATHERED_SHARE = 0.04
"""The same where every input is gathered: address arithmetic and border tests take the time."""
UNEVEN_SHARE = 0.002
"""The same where a phase knows only when it runs which taps it has: divisions by what is no constant."""
PACKED_STEP_S, ROWS_STEP_S, GATHERED_STEP_S = 0.55e-6, 1.7e-6, 3.2e-6
"""One step of a tile over channels and taps, where no other tile hides what it waits for: over packed
operands, over one tap, and where every input is gathered."""
RESIDENT = 2
"""Tiles that a multiprocessor has at the same time."""
HIDDEN = 0.6
"""Of the time for memory, what arithmetic may take without being noticed."""
MOST_KEPT = 128
"""Channels and taps of a sum whose weights a program keeps."""
MOST_COLUMNS = 128
"""Output channels of such a tile."""
MOST_TILES, WAVES = 16, 8
"""Tiles of such a program, and programs that every multiprocessor has in turn."""
FEW_CHANNELS, MOST_CHANNELS = 16, 128
"""Input channels of one tap up to which sums are built up one by one, and up to which all are one step."""
FEW_ROWS = 512
"""Positions of a tile then: four for each thread of four warps, or a row's loads would be narrow ones."""
FEWEST_OUTPUTS, MOST_OUTPUTS = 4, 256
"""Output channels with which there is more to a tile than loading it, and up to which its inputs are loaded
and scaled no more than twice."""
WASTED = 1.25
"""How many times the positions of an image its tiles may have."""
ROWS_LEAST_S = 50e-6
"""Seconds for memory from which on positions are taken as they lie: several tiles for every multiprocessor,
or there is no next one to load while this one is stored."""


@dataclass(frozen=True)
class Tile:
    rows: int
    """Output positions."""
    columns: int
    """Output channels."""
    depth: int
    """Channels and taps summed at once."""
    warps: int
    stages: int
    column_choices: tuple[int, ...] = ()


def power(value: int, low: int, high: int) -> int:
    """The power of two that holds ``value``, within bounds."""
    return min(high, max(low, 1 << (max(value, 1) - 1).bit_length()))


def packed_tile(form: Form, grade: Grade, gpu: Gpu, whole: bool = False) -> Tile:
    """Large enough that operands are used often, small enough that every multiprocessor has work.

    ``whole``: all output channels in one tile, since something is computed over them.
    """
    split = grade.name == "fp32"
    columns = power(form.outputs.value, 16, 256 if whole else 128)
    if form.outputs.value % 256 == 0 and not split:
        columns = 256
    blocks = -(-form.outputs.value // columns) * form.groups.value * form.phases
    wide = columns > 64 if form.joined is not None else columns == 256 and whole
    rows = 64 if wide else 128
    while rows > 64 and -(-form.positions // rows) * blocks < gpu.sms:
        rows //= 2
    if form.uniform:
        deep = form.inputs.value * form.most_taps
        depth = 64 if deep > 96 else 32 if deep > 16 else 16
    else:
        depth = 64 if form.inputs.value % 64 == 0 else 32 if form.inputs.value > 16 else 16
    depth = min(depth, 32) if split else depth
    choices = (64, 128) if columns == 128 else (128, 256) if columns == 256 else ()
    return Tile(rows, columns, depth, 8 if rows * columns * form.width >= 128 * 128 else 4, 3, choices)


@dataclass(frozen=True)
class ShallowTile:
    """Of a convolution whose whole sum is two steps: see
    :mod:`~egg.expert.patterns.convolution.triton.shallow`."""

    positions: int
    channels: int
    tiles: int
    """That a program takes one after the other."""
    warps: int = 4

    @property
    def tile_choices(self) -> tuple[int, ...]:
        return tuple(sorted({max(1, self.tiles // 4), self.tiles, 2 * self.tiles}))


def shallow(form: Form) -> bool:
    """Whether channels and taps are so few that a program may keep the weights of a tile."""
    deep = form.inputs.value * form.taps
    return form.groups == ONE and not form.phased and form.uniform and deep <= MOST_KEPT


def shallow_tile(form: Form, gpu: Gpu, whole: bool = False) -> ShallowTile:
    columns = power(form.outputs.value, 16, 256 if whole else MOST_COLUMNS)
    rows = 64 if columns > 32 else 128
    tiles = -(-form.positions // rows) * -(-form.outputs.value // columns)
    each = 1
    while each < MOST_TILES and tiles // (2 * each) >= WAVES * gpu.sms:
        each *= 2
    return ShallowTile(rows, columns, each)


def keeping_pays(form: Form, gpu: Gpu) -> bool:
    """Where a program has several tiles: then weights would be loaded as often as inputs."""
    whole = any(node.op in ("reduce", "softmax") for node in form.group.nodes)
    if whole and form.outputs.value > MOST_COLUMNS:  # weights of all channels leave no room for inputs
        return False
    return shallow(form) and shallow_tile(form, gpu).tiles > 1


def direct_tile(form: Form, grade: Grade, gpu: Gpu, whole: bool = False) -> Tile:
    """Operands pass through registers, so tiles are smaller."""
    columns = power(form.outputs.value, 16, 256 if whole else 128 if form.pointwise else 64)
    many = -(-form.positions // 128) * form.phases >= gpu.sms
    rows = 128 if many and columns < 256 and columns * form.width <= 64 * 2 else 64
    deep = form.inputs.value * form.most_taps
    depth = (
        16 if grade.name == "ieee" or deep <= 16 else 64 if form.pointwise and grade.name == "half" else 32
    )
    return Tile(rows, columns, depth, 8 if rows * columns * form.width >= 128 * 64 else 4, 3)


@dataclass(frozen=True)
class RowsTile:
    """Of a convolution of one tap, whose positions are taken as they lie."""

    positions: int
    channels: int
    tiles: int
    """Neighbours that a program takes one after the other."""
    warps: int
    stages: int
    few: bool
    """Summed channel by channel, without tensor cores."""

    @property
    def choices(self) -> tuple[int, ...]:
        return tuple(sorted({self.positions // 2, self.positions, 2 * self.positions}))


def rows_tile(form: Form, gpu: Gpu) -> RowsTile:
    """Sums take 64 registers a thread, and so do the inputs of a tile at most: with 4 warps three programs or
    more share a multiprocessor, and one loads while another multiplies and a third one stores."""
    few = _few(form, gpu)
    columns = power(form.outputs.value, 4, 16) if few else power(form.outputs.value, 16, 128)
    rows = FEW_ROWS if few else 64 if columns == 128 or form.inputs.value > 64 else 128
    tiles = form.batch.value * -(-form.plane.value // rows) * -(-form.outputs.value // columns)
    each = 1
    while not few and each < 16 and tiles // (2 * each) >= 32 * gpu.sms:
        each *= 2
    return RowsTile(rows, columns, each, 4, 1 if few else 2, few)


def rows_pay(form: Form, grade: Grade, gpu: Gpu) -> bool:
    """Whether one tap's positions are taken as they lie: where memory is the limit, and images are large."""
    if not in_rows(form) or form.inputs.value > MOST_CHANNELS or form.plane.value % 4:
        return False
    moving, tile = _moving(form, gpu), rows_tile(form, gpu)
    if form.outputs.value < FEWEST_OUTPUTS or form.outputs.value > MOST_OUTPUTS:
        return False
    if moving < ROWS_LEAST_S or not (form.x.contiguous or form.computed(form.x)):
        return False
    if not tile.few and (grade.name == "ieee" or _gathering(form, grade, gpu) > moving):
        return False
    return -(-form.plane.value // tile.positions) * tile.positions <= WASTED * form.plane.value


def in_rows(form: Form) -> bool:
    """One tap, one group, and nothing behind it that needs positions in another order or all channels."""
    return (
        form.pointwise
        and form.groups == ONE
        and form.windows is None
        and not form.imaged
        and all(node.op not in ("reduce", "softmax") for node in form.group.nodes)
    )


def _few(form: Form, gpu: Gpu) -> bool:
    """Too few input channels for tensor cores, and so few products that ordinary units do them in passing."""
    return form.inputs.value <= FEW_CHANNELS and _adding(form, gpu) < HIDDEN * _moving(form, gpu)


def _adding(form: Form, gpu: Gpu) -> float:
    """Seconds for the products on the ordinary units."""
    return form.flops / gpu.vector["fp32"]


def packing_pays(form: Form, grade: Grade, gpu: Gpu) -> bool:
    """A rough reckoning of both ways."""
    if grade.name == "ieee":
        return False
    memory = gpu.bandwidth * MEMORY_SHARE
    packed = 2.0 * (2 if grade.name == "fp32" else 1) * form.x.elements.value
    passes = form.x.bytes + packed
    written = form.result.elements.value * BYTES[form.x.dtype]
    product = max((packed + written) / memory, form.flops / (_peak(grade, gpu) * PACKED_SHARE))
    product = max(product, _walking(form, packed_tile(form, grade, gpu), PACKED_STEP_S, gpu))
    step = ROWS_STEP_S if form.pointwise else GATHERED_STEP_S
    direct = max(_moving(form, gpu), _gathering(form, grade, gpu))
    direct = max(direct, _walking(form, direct_tile(form, grade, gpu), step, gpu))
    return passes / memory + product + 4 * LAUNCH_S < direct


def exactness_is_free(form: Form, gpu: Gpu) -> bool:
    """A convolution gathered where it lies, at fp32's accuracy too limited by memory: then why less."""
    coarse, exact = Grade("tf32", form.x.dtype), Grade("fp32", form.x.dtype)
    return (
        not packing_pays(form, coarse, gpu)
        and _gathering(form, exact, gpu) < HIDDEN * _moving(form, gpu) + LAUNCH_S
    )


def _walking(form: Form, tile: Tile, step: float, gpu: Gpu) -> float:
    """Seconds for the steps that a tile takes one after another: what few positions of many channels cost."""
    tiles = -(-form.positions // tile.rows) * -(-form.outputs.value // tile.columns)
    waves = -(-tiles * form.groups.value * form.phases // (RESIDENT * gpu.sms))
    return waves * -(-form.inputs.value * form.most_taps // tile.depth) * step


def _peak(grade: Grade, gpu: Gpu) -> float:
    return gpu.tensor.get("fp16", gpu.peaks.get("fp16", 1e14)) / (3 if grade.name == "fp32" else 1)


def _moving(form: Form, gpu: Gpu) -> float:
    """Seconds for the input and the result, with nothing in between."""
    return (form.x.bytes + form.result.bytes) / (gpu.bandwidth * MEMORY_SHARE)


def _gathering(form: Form, grade: Grade, gpu: Gpu) -> float:
    """Seconds for products of inputs that are gathered where they lie."""
    share = ROWS_SHARE if form.pointwise else UNEVEN_SHARE if form.phased else GATHERED_SHARE
    return form.flops / (_peak(grade, gpu) * share)
