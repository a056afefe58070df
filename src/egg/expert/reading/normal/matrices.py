"""Factorisations of small matrices, and what is computed by them.

A matrix of a few rows fits the registers of one thread, so batches of them are elementwise work: that is
another way to compute than a library's for large ones, and another operator here. Its ``order`` is part of
the structure: two captures with matrices of other orders are two programs, and the file is for one of them.
Larger matrices, and other numbers than fp32, stay PyTorch's.

``raises`` is what PyTorch calls the function in the error that it raises where a matrix has no factorisation;
empty for a function that does not look (``cholesky_ex`` gives its error codes back instead).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from egg.expert.graph import Value
from egg.expert.reading.normal.builder import FEW_ROWS, Builder, Call, Lowered, Rule, extents

MOST_RIGHT = 64
"""Elements of the right sides that it holds beside the matrix."""


def is_small(matrix: Value, right: Value | None = None) -> bool:
    """Whether a thread may hold a matrix, and right sides beside it."""
    if matrix.rank < 2 or matrix.dtype != "float32" or 0 in extents(matrix):
        return False
    rows, columns = extents(matrix)[-2:]
    if rows != columns or rows > FEW_ROWS:
        return False
    return right is None or (right.dtype == "float32" and 0 < math.prod(extents(right)[-2:]) <= MOST_RIGHT)


def order_of(matrix: Value, right: Value | None = None) -> tuple[int, ...]:
    """Rows of a matrix, and its right sides."""
    return extents(matrix)[-1:] if right is None else (extents(matrix)[-1], extents(right)[-1])


def _factor(raises: str) -> Rule:
    """``check_errors`` of the functions that give error codes back is what the others do in any case."""

    def rule(b: Builder, call: Call) -> Lowered | None:
        matrix = call.get("self", call.get("A"))
        if not is_small(matrix):
            return None
        return _with_codes(b, call, "cholesky", [matrix], raises, upper=bool(call.get("upper", False)))

    return rule


def _with_codes(
    b: Builder, call: Call, op: str, operands: Sequence[Value], raises: str, **attributes: bool
) -> Lowered:
    """A node, with error codes behind its result where the call has such."""
    forms = [(extents(operands[-1]), call.dtype)]
    coded = len(call.results) > 1
    if coded:
        forms.append(call.results[-1])
        raises = raises if call.get("check_errors", False) else ""
    made = b.node(op, operands, forms, op, order=order_of(*operands), raises=raises, **attributes)
    return made if coded else made[0]


def _inverse(raises: str) -> Rule:
    def rule(b: Builder, call: Call) -> Lowered | None:
        matrix = call.get("self", call.get("A"))
        return _with_codes(b, call, "inverse", [matrix], raises) if is_small(matrix) else None

    return rule


def _solve(raises: str) -> Rule:
    """``A x = b`` for matrices and for vectors ``b``; ``x A = b`` is the system of the transposes."""

    def rule(b: Builder, call: Call) -> Lowered | None:
        matrix, right, left = call["A"], call["B"], call.get("left", True)
        vector = right.rank == 1 or (matrix.rank - 1 == right.rank and extents(right) == extents(matrix)[:-1])
        columns = b.unsqueeze(right, -1) if vector else right
        if len(call.results) > 2 or (vector and not left) or not is_small(matrix, columns):
            return None
        if not left:
            matrix, columns = b.transpose(matrix), b.transpose(columns)
        lead = call.shape[:-1] if vector else call.shape[:-2]
        columns = b.expand(columns, (*lead, *extents(columns)[-2:]))
        matrix = b.expand(matrix, (*lead, *extents(matrix)[-2:]))
        made = _with_codes(b, call, "solve", [matrix, columns], raises)
        solved, *codes = made if isinstance(made, list) else [made]
        if vector:
            solved = b.reshape(solved, call.shape)
        solved = solved if left else b.transpose(solved)
        return [solved, *codes] if codes else solved

    return rule


def _determinant(sign: bool) -> Callable[[Builder, Call], Lowered | None]:
    """The determinant, or its sign and the logarithm of its size, which does not overflow."""

    def rule(b: Builder, call: Call) -> Lowered | None:
        matrix = call.get("self", call.get("A"))
        if not is_small(matrix):
            return None
        forms = [(form, call.dtype) for form, _ in call.results]
        made = b.node("determinant", [matrix], forms, call.name, order=order_of(matrix), log=sign)
        return made if sign else made[0]

    return rule


def _logarithm(b: Builder, call: Call) -> Lowered | None:
    """NaN for a negative determinant."""
    matrix = call["self"]
    if not is_small(matrix):
        return None
    forms = [(call.shape, call.dtype)] * 2
    sign, size = b.node("determinant", [matrix], forms, "slogdet", order=order_of(matrix), log=True)
    return b.pointwise("add", size, b.pointwise("log", sign))


def triangular(
    b: Builder, matrix: Value, right: Value, lead: Sequence[int], upper: bool, unit: bool = False
) -> Value:
    """``x`` of ``matrix @ x = right``, of whose matrix one triangle counts."""
    shape = (*lead, *extents(right)[-2:])
    small = is_small(matrix, right)
    order = order_of(matrix, right) if small else None
    return b.one(
        "triangular_solve", [matrix, right], shape, right.dtype, "solved", upper=upper, unit=unit, order=order
    )


def _solve_triangular(b: Builder, call: Call) -> Lowered | None:
    """``x @ a = b`` is the system of the transposes, with the other triangle."""
    matrix, right, upper, left = call["self"], call["B"], bool(call["upper"]), call.get("left", True)
    if matrix.rank < 2 or right.rank < 2 or "complex" in matrix.dtype:
        return None
    if not left:
        matrix, right, upper = b.transpose(matrix), b.transpose(right), not upper
    unit = bool(call.get("unitriangular", False))
    made = triangular(b, matrix, right, call.shape[:-2], upper, unit)
    return made if left else b.transpose(made)


def _solve_factored(b: Builder, call: Call) -> Lowered | None:
    """``a @ x = b`` with the Cholesky factor of ``a``: two triangular systems."""
    right, factor, upper = call["self"], call["input2"], bool(call.get("upper", False))
    if not is_small(factor, right):
        return None
    lead = call.shape[:-2]
    first, last = (b.transpose(factor), factor) if upper else (factor, b.transpose(factor))
    middle = triangular(b, first, right, lead, upper=False)
    return triangular(b, last, middle, lead, upper=True)


def factors(name: str, shapes: Sequence[Sequence[int]]) -> bool:
    """Whether an operator of this name, given tensors of these shapes, may be one of these."""
    first = next(iter(shapes), ())
    return name in RULES and len(first) > 1 and first[-1] <= FEW_ROWS and first[-2] <= FEW_ROWS


RULES: dict[str, Rule] = {
    "linalg_cholesky": _factor("linalg.cholesky"),
    "linalg_cholesky_ex": _factor("linalg.cholesky_ex"),
    "cholesky": _factor("cholesky"),
    "cholesky_solve": _solve_factored,
    "linalg_solve_triangular": _solve_triangular,
    "linalg_solve": _solve("torch.linalg.solve"),
    "linalg_solve_ex": _solve("torch.linalg.solve_ex"),
    "linalg_inv_ex": _inverse("linalg.inv_ex"),
    **dict.fromkeys(["linalg_inv", "inverse"], _inverse("linalg.inv")),
    **dict.fromkeys(["linalg_det", "det"], _determinant(sign=False)),
    **dict.fromkeys(["linalg_slogdet", "slogdet"], _determinant(sign=True)),
    "logdet": _logarithm,
}
