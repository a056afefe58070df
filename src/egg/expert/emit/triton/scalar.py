"""The scalar functions of pointwise operators as Triton text: one operator, one expression.

Arithmetic is fp32 for floating values whatever their dtype in memory (loads convert, stores convert back);
integers stay integers until an operator's result is floating. The formulas are those a numerical analyst
would pick, because a fused kernel is compared with PyTorch at PyTorch's own accuracy: nothing overflows for
large arguments that PyTorch survives, nothing cancels near zero, and a NaN stays a NaN.

Where a plain formula cannot be accurate (``expm1`` and ``log1p`` near zero, ``tanh``) the text calls
``libdevice``, the math library that comes with Triton.

The texts of operands are variables or literals as a rule; an operand that stands twice in a formula is the
same value to the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from egg.expert.emit.triton.scalar_call import FLOATING, Call, is_literal, literal, number_text
from egg.expert.emit.triton.scalar_rules import CHEAP, RULES
from egg.expert.emit.triton.types import FLOAT8, TYPES
from egg.expert.parts import Unfit

__all__ = [
    "FLOATING", "SUPPORTED", "cheap", "expression", "is_literal",
    "literal", "stored",
]  # fmt: skip

SUPPORTED: frozenset[str] = frozenset(RULES)
"""Every function there is a formula for."""

_COMPARISONS = frozenset({"gt", "ge", "lt", "le", "eq", "ne"})
_TAKES_ANY = frozenset(
    {
        "cast",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_not",
        "where",
        "masked_fill",
        "of_e4m3",
        "of_e5m2",
        "bits",
        "key_value",
    }
)


def expression(
    fn: str, texts: Sequence[str], scalars: Sequence[Any], dtypes: Sequence[str], result: str
) -> str:
    """Triton text of ``fn``.

    ``texts`` are its tensor operands in order, ``scalars`` the operand list of ATen with ``None`` where a
    tensor stands (or where a trailing operand is absent); ``dtypes`` are the tensors' as PyTorch has them
    and ``result`` is the operator's.
    """
    rule = RULES.get(fn)
    if rule is None:
        raise Unfit(f"no formula for the scalar function {fn}")
    kinds = [_kind(dtype) for dtype in dtypes]
    prepared = [_converted(text, kind, fn, result, kinds) for text, kind in zip(texts, kinds, strict=True)]
    operands: list[str | None] = []
    given: list[Any] = []
    left = list(prepared)
    for value in scalars:
        operands.append(number_text(value) if value is not None else left.pop(0) if left else None)
        given.append(value)
    operands += left
    given += [None] * len(left)
    return rule(Call(tuple(operands), tuple(given), tuple(dtypes), result))


def cheap(fn: str) -> bool:
    """Whether computing it twice costs less than keeping its result: no special function, no division."""
    return fn in CHEAP


def stored(text: str, dtype: str) -> str:
    """A register's value as it goes to memory. Triton's store converts between floats by itself."""
    if dtype in FLOAT8:
        return text
    if dtype not in TYPES:
        raise Unfit(f"no kernel writes {dtype}")
    return f"({text}).to({TYPES[dtype]})" if dtype not in FLOATING and not is_literal(text) else text


def _kind(dtype: str) -> str:
    return "float" if dtype in FLOATING else "bool" if dtype == "bool" else "int"


def _converted(text: str, kind: str, fn: str, result: str, kinds: Sequence[str]) -> str:
    """An operand as the operator computes with it: integers become fp32 where the result is floating."""
    if is_literal(text) or fn in _TAKES_ANY:
        return text
    if fn in _COMPARISONS:
        if kind != "float" and "float" in kinds:
            return f"{text}.to(tl.float32)"
        return f"{text}.to(tl.int32)" if kind == "bool" else text
    if kind != "float" and result in FLOATING:
        return f"{text}.to(tl.float32)"
    if kind != "float" and result in ("int64", "int32") and (kind == "bool" or result == "int64"):
        return f"{text}.to({TYPES[result]})"
    return text
