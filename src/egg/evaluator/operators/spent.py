"""How much work operators of PyTorch did, so that a program can be compared with another under other names.

Three sums that are not added up: operations of products (matrix products, convolutions, attention),
operations of everything else that computes, and bytes that were moved to other places. The conventions are
those of :mod:`egg.evaluator.task.costs`, but for operators that stand for several others. Those count here
for the cheapest way to write them in other operators of PyTorch: were they to count for more, a library could
do all of the reference's work under other names and still seem to leave a part of it. What they may do beyond
that is a fourth sum (:mod:`.parts`), which counts for a library as far as the reference has less of it.
"""

from __future__ import annotations

import math
import operator
from dataclasses import astuple, dataclass, replace
from typing import Any

from egg.core.facts import Family
from egg.evaluator.operators.parts import fused_work
from egg.evaluator.task.costs import Call, family_of, flops_of, needs_statistics, size_of, window_of

PRODUCTS = (Family.PRODUCT, Family.CONVOLUTION, Family.ATTENTION, Family.RECURRENCE)

SEVERAL = {
    **dict.fromkeys(("logsumexp", "logcumsumexp", "logaddexp", "logaddexp2"), 4.0),
    **dict.fromkeys(("hypot", "sinc", "logit"), 3.0),
    **dict.fromkeys(("xlogy", "special_xlog1py", "special_entr", "aminmax", "dist"), 2.0),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), 3.0),
    **dict.fromkeys(("linalg_vector_norm", "norm", "addcmul", "addcdiv", "lerp"), 2.0),
}
"""Operators that take several operations for each element: maximum, difference, exponential, sum; square
and sum; product and sum."""
COMPLEX_PRODUCT, COMPLEX = 3.0, 2.0
"""A product of complex numbers takes three real ones; another operation two."""
STATISTICS, APPLYING = 3.0, 2.0
"""Of a normalization, for each element: mean and variance together; product with a factor and sum."""


@dataclass(frozen=True)
class Work:
    products: float = 0.0
    others: float = 0.0
    moved: float = 0.0
    fused: float = 0.0
    """Inside operators that stand for several, beyond what they count for."""

    def __add__(self, other: Work) -> Work:
        return Work(*map(operator.add, astuple(self), astuple(other)))

    def __bool__(self) -> bool:
        return any(astuple(self))

    def covers(self, other: Work, share: float) -> bool:
        """Whether this is nearly as much as ``other`` in each respect in which that is anything.

        A product may be done as products, or element by element (a multiplication and a sum).
        """
        products = self.products >= share * other.products or (
            self.products + self.others >= share * (other.products + other.others)
        )
        others = self.others + max(0.0, self.fused - other.fused)
        return products and others >= share * other.others and self.moved >= share * other.moved


def work_of(call: Call) -> Work:
    work = replace(_work_of(call, call.name, call.func), fused=fused_work(call))
    if call.name.startswith("_fft_") or not any(tensor.is_complex() for tensor in (*call.given, *call.made)):
        return work
    return Work(COMPLEX_PRODUCT * work.products, COMPLEX * work.others, work.moved, COMPLEX * work.fused)


def _work_of(call: Call, name: str, func: Any) -> Work:
    family = family_of(name, func)
    if name == "linspace":
        return Work(others=2.0 * call.made[0].numel())
    if family is Family.MOVEMENT or name in ("pad", "repeat_interleave"):
        return Work(moved=float(sum(map(size_of, call.made))))
    estimate = hidden_work(call)
    if estimate is not None:
        return estimate
    if family is Family.NORMALIZATION:
        return Work(others=_normalizing(call) * call.made[0].numel())
    if family is Family.POOLING:
        return Work(others=min(flops_of(call, family), _separable(call)))
    if family is Family.GATHER:
        return Work(others=float(max(t.numel() for t in call.made) if not _adds(call) else _largest(call)))
    if family is Family.OTHER:
        return Work(others=max(flops_of(call, family), float(_largest(call))))
    amount = flops_of(call, family) * SEVERAL.get(name, 1.0)
    return Work(products=amount) if family in PRODUCTS else Work(others=amount)


# -- operators that do products and sums under other names -------------------------------------------


