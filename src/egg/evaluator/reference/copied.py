"""Which answers hold nothing but numbers that were given: moved, selected, cast to fewer bits.

Two honest implementations of a sum differ by its order; those of a gather, a maximum or a transposition do
not differ at all. So while the program runs, it is noted of each memory whether all in it came there by
operations that compute nothing in floating point. Inputs and weights begin so, and a memory ceases to be so
when anything else is written into it; what forward itself changes from call to call begins so where every
call does nothing else with it (:mod:`egg.evaluator.reference.moved_only`). Integers and truth values are
exact whatever computes them, as long as what they are computed from is.

Everything that is not known counts as computed: memory that no operation of PyTorch made, operations that
draw, what follows a computed number that the host read, numbers that the host made of one that was given,
casts to floats of 8 bits that implementations make differently (beyond the largest number, to bare exponents,
by way of another type), and casts of wide integers to floats that do not hold them (a kernel that counts in
floats rounds there).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from egg.evaluator.operators.ops import COPIES, NEUTRAL, base_name
from egg.evaluator.reference.roundings import READ_BY_HOST, memory_of, tensors_in, written_by
from egg.evaluator.tensors.reals import EIGHT_BITS

NAMES = """
abs neg positive sign copysign floor ceil trunc relu clamp clamp_min clamp_max hardtanh threshold nan_to_num
where masked_fill masked_select masked_scatter index index_select gather take embedding tril triu
scatter scatter_reduce index_reduce index_put _unsafe_index _unsafe_index_put _index_put_impl put
index_copy index_fill select_scatter slice_scatter diagonal_scatter as_strided_scatter diag diag_embed im2col
sort topk max min amax amin aminmax maximum minimum fmax fmin median nanmedian kthvalue mode cummax cummin
max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices
adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d
upsample_nearest1d upsample_nearest2d upsample_nearest3d
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
pixel_shuffle pixel_unshuffle channel_shuffle rot90 real imag complex _conj _neg_view resolve_conj resolve_neg
"""
SELECTING = frozenset(NAMES.split()) | NEUTRAL - {"linspace", "arange"}
"""Operations whose floating results are numbers that they were given, but for the sign."""
ACCUMULATE = 3
"""The place of the argument by which these add to what is there."""
SHORT = 2
"""Bytes of integers that every float of 32 bits holds."""
CASTS = MappingProxyType(
    {
        torch.float8_e4m3fn: (torch.float32, torch.bfloat16, torch.float16),
        torch.float8_e5m2: (torch.float16,),
    }
)
"""Casts to 8 bits that are one rounding in every implementation."""
EXTREME = frozenset({"amax", "amin"})
"""The reductions of a scatter that choose one of the numbers."""
ADDING = frozenset({"index_put", "_unsafe_index_put", "_index_put_impl", "put"})


class Copied(TorchDispatchMode):
    """Notes of which memory all that is in it was ``given``, and of which answers."""

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.answers: tuple[bool, ...] = ()
        """For each answer whether it was computed nowhere."""
        self._held: dict[int, StorageWeakRef] = {}
        """By the address of a memory's record, which stays taken while there is a weak reference to it."""
        self._by_host = self._of_computed = False
        """Whether the host read a floating number, and whether one that was computed."""
        for tensor in given:
            self._note(tensor, copied=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = tensors_in((args, kwargs))
        numbers = self._by_host and any(
            type(leaf) in (float, complex) for leaf in tree_leaves((args, kwargs))
        )
        copied = not (self._of_computed or numbers) and all(map(self.holds, given))
        result = func(*args, **kwargs)
        copied = copied and selects(func, args, kwargs, result)
        for tensor in (*tensors_in(result), *written_by(func, args, kwargs)):
            self._note(tensor, copied=copied)
        if base_name(func) in READ_BY_HOST and any(map(_inexact, given)):
            self._by_host = True
            self._of_computed |= not all(map(self.holds, given))
        return result

    def answered(self, outputs: list[tuple[str, Any]]) -> None:
        """The program ended with these answers."""
        self.answers = tuple(isinstance(leaf, torch.Tensor) and self.holds(leaf) for _, leaf in outputs)

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether all in the tensor's memory is copied."""
        memory = memory_of(tensor)
        return memory is not None and memory._cdata in self._held

    def _note(self, tensor: torch.Tensor, *, copied: bool) -> None:
        memory = memory_of(tensor)
        if memory is None:
            return
        if copied:
            self._held.setdefault(memory._cdata, StorageWeakRef(memory))
        else:
            self._held.pop(memory._cdata, None)


def selects(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Whether an operation computes no floating number: the same in every implementation."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return False
    name = base_name(func).rstrip("_")
    made = [t for t in (*tensors_in(result), *written_by(func, args, kwargs)) if _inexact(t)]
    if not made:
        return True
    if name not in SELECTING and base_name(func) not in SELECTING:
        return False
    given = tensors_in((args, kwargs))
    if base_name(func) in COPIES:
        wide = any(_wide_integer(t) for t in given) and not _holds_all(result, given)
        eight = any(t.dtype in EIGHT_BITS for t in made) and not _rounds_once(made[-1], given[-1])
        coarse = wide or eight
        return not coarse or len({t.dtype for t in (*made, *given)}) == 1
    adds = name in ADDING and (kwargs.get("accumulate") or args[ACCUMULATE : ACCUMULATE + 1] == (True,))
    size = name == "abs" and any(t.is_complex() for t in given)
    joins = _reduction(name, args, kwargs) not in (None, *EXTREME)
    return not (adds or size or joins or len({t.dtype for t in made}) > 1)


def _reduction(name: str, args: Any, kwargs: Any) -> Any:
    """How numbers that meet in one place are joined, where an operation says it."""
    if name in ("scatter_reduce", "index_reduce"):
        return kwargs["reduce"] if "reduce" in kwargs else args[4]
    return kwargs.get("reduce")


def _has_numbers(given: Any) -> bool:
    return any(type(leaf) in (float, complex) for leaf in tree_leaves(given))


def _wide_integer(tensor: torch.Tensor) -> bool:
    return not _inexact(tensor) and tensor.itemsize > SHORT


def _holds_all(result: Any, given: list[torch.Tensor]) -> bool:
    """Whether a cast made floats of which each is the integer that it was given."""
    source = given[-1]
    if not isinstance(result, torch.Tensor) or result.is_complex() or result.shape != source.shape:
        return False
    return bool((result.double() == source.double()).all()) and result.dtype is not torch.float64


def _rounds_once(made: torch.Tensor, source: torch.Tensor) -> bool:
    """Whether a cast to 8 bits gives the nearest number wherever it is made: where the number is beyond the
    largest some saturate, and for want of an instruction some round to another type first."""
    if source.dtype in EIGHT_BITS or source.dtype not in CASTS.get(made.dtype, ()):
        return False
    return bool((source.abs() <= torch.finfo(made.dtype).max).all())


def _inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
