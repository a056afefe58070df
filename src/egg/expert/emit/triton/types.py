"""Triton's names for dtypes."""

from __future__ import annotations

from collections.abc import Mapping

TYPES: Mapping[str, str] = {
    "float64": "tl.float64", "float32": "tl.float32", "float16": "tl.float16", "bfloat16": "tl.bfloat16",
    "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8",
    "bool": "tl.int1",
}  # fmt: skip
"""Triton's names for PyTorch's dtypes, as they lie in memory."""
