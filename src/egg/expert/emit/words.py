"""Names that generated code has a use for, so that nothing else in a file takes them.

A value or a size of the program becomes a variable of ``forward``, of host functions and of kernels. Were it
called ``max``, a host function that computes a grid with ``max(...)`` would call a tensor. So all that name
variables ask here: :data:`RESERVED` is never bound, and the kernels of a pattern keep words of their own.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Iterable, Mapping

PYTHON = frozenset(keyword.kwlist) | frozenset(name for name in dir(builtins) if name[0] != "_")
"""Keywords and built-in functions."""
LIBRARIES = frozenset({"self", "torch", "triton", "tl", "nn", "F", "math", "libdevice", "TensorDescriptor"})
RESERVED = PYTHON | LIBRARIES
"""What no variable is called."""
CALLED = frozenset(keyword.kwlist) | LIBRARIES | frozenset(
    {"abs", "bool", "dict", "divmod", "enumerate", "float", "getattr", "int", "isinstance", "len", "list",
     "max", "min", "range", "round", "slice", "sum", "tuple", "type", "zip", "RuntimeError", "TypeError",
     "ValueError"}
)  # fmt: skip
"""What generated code calls: an argument of ``forward`` keeps any other name that its author gave it."""
INSTEAD: Mapping[str, str] = {
    "abs": "absolute", "max": "maximum", "min": "minimum", "pow": "power", "round": "rounded",
    "sum": "summed",
}  # fmt: skip
"""What a value is called that would like to have the name of a built-in function."""

PRODUCT = frozenset({
    "total", "part", "k_low", "k_high", "k_start", "largest",
    "exponent", "row_scale", "inverse", "scaled", "high_half", "low_half", "inside", "padded",
    "part_span", "pid", "tiles_m", "tiles_n", "band", "band_start", "left_at", "right_at", "left_high",
    "left_low", "right_high", "right_low", "left_tile", "right_tile", "left_tiles", "right_tiles",
    "part_sum", "tile_m", "tile_n", "parts_ptr", "partials_ptr", "packed_ptr", "scales_ptr",
    "left_scales_ptr", "right_scales_ptr", "left_ptr", "right_ptr", "blocks", "sums", "at", "ROWS",
    "WIDTH", "TILES", "COLUMNS", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "SPLIT_K",
    "GROUP_WIDTH", "GROUP_SLOTS",
    "round_tf32", "fp16_halves", "left_scale", "right_scale", "small",
})  # fmt: skip
CONVOLUTION = frozenset(
    {
        "pid", "group", "p", "o", "n", "c", "s", "k", "k0", "kk", "ci", "t", "e", "acc", "part",
        "inside", "kept", "live", "summed", "scale", "row", "column", "at", "step", "first",
        "plane", "top", "top_e", "start", "item", "item_q", "end", "u", "largest", "packed", "high",
        "x_at", "w_at", "x_e", "w_e", "x_low", "w_low", "x_high",
        "w_high", "x_scaled", "w_scaled", "padded_c", "tiles", "image", "v", "acc_0", "acc_1",
        "larger", "tile", "live_rest", "at_rest", "x_rest", "w_rest", "x_rest_low", "w_rest_low",
        *(f"{word}{level}" for word in ("v", "n", "s", "inside") for level in range(1, 7)),
        *(f"{word}{axis}" for word in "qrju" for axis in "dhw"),
        *(f"{word}_{axis}" for word in ("in", "steps", "first") for axis in "dhw"),
        *(f"{word}_{axis}" for word in ("origin", "taps", "padded") for axis in "dhw"),
    }
)  # fmt: skip
ATTENTION = frozenset({
    "batch", "block", "blocks", "key_blocks", "pid", "query", "key", "column", "depth", "width", "start",
    "scores", "part", "higher", "base", "weights", "weights_high", "weights_low", "shrink", "sums", "top",
    "total", "seen", "clear", "reach", "score_scale", "q", "k", "v", "q_high", "q_low", "k_high", "k_low",
    "v_high", "v_low", "q_scale", "k_scale", "v_scale", "q_at", "k_at", "result", "tile", "tiles", "tile_m",
    "tile_n", "most", "norm", "row", "values", "columns", "row_blocks", "column_blocks", "k_start", "depths",
    "BLOCK_M", "BLOCK_N", "BLOCK_K", "BLOCK_D", "BLOCK_V", "ROWS", "COLUMNS", "TILE_N", "low", "high",
    "halves", "places", "rows", "step", "factor", "at", "whole", "maxima_ptr", "sums_ptr",
    "SPLIT", "SHARES", "share", "span", "inside", "parts_ptr", "high_ptr", "low_ptr", "scales_ptr",
    "bounds_ptr", "first", "behind", "lowest", "tops", "ahead",
    "q_stride", "k_stride", "v_stride",
})  # fmt: skip
SEGMENTS = frozenset({
    "node", "edge", "col", "program", "node_blocks", "node_mask", "col_mask", "count", "first", "longest",
    "row", "start", "at", "live", "inside", "rank", "slot", "before", "total", "base", "position", "source",
    "count_ptr", "rank_ptr", "first_ptr", "edges_ptr", "NODES", "ROWS", "BLOCK_F", "BLOCK", "PLACES",
})  # fmt: skip
OF_ANCHORS: Mapping[str, frozenset[str]] = {
    "matmul": PRODUCT,
    "conv": PRODUCT | CONVOLUTION,
    "attention": PRODUCT | ATTENTION,
    "scatter": SEGMENTS,
}
"""By the kind of node that a kernel is written around: what the kernel calls its own variables."""


def of_kernels(kinds: Iterable[str]) -> frozenset[str]:
    """Words of the kernels that a program with these kinds of nodes may get: no size is called so."""
    kinds = {*kinds}
    if {"matmul", "softmax"} <= kinds:
        kinds.add("attention")
    return frozenset[str]().union(*(OF_ANCHORS.get(kind, frozenset()) for kind in kinds))
