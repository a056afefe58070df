"""Kernel variants as data: what is launched, on what, how. The prediction is held against their times.

Each is one launch of a kernel from ``kernels/``. Nothing here touches a GPU: the same description
is captured and compiled on any machine, and timed where there is one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernels import elements, layers, products, rows

MIB = 1 << 20


@dataclass(frozen=True)
class Tensor:
    """An argument in memory; ``below`` makes it indices, anywhere in that range."""

    dtype: str
    shape: tuple[int, ...]
    below: int | None = None


@dataclass(frozen=True)
class Variant:
    """One launch."""

    family: str
    name: str
    kernel: Any
    """A ``triton.JITFunction``."""
    arguments: tuple[Tensor | int | float, ...]
    """In the kernel's order."""
    grid: tuple[int, ...]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    warps: int = 4
    stages: int = 3

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(a for a in self.arguments if isinstance(a, Tensor))

    def launch(self, tensors: list[Any]) -> None:
        """On ``tensors``, one for each of :attr:`tensors`."""
        given = iter(tensors)
        arguments = [next(given) if isinstance(a, Tensor) else a for a in self.arguments]
        self.kernel[self.grid](*arguments, **self.constexprs, num_warps=self.warps, num_stages=self.stages)


def all_variants() -> tuple[Variant, ...]:
    """In families, names unique."""
    families = (
        _adds, _strided, _few_programs, _arithmetic, _pointwise, _gathers,
        _softmax, _norms, _row_sums, _column_sums, _scans, _transposes,
        _half_products, _tf32_products, _ieee_products, _split_products,
        _attention, _convolutions, _depthwise,
    )  # fmt: skip
    return tuple(variant for family in families for variant in family())


def _vector(length: int, dtype: str = "float32") -> Tensor:
    return Tensor(dtype, (length,))


def _tiles(size: int, tile: int) -> int:
    return math.ceil(size / tile)


def _adds() -> Iterator[Variant]:
    shapes = (
        (4096, 1024, 4), (262144, 1024, 4), (2 * MIB, 256, 1), (2 * MIB, 1024, 4), (16 * MIB, 128, 4),
        (16 * MIB, 1024, 4), (16 * MIB, 8192, 8), (64 * MIB, 256, 2), (64 * MIB, 1024, 4),
        (64 * MIB, 4096, 16),
    )  # fmt: skip
    for length, block, warps in shapes:
        x = _vector(length)
        yield Variant(
            "add", f"add {length} block {block} warps {warps}", elements.add, (x, x, x, length),
            (_tiles(length, block),), {"BLOCK": block}, warps,
        )  # fmt: skip


def _strided() -> Iterator[Variant]:
    for dtype, length, stride, block in (
        ("float16", 64 * MIB, 1, 2048), ("float16", 16 * MIB, 2, 1024), ("float32", 16 * MIB, 2, 1024),
        ("float32", 16 * MIB, 4, 1024), ("float32", 8 * MIB, 8, 1024), ("float32", 8 * MIB, 32, 1024),
        ("float32", 65536, 32, 1024), ("int8", 256 * MIB, 1, 4096),
    ):  # fmt: skip
        yield Variant(
            "strided copy", f"copy {dtype} {length} stride {stride}", elements.strided_copy,
            (_vector(length * stride, dtype), _vector(length, dtype), length),
            (_tiles(length, block),), {"STRIDE": stride, "BLOCK": block}, 4,
        )  # fmt: skip


def _few_programs() -> Iterator[Variant]:
    for programs, length in ((4, 4 * MIB), (16, 16 * MIB), (66, 64 * MIB), (132, 64 * MIB), (528, 64 * MIB)):
        x = _vector(length)
        yield Variant(
            "few programs", f"stream {length} by {programs}", elements.shared_stream, (x, x, length),
            (programs,), {"BLOCK": 4096}, 8,
        )  # fmt: skip


def _arithmetic() -> Iterator[Variant]:
    for kernel, name, length, rounds in (
        (elements.polynomial, "polynomial", 16 * MIB, 1), (elements.polynomial, "polynomial", 16 * MIB, 8),
        (elements.polynomial, "polynomial", 16 * MIB, 64), (elements.polynomial, "polynomial", 65536, 64),
        (elements.exponentials, "exponentials", 16 * MIB, 2),
        (elements.exponentials, "exponentials", 16 * MIB, 16),
        (elements.exponentials, "exponentials", 16 * MIB, 128),
        (elements.exponentials, "exponentials", 65536, 128),
    ):  # fmt: skip
        x = _vector(length)
        yield Variant(
            name, f"{name} {length} rounds {rounds}", kernel, (x, x, length, rounds),
            (_tiles(length, 1024),), {"BLOCK": 1024}, 4,
        )  # fmt: skip


