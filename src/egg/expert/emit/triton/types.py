"""Triton's names for dtypes."""

from __future__ import annotations

from collections.abc import Mapping

TYPES: Mapping[str, str] = {
    "float64": "tl.float64", "float32": "tl.float32", "float16": "tl.float16", "bfloat16": "tl.bfloat16",
    "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8",
    "bool": "tl.int1",
}  # fmt: skip
"""Triton's names for PyTorch's dtypes, as they lie in memory."""
FLOAT8: Mapping[str, str] = {"float8_e4m3fn": "tl.float8e4nv"}
"""Those that kernels load, make and store, and compute nothing else with. Numbers beyond the largest become
the largest, as PyTorch has them from 2.13 on; programs limit their range before."""