def hidden_work(call: Call) -> Work | None:
    """Of an operator whose result says little about what it did; ``None`` where it is none of them."""
    name, made = call.name, call.made[0].numel() if call.made else 0
    if name in ("_embedding_bag", "_embedding_bag_forward_only"):
        width = call.argument("weight").shape[-1]
        terms = float(call.argument("indices").numel() * width)
        weighted = call.argument("per_sample_weights") is not None
        return Work(products=2.0 * terms) if weighted else Work(others=terms)
    if name in ("_cdist_forward", "_euclidean_dist"):
        return Work(products=2.0 * made * call.argument("x1").shape[-1])
    if name == "_pdist_forward":
        return Work(products=2.0 * made * call.given[0].shape[-1])
    if name in ("_trilinear", "bilinear"):
        return Work(products=2.0 * _broadcast(call))
    if name == "conv_tbc":
        weight = call.argument("weight")
        return Work(products=2.0 * made * weight.shape[0] * weight.shape[1])
    if name in ("_grouped_mm", "_scaled_grouped_mm"):
        return Work(products=2.0 * made * call.given[0].shape[-1])
    if name in ("grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback"):
        return Work(others=(8.0 if "2d" in name else 16.0) * made)
    if name.startswith("_fft_"):
        size = max(made, _largest(call))
        return Work(others=5.0 * size * math.log2(max(2, size)))
    if name.startswith(("linalg_", "_linalg_", "cholesky", "lu_", "triangular_solve", "ormqr", "geqrf")):
        return _factored(call) if name not in ("linalg_vector_norm", "linalg_cross") else None
    if name in ("sort", "argsort", "msort", "unique", "_unique2", "topk", "kthvalue", "median", "mode"):
        return _sorted_elements(call)
    return None


def _normalizing(call: Call) -> float:
    """Operations per element: statistics, then one factor and one offset for each group.

    Weights of channels are part of that factor and offset. Those of a layer norm differ inside a group, and
    take an operation each. By a norm alone it is a square, a sum and a product.
    """
    if not needs_statistics(call):
        return APPLYING
    if call.name in ("_weight_norm_interface", "renorm"):
        return STATISTICS
    if call.name in ("native_layer_norm", "_fused_rms_norm"):
        affine = sum(call.argument(name) is not None for name in ("weight", "bias"))
        return affine + (STATISTICS if "rms" in call.name else STATISTICS + APPLYING)
    return STATISTICS + APPLYING


def _separable(call: Call) -> float:
    """A window is gone over one dimension after the other; sums are differences of prefix sums."""
    window, largest = window_of(call), float(_largest(call))
    ways = [largest + call.made[0].numel() * sum(window)] if len(window) > 1 else [math.inf]
    ways += [2.0 * len(window) * largest] if "avg" in call.name else []
    return min(ways)


def _sorted_elements(call: Call) -> Work:
    """Rows are sorted, not the whole; the few largest of a row are found by as many maxima."""
    size, name = _largest(call), call.name
    dim = call.argument("dim", -1)
    shape = call.given[0].shape
    length = shape[dim] if isinstance(dim, int) and shape and name not in ("unique", "_unique2") else size
    passes = math.log2(max(2, length))
    if name == "topk":
        passes = min(passes, 2.0 * call.argument("k", 1))
    return Work(others=size * passes)


def _factored(call: Call) -> Work:
    """Solving and factoring a matrix: as many operations as a product with its smaller side."""
    matrices = [t for t in call.given if t.dim() >= 2]
    if not matrices:
        return Work(others=float(_largest(call)))
    columns = max(t.shape[-1] for t in matrices)
    return Work(products=2.0 * max(t.numel() for t in matrices) * max(1, columns))


def _broadcast(call: Call) -> float:
    """Of ``_trilinear``: places of the product before its sum."""
    sizes: list[int] = []
    for number, tensor in enumerate(call.given[:3], 1):
        shape = list(tensor.shape)
        for dim in sorted(call.argument(f"expand{number}", ())):
            shape.insert(dim, 1)
        sizes = shape if not sizes else [max(a, b) for a, b in zip(sizes, shape, strict=True)]
    return float(math.prod(sizes))


def _adds(call: Call) -> bool:
    """Whether an operator that goes by indices adds up: it reads more than it makes."""
    return any(part in call.name for part in ("add", "reduce", "put", "scatter"))


def _largest(call: Call) -> int:
    return max((t.numel() for t in (*call.given, *call.made)), default=0)
