"""Contraction: a product that is added or subtracted becomes one instruction with one rounding.

The compiler may do that wherever it finds the two together, and does. Which of two products is contracted
is its choice. While lots are drawn (:data:`~egg.evaluator.interpreter.session.LOT`) a float32 product
carries its factors along, and a sum takes the product from them, unrounded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from egg.evaluator.interpreter.session import LOT

_FACTORS = "egg.factors"


def remember(product: Any, left: Any, right: Any) -> Any:
    if LOT.cast and product.data.dtype == np.float32:
        product.attr[_FACTORS] = (left.data, right.data)
    return product


def contracted(left: Any, right: Any, sign: int) -> np.ndarray | None:
    """``left + sign * right`` with one of them unrounded; ``None`` where neither is a product."""
    if not LOT.cast or left.data.dtype != np.float32 or right.data.dtype != np.float32:
        return None
    exact = [_unrounded(left), _unrounded(right)]
    taken = LOT.seed % 2 if exact[0] is not None and exact[1] is not None else exact[0] is None
    if exact[int(taken)] is None:
        return None
    terms = [left.data.astype(np.float64), right.data.astype(np.float64)]
    terms[int(taken)] = exact[int(taken)]
    return (terms[0] + sign * terms[1]).astype(np.float32)


def _unrounded(handle: Any) -> Any:
    factors = handle.attr.get(_FACTORS)
    if factors is None:
        return None
    return factors[0].astype(np.float64) * factors[1].astype(np.float64)