def _pointwise() -> Iterator[Variant]:
    for dtype, length, block, warps in (
        ("bfloat16", 64 * MIB, 1024, 4), ("float32", 32 * MIB, 1024, 4), ("float32", 32 * MIB, 1024, 8),
    ):  # fmt: skip
        x = _vector(length, dtype)
        yield Variant(
            "gelu", f"gelu {dtype} {length} warps {warps}", elements.gelu, (x, x, length),
            (_tiles(length, block),), {"BLOCK": block}, warps,
        )  # fmt: skip


def _gathers() -> Iterator[Variant]:
    for entries, width, taken in ((1 << 20, 64, 262144), (1 << 18, 512, 131072), (50304, 4096, 32768)):
        yield Variant(
            "gather", f"rows of {width} from {entries}", elements.take_rows,
            (Tensor("float32", (entries, width)), Tensor("int32", (taken,), entries),
             Tensor("float32", (taken, width)), width),
            (taken,), {"BLOCK": width}, max(1, min(8, width // 128)),
        )  # fmt: skip
    for entries in (1 << 20, 1 << 28):
        length = 8 * MIB
        yield Variant(
            "gather", f"elements from {entries}", elements.take_elements,
            (_vector(entries), Tensor("int32", (length,), entries), _vector(length), length),
            (_tiles(length, 1024),), {"BLOCK": 1024}, 4,
        )  # fmt: skip


def _softmax() -> Iterator[Variant]:
    for height, width, warps in (
        (128, 1024, 4), (65536, 128, 1), (65536, 128, 4), (16384, 1024, 4), (16384, 1024, 1), (4096, 8192, 8),
        (1024, 32768, 16), (1024, 32768, 4),
    ):  # fmt: skip
        x = Tensor("float32", (height, width))
        yield Variant(
            "softmax", f"softmax {height}x{width} warps {warps}", rows.softmax, (x, x, width), (height,),
            {"BLOCK": width}, warps,
        )  # fmt: skip
    for height, width, block in ((1024, 65536, 4096), (4096, 8192, 1024)):
        x = Tensor("float32", (height, width))
        yield Variant(
            "softmax", f"softmax in pieces {height}x{width} block {block}", rows.softmax_in_pieces,
            (x, x, width), (height,), {"BLOCK": block}, 8,
        )  # fmt: skip


def _norms() -> Iterator[Variant]:
    for dtype, height, width, warps in (
        ("float32", 16384, 1024, 4), ("bfloat16", 16384, 4096, 8), ("bfloat16", 16384, 4096, 2),
        ("bfloat16", 256, 4096, 8), ("float32", 4096, 8192, 16),
    ):  # fmt: skip
        x, w = Tensor(dtype, (height, width)), _vector(width, dtype)
        yield Variant(
            "norm", f"layer norm {dtype} {height}x{width} warps {warps}", rows.layer_norm,
            (x, w, w, x, width), (height,), {"BLOCK": width}, warps,
        )  # fmt: skip
    for height, width, block in ((8192, 8192, 1024), (512, 65536, 2048)):
        x, w = Tensor("bfloat16", (height, width)), _vector(width, "bfloat16")
        yield Variant(
            "norm", f"rms norm in pieces {height}x{width}", rows.rms_norm_in_pieces, (x, w, x, width),
            (height,), {"BLOCK": block}, 4,
        )  # fmt: skip


def _row_sums() -> Iterator[Variant]:
    for height, width, block, warps in (
        (262144, 256, 256, 1), (16384, 4096, 1024, 4), (4096, 16384, 4096, 8), (64, 1 << 20, 4096, 8),
        (8, 1 << 20, 4096, 8), (1, 1 << 20, 8192, 16),
    ):  # fmt: skip
        yield Variant(
            "row sum", f"row sum {height}x{width} block {block}", rows.row_sum,
            (Tensor("float32", (height, width)), _vector(height), width), (height,), {"BLOCK": block}, warps,
        )  # fmt: skip


def _column_sums() -> Iterator[Variant]:
    for height, width, at_once, block in (
        (8192, 8192, 1, 128), (8192, 8192, 8, 128), (8192, 8192, 32, 32), (2048, 65536, 1, 512),
        (65536, 1024, 16, 64), (2048, 131072, 4, 256),
    ):  # fmt: skip
        yield Variant(
            "column sum", f"column sum {height}x{width} tile {at_once}x{block}", rows.column_sum,
            (Tensor("float32", (height, width)), _vector(width), height, width), (_tiles(width, block),),
            {"ROWS": at_once, "BLOCK": block}, 4,
        )  # fmt: skip


def _scans() -> Iterator[Variant]:
    for height, width, block in ((8192, 4096, 1024), (512, 65536, 2048)):
        x = Tensor("float32", (height, width))
        yield Variant(
            "scan", f"running sum {height}x{width} block {block}", rows.running_sum, (x, x, width), (height,),
            {"BLOCK": block}, 4,
        )  # fmt: skip


def _transposes() -> Iterator[Variant]:
    for size, tall, wide, warps in (
        (512, 32, 32, 4),
        (8192, 32, 32, 4),
        (8192, 64, 64, 4),
        (8192, 128, 64, 8),
    ):
        x = Tensor("float32", (size, size))
        yield Variant(
            "transpose", f"transpose {size} tile {tall}x{wide}", rows.transpose, (x, x, size, size),
            (_tiles(size, tall), _tiles(size, wide)), {"BR": tall, "BC": wide}, warps,
        )  # fmt: skip
    for size in (2048, 8192):
        x = Tensor("float32", (size, size))
        yield Variant(
            "transpose", f"transpose by row {size}", rows.transpose_by_row, (x, x, size, size),
            (size, _tiles(size, 1024)), {"BLOCK": 1024}, 4,
        )  # fmt: skip


def _product(
    family: str,
    dtype: str,
    shape: tuple[int, int, int],
    tile: tuple[int, int, int],
    warps: int,
    stages: int,
    *,
    precision: str = "ieee",
    across: bool = False,
) -> Variant:
    """``across``: B lies with K contiguous, as the weights of a linear layer do."""
    (m, n, k), (bm, bn, bk) = shape, tile
    strides = (1, k) if across else (n, 1)
    layout = " K contiguous" if across else ""
    return Variant(
        family,
        f"{dtype} {m}x{n}x{k} tile {bm}x{bn}x{bk} warps {warps} stages {stages}{layout}",
        products.product,
        (Tensor(dtype, (m, k)), Tensor(dtype, (k, n)), Tensor(dtype, (m, n)), m, n, k, *strides),
        (_tiles(m, bm) * _tiles(n, bn),),
        {"BM": bm, "BN": bn, "BK": bk, "GROUP": 8, "PRECISION": precision},
        warps,
        stages,
    )


def _half_products() -> Iterator[Variant]:
    for size, tile, warps, stages in (
        (256, (64, 64, 32), 4, 3), (512, (64, 64, 64), 4, 3), (1024, (64, 64, 64), 4, 3),
        (1024, (128, 128, 64), 4, 3), (2048, (128, 128, 64), 4, 3), (4096, (32, 32, 32), 4, 3),
        (4096, (64, 64, 64), 4, 3), (4096, (128, 128, 32), 4, 4), (4096, (128, 128, 64), 4, 1),
        (4096, (128, 128, 64), 4, 3), (4096, (128, 256, 64), 8, 3), (4096, (256, 128, 64), 8, 3),
        (4096, (256, 256, 32), 4, 2), (4096, (128, 256, 64), 4, 3), (8192, (128, 256, 64), 8, 3),
    ):  # fmt: skip
        yield _product("half product", "bfloat16", (size, size, size), tile, warps, stages)
    yield _product("half product", "float16", (2176, 2048, 8192), (128, 256, 64), 8, 3)
    yield _product("half product", "float16", (16384, 64, 4096), (128, 64, 64), 4, 3)
    yield _product("half product", "float16", (128, 8192, 8192), (128, 128, 64), 4, 4)


def _tf32_products() -> Iterator[Variant]:
    for size, tile, warps, stages, across in (
        (2048, (128, 128, 32), 4, 4, True), (4096, (128, 128, 32), 4, 4, True),
        (4096, (128, 256, 32), 8, 3, True), (4096, (64, 64, 32), 4, 3, True),
        (2048, (128, 128, 32), 4, 4, False), (4096, (128, 128, 32), 4, 4, False),
    ):  # fmt: skip
        shape = (size, size, size)
        yield _product("tf32 product", "float32", shape, tile, warps, stages, precision="tf32", across=across)
    yield _product(
        "tf32 product", "float32", (4096, 4096, 4096), (128, 128, 32), 8, 3, precision="tf32x3", across=True
    )


def _ieee_products() -> Iterator[Variant]:
    for size, tile, warps, stages in (
        (512, (32, 32, 16), 4, 3), (1024, (64, 64, 16), 4, 3), (2048, (64, 64, 16), 4, 3),
        (2048, (128, 64, 16), 4, 3), (2048, (32, 32, 32), 2, 3),
    ):  # fmt: skip
        yield _product("ieee product", "float32", (size, size, size), tile, warps, stages)


def _split_products() -> Iterator[Variant]:
    size, inner = 512, 16384
    for parts in (1, 4, 16, 64):
        a, b = Tensor("float16", (size, inner)), Tensor("float16", (inner, size))
        yield Variant(
            "split product", f"{size}x{size}x{inner} in {parts} parts", products.split_product,
            (a, b, Tensor("float32", (size, size)), size, size, inner), (size // 128, size // 128, parts),
            {"BM": 128, "BN": 128, "BK": 64, "SPLIT": parts}, 4, 3,
        )  # fmt: skip


def _attention() -> Iterator[Variant]:
    for heads, tokens, width, (bm, bn), warps, causal in (
        (64, 2048, 64, (128, 64), 4, False), (64, 2048, 64, (64, 32), 4, False),
        (64, 2048, 64, (128, 64), 4, True), (32, 4096, 128, (128, 64), 8, False),
        (32, 4096, 128, (64, 64), 4, False), (8, 512, 64, (64, 64), 4, False),
        (2, 4096, 64, (128, 64), 4, False),
    ):  # fmt: skip
        x = Tensor("float16", (heads, tokens, width))
        word = "causal " if causal else ""
        yield Variant(
            "attention", f"{word}attention {heads}x{tokens}x{width} tile {bm}x{bn} warps {warps}",
            layers.attention, (x, x, x, x, tokens, 1.4426950408889634 / math.sqrt(width)),
            (tokens // bm, heads), {"WIDTH": width, "BM": bm, "BN": bn, "CAUSAL": causal}, warps, 3,
        )  # fmt: skip


def _convolutions() -> Iterator[Variant]:
    for batch, inputs, side, outputs, tile, warps in (
        (32, 64, 56, 64, (128, 64, 64), 4), (32, 128, 28, 256, (128, 128, 64), 4),
        (64, 256, 14, 256, (64, 64, 32), 4), (1, 64, 56, 64, (64, 64, 32), 4),
        (16, 64, 112, 128, (128, 128, 32), 8),
    ):  # fmt: skip
        bm, bn, bk = tile
        x, y = (Tensor("float16", (batch, side, side, channels)) for channels in (inputs, outputs))
        w = Tensor("float16", (9 * inputs, outputs))
        yield Variant(
            "convolution", f"3x3 {batch}x{inputs}x{side}x{side} to {outputs} tile {bm}x{bn}x{bk}",
            layers.convolution, (x, w, y, batch, inputs, side, side, outputs),
            (_tiles(batch * side * side, bm), _tiles(outputs, bn)),
            {"SIDE": 3, "BM": bm, "BN": bn, "BK": bk}, warps, 3,
        )  # fmt: skip


def _depthwise() -> Iterator[Variant]:
    for batch, channels, side, taps, block in (
        (16, 64, 256, 3, 1024), (16, 64, 256, 7, 1024), (32, 256, 28, 3, 1024), (1, 64, 128, 3, 256),
    ):  # fmt: skip
        x = Tensor("float32", (batch, channels, side, side))
        yield Variant(
            "depthwise", f"depthwise {taps}x{taps} {batch}x{channels}x{side}x{side}", layers.depthwise,
            (x, Tensor("float32", (channels, taps, taps)), x, channels, side, side),
            (_tiles(side * side, block), batch * channels), {"SIDE": taps, "BLOCK": block}, 4,
        )  # fmt: skip
