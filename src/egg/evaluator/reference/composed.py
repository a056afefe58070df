"""Functions that a kernel composes of others, and what that rounds.

``log1p``, ``softplus`` or ``tanh`` of PyTorch are exact to their last digits however small the result is. A
kernel writes ``log(1 + exp(x))``, or ``1 - 2 / (1 + exp(2 x))``, or takes an instruction of the GPU, whose
error near one is absolute (in 16 bits ``tanh.approx``): they are right to some roundings of the numbers that
are added inside, in the type of the result. How far the exact answers move when such
functions are off by that is allowed to elements that are small beside others
(:mod:`~egg.evaluator.compare.populations`).
"""

from __future__ import annotations

from typing import Any

import torch

from egg.evaluator.operators.ops import base_name
from egg.evaluator.reference.yardstick import Rounded

NAMES = """
acos acosh asin asinh atan atan2 atanh binary_cross_entropy binary_cross_entropy_with_logits celu cos elu erf
erfc erfinv expm1 kl_div lgamma log log10 log1p log2 log_sigmoid_forward logaddexp logaddexp2 logit selu
sigmoid sin sinh soft_margin_loss softplus tan tanh
"""
OF_ONE = frozenset(NAMES.split())
"""What is added inside is one, or about that."""
OF_THEIR_INPUT = frozenset({"gelu", "mish", "silu", "hardswish"})
"""It is the input, which such a function multiplies by one of the others."""
ROUNDINGS = 4.0
"""By which a composed function is off: a sum, an exponential, a logarithm or quotient, a product."""


def composed(name: str) -> bool:
    """Whether kernels compose the operation ``name`` of others, with an error that is absolute."""
    return name.rstrip("_") in OF_ONE | OF_THEIR_INPUT


class Composed(Rounded):
    """Moves the results of such functions by absolute roundings, up or down by lot; all else is exact."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = base_name(func)
        scale = args[0].abs() if name.rstrip("_") in OF_THEIR_INPUT else 1.0
        result = func(*args, **(kwargs or {}))
        unit = self.unit_of(func)
        first = result[0] if isinstance(result, tuple) else result
        if composed(name) and isinstance(first, torch.Tensor) and first.is_floating_point() and first.numel():
            first.add_(self.lots(first, ROUNDINGS * unit).to(first.dtype) * scale)
        return result
