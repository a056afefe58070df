"""What an operation of Triton's IR costs by its types alone: arithmetic, special functions, products."""

from __future__ import annotations

import re

from egg.evaluator.work.ttir import Op, Region, Type

_ONE = frozenset(
    ("addf", "subf", "mulf", "negf", "cmpf", "maximumf", "minimumf", "maxnumf", "minnumf", "absf", "floor",
     "ceil", "trunc", "roundeven", "copysign")
)  # fmt: skip
_TWO = frozenset(("fma", "clampf"))
_SPECIAL = frozenset(("divf", "remf", "precise_divf", "precise_sqrt", "extern_elementwise"))
_INTEGER = frozenset(
    ("addi", "subi", "muli", "minsi", "maxsi", "minui", "maxui", "andi", "ori", "xori", "cmpi")
)

_OPERANDS = {"f16": "fp16", "bf16": "bf16", "i8": "int8", "i4": "int8"}
_SPLIT = {"tf32": ("tf32", 1), "tf32x3": ("tf32", 3), "bf16x3": ("bf16", 3), "bf16x6": ("bf16", 6)}
"""How often a product of fp32 operands runs through the tensor cores, by ``inputPrecision``."""


def arithmetic(op: Op) -> tuple[float, float]:
    """Ordinary operations and special functions of an elementwise operation on floating-point numbers."""
    dialect, _, name = op.name.partition(".")
    if dialect not in ("arith", "math", "tt"):
        return 0.0, 0.0
    elements = result_type(op).elements
    if name in _ONE or name in _TWO:
        return (2.0 if name in _TWO else 1.0) * elements, 0.0
    if name in _SPECIAL or (dialect == "math" and not name.startswith(("abs", "ctlz", "ctpop", "cttz"))):
        return 0.0, float(elements)
    return 0.0, 0.0


def combined(op: Op) -> tuple[float, float]:
    """Of ``tt.reduce``, ``tt.scan``, ``tt.map_elementwise``: their region, for every element that enters."""
    entered = max((t.elements for t in op.inputs), default=0)
    if op.name == "tt.reduce":
        entered -= max((t.elements for t in op.outputs), default=1)
    elif op.name == "tt.map_elementwise":
        entered = entered // max(1, int(op.attributes.get("pack", "1")))
    flops, special = 0.0, 0.0
    for region in op.regions:
        one, other = _of_region(region)
        flops, special = flops + one * entered, special + other * entered
    return flops, special


def _of_region(region: Region) -> tuple[float, float]:
    flops, special = 0.0, 0.0
    for block in region.blocks:
        for op in block.ops:
            one, other = arithmetic(op)
            if op.name.removeprefix("arith.") in _INTEGER:
                one += 1
            flops, special = flops + one, special + other
            for inner in op.regions:
                one, other = _of_region(inner)
                flops, special = flops + one, special + other
    return flops, special


def product(op: Op) -> tuple[str, float]:
    """Precision and FLOPs of ``tt.dot`` and ``tt.dot_scaled``; precision is empty off the tensor cores."""
    result = result_type(op)
    left = op.inputs[0]
    inner = left.shape[-1] if left.shape else 0
    if op.name == "tt.dot_scaled":
        precision, packed = _scaled_operands(op)
        return precision, 2.0 * result.elements * inner * packed
    flops = 2.0 * result.elements * inner
    if left.element == "f32":
        precision, times = _SPLIT.get(op.attributes.get("inputPrecision", ""), ("", 1))
        return precision, flops * times
    if left.element.startswith("f8"):
        return "fp8", flops
    return _OPERANDS.get(left.element, ""), flops


def _scaled_operands(op: Op) -> tuple[str, int]:
    """Four-bit operands count as fp8, whose rate they reach at least, and two of them lie in a byte."""
    kinds = re.findall(r"\b[lr]hs\s*=\s*(\w+)", op.text) or [""]
    packed = 2 if kinds[0].startswith("e2m1") else 1
    wide = next((k for k in kinds if k in ("bf16", "fp16")), None)
    return wide or "fp8", packed


def result_type(op: Op) -> Type:
    """Of the first result; where the operation prints no arrow it is the last type it prints."""
    types = op.outputs or op.inputs
    return types[-1] if types and not op.outputs else types[0] if types else Type((), "")
