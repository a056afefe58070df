"""Which tile a convolution is cut into, and whether packing its operands pays."""

from __future__ import annotations

from dataclasses import dataclass

from egg.expert.graph import BYTES
from egg.expert.patterns.convolution_form import Form
from egg.expert.patterns.convolution_grade import Grade
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
    rows = 64 if whole and columns == 256 else 128
    while rows > 64 and -(-form.positions // rows) * blocks < gpu.sms:
        rows //= 2
    if form.uniform:
        deep = form.inputs.value * form.most_taps
        depth = 64 if deep > 96 else 32 if deep > 16 else 16
    else:
        depth = 64 if form.inputs.value % 64 == 0 else 32 if form.inputs.value > 16 else 16
    depth = min(depth, 32) if split else depth
    choices = (64, 128) if columns == 128 else (128, 256) if columns == 256 else ()
    return Tile(rows, columns, depth, 8 if rows * columns >= 128 * 128 else 4, 3, choices)


def direct_tile(form: Form, grade: Grade, gpu: Gpu, whole: bool = False) -> Tile:
    """Operands pass through registers, so tiles are smaller."""
    columns = power(form.outputs.value, 16, 256 if whole else 128 if form.pointwise else 64)
    rows = 128 if -(-form.positions // 128) * form.phases >= gpu.sms and columns < 256 else 64
    deep = form.inputs.value * form.most_taps
    depth = (
        16 if grade.name == "ieee" or deep <= 16 else 64 if form.pointwise and grade.name == "half" else 32
    )
    return Tile(rows, columns, depth, 8 if rows * columns >= 128 * 64 else 4, 3)


def packing_pays(form: Form, grade: Grade, gpu: Gpu) -> bool:
    """A rough reckoning of both ways."""
    if grade.name == "ieee":
        return False
    size = BYTES[form.x.dtype]
    memory = gpu.bandwidth * MEMORY_SHARE
    peak = gpu.tensor.get("fp16", gpu.peaks.get("fp16", 1e14)) / (3 if grade.name == "fp32" else 1)
    packed = 2.0 * (2 if grade.name == "fp32" else 1) * form.x.elements.value
    moved = form.x.bytes + form.result.bytes
    direct = max(moved / memory, form.flops / (peak * (ROWS_SHARE if form.pointwise else GATHERED_SHARE)))
    passes = form.x.bytes + packed
    product = max((packed + form.result.elements.value * size) / memory, form.flops / (peak * PACKED_SHARE))
    return passes / memory + product + 4 * LAUNCH_S < direct
