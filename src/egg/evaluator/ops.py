"""Which aten operations are compute, and which merely make, move or look at tensors.

The reference's and the candidate's operations are told apart by the same list, so that
what is left to libraries can be compared like with like.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from egg.evaluator.memory import pieces
from egg.evaluator.modes import LightMode

ALLOCATIONS = frozenset(
    ("empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "empty_permuted")
)
MAKING = """
    zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill_ fill zero_ arange
    scalar_tensor lift_fresh lift_fresh_copy eye linspace
"""
MOVING = """
    copy_ _to_copy clone contiguous item _local_scalar_dense record_stream pin_memory is_pinned cat stack
    repeat repeat_interleave constant_pad_nd pad flip roll
"""
LOOKING = """
    detach detach_ alias view _unsafe_view _reshape_alias reshape as_strided slice select expand permute t
    transpose transpose_ unsqueeze squeeze unsqueeze_ squeeze_ unbind split split_with_sizes unsafe_split
    chunk unsafe_chunk narrow diagonal unfold movedim view_as_real view_as_complex resize_ set_ is_same_size
    _resize_output_ sym_size sym_stride sym_numel
"""
NEUTRAL = ALLOCATIONS.union(*(names.split() for names in (MAKING, MOVING, LOOKING)))

SELECTING = "embedding _embedding_bag index index_select gather take slice select narrow diagonal tril triu"
PARTIAL = frozenset(SELECTING.split())
"""Operations after which part of a tensor may honestly never be read."""


def base_name(func: Any) -> str:
    """``addmm`` for ``aten.addmm.default``."""
    packet = getattr(func, "overloadpacket", func)
    return str(packet).rsplit(".", 1)[-1]


Fingerprint = tuple[int, float, float]


def fingerprint(tensor: torch.Tensor) -> Fingerprint:
    """Number of elements, sum and norm in fp64: the same for any copy, in whatever order it is laid out."""
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    total, norm = 0.0, 0.0
    for (piece,) in pieces(values):
        wide = piece.to(torch.float64)
        total += float(wide.sum())
        norm = math.hypot(norm, float(torch.linalg.vector_norm(wide)))
    return values.numel(), total, norm


def alike(a: Fingerprint, b: Fingerprint) -> bool:
    """Whether two fingerprints can be of the same values; NaN is like nothing."""
    scale = max(a[2], b[2]) * max(a[0], 1) ** 0.5
    return (
        a[0] == b[0]
        and scale > 0
        and all(abs(x - y) <= 1e-10 * scale for x, y in zip(a[1:], b[1:], strict=True))
    )


class Recorder(LightMode):
    """Counts compute operations while active.

    Optionally fills what ``torch.empty`` returns, and keeps the fingerprints of what the
    operations produced.
    """

    def __init__(
        self, *, fill_empties: Callable[[torch.Tensor], object] | None = None, keep_fingerprints: bool = False
    ) -> None:
        super().__init__()
        self.compute: Counter[str] = Counter()
        self.seen: set[str] = set()
        self.fingerprints: list[Fingerprint] = []
        self._fill = fill_empties
        self._keep = keep_fingerprints

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = base_name(func)
        self.seen.add(name)
        if name not in NEUTRAL:
            self.compute[name] += 1
            if self._keep:
                self.fingerprints += [
                    fingerprint(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor)
                ]
        elif self._fill is not None and name in ALLOCATIONS and isinstance(result, torch.Tensor):
            self._fill(result)
        return result
