"""How much work operators of PyTorch did, so that a program can be compared with another under other names.

Three sums that are not added up: operations of products (matrix products, convolutions, attention),
operations of everything else that computes, and bytes that were moved to other places. The conventions are
those of :mod:`egg.evaluator.task.costs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any

from egg.core.facts import Family
from egg.evaluator.task.costs import Call, family_of, flops_of, size_of

PRODUCTS = (Family.PRODUCT, Family.CONVOLUTION, Family.ATTENTION, Family.RECURRENCE)

SEVERAL = {"logsumexp": 4.0, "var": 3.0, "std": 3.0, "var_mean": 3.0, "std_mean": 3.0}
"""Reductions that take several operations for each element: maximum, difference, exponential, sum."""


@dataclass(frozen=True)
class Work:
    products: float = 0.0
    others: float = 0.0
    moved: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.products + other.products, self.others + other.others, self.moved + other.moved)

    def __bool__(self) -> bool:
        return any(astuple(self))

    def covers(self, other: Work, share: float) -> bool:
        """Whether this is nearly as much as ``other`` in each respect in which that is anything.

        A product may be done as products, or element by element (a multiplication and a sum).
        """
        products = self.products >= share * other.products or (
            self.products + self.others >= share * (other.products + other.others)
        )
        return products and self.others >= share * other.others and self.moved >= share * other.moved


def work_of(func: Any, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Work:
    call = Call(name, func, args, kwargs, out)
    family = family_of(name, func)
    if family is Family.MOVEMENT or name in ("pad", "repeat_interleave"):
        return Work(moved=float(sum(map(size_of, call.made))))
    estimate = hidden_work(call)
    if estimate is not None:
        return estimate
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
        size = _largest(call)
        return Work(others=float(size) * math.log2(max(2, size)))
    return None


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
