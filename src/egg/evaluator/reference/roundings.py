"""To how many digits a program rounds what its operations compute, and which answers that reaches.

A program of several types rounds some of its results coarsely: a copy in bf16 beside the answer in fp32. What
conditioning allows an answer follows the roundings on the way to it alone. So while the program runs, each
memory is given the coarsest rounding of what it was computed from, and an answer has that of its own memory.
Memory that an operation writes into keeps what it had. A number that the host reads of a tensor may go into
anything computed later, and its rounding counts there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from egg.evaluator.operators.ops import COPIES, NEUTRAL, base_name
from egg.evaluator.reference.limits import FINFO
from egg.evaluator.tensors.reals import EXPONENTS

READ_BY_HOST = frozenset({"_local_scalar_dense", "item"})
BATCH_NORMS = frozenset(["aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"])


def computes(func: Any) -> bool:
    """Whether an operation computes new numbers, rather than looking at memory or writing into it."""
    returns = func._schema.returns
    aliases = func._schema.is_mutable or any(r.alias_info is not None for r in returns)
    return not aliases and base_name(func) not in NEUTRAL


class Roundings(TorchDispatchMode):
    """Notes how a program rounds, operation by operation in order, and on the way to each answer."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, float]] = []
        self.answers: tuple[float, ...] = ()
        """For each answer the coarsest on the way to it, casts to narrower types among them; zero where
        nothing rounds. That an input has 16 bits rounds nothing."""
        self._reached: dict[int, tuple[StorageWeakRef, float]] = {}
        """By the address of a memory's record, which stays taken while there is a weak reference to it."""
        self._by_host = 0.0
        self.read: torch.dtype | None = None
        """The coarsest floating type of what the host read of tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = max((self.of(t) for t in tensors_in((args, kwargs))), default=0.0)
        result = func(*args, **kwargs)
        name = base_name(func)
        unit = _rounding(result)
        if unit and computes(func):
            self.found.append((name, unit))
        if name in READ_BY_HOST:
            self._by_host = max(self._by_host, given)
            self._note_read(args[0])
        rounds = unit if _rounds(func, name, args, unit) else 0.0
        reached = max(given, rounds, self._by_host)
        for tensor in (*tensors_in(result), *written_by(func, args, kwargs)):
            self._reach(tensor, reached)
        return result

    def _note_read(self, tensor: torch.Tensor) -> None:
        if tensor.is_floating_point() and (self.read is None or _rounding(tensor) > FINFO(self.read).eps / 2):
            self.read = tensor.dtype

    def answered(self, outputs: list[tuple[str, Any]]) -> None:
        """The program ended with these answers."""
        self.answers = tuple(
            self.of(leaf) if isinstance(leaf, torch.Tensor) else self._by_host for _, leaf in outputs
        )

    def answer(self, position: int) -> float:
        """The coarsest rounding on the way to an answer; zero where that is not known."""
        return self.answers[position] if position < len(self.answers) else 0.0

    def of(self, tensor: torch.Tensor) -> float:
        """The coarsest rounding of what the tensor's memory was computed from."""
        memory = memory_of(tensor)
        return (
            self._reached[memory._cdata][1] if memory is not None and memory._cdata in self._reached else 0.0
        )

    def _reach(self, tensor: torch.Tensor, unit: float) -> None:
        memory = memory_of(tensor)
        if unit and memory is not None and self.of(tensor) < unit:
            self._reached[memory._cdata] = StorageWeakRef(memory), unit


def _rounds(func: Any, name: str, args: Any, unit: float) -> bool:
    """Whether what has the rounding ``unit`` was rounded to it here: computed, or cast from a finer type."""
    if name in COPIES:
        return any(0.0 < _rounding(t) < unit for t in args if isinstance(t, torch.Tensor))
    return name not in NEUTRAL


def written_by(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The arguments that an operation writes into; a batch norm in training its statistics, of which its
    schema says nothing."""
    if func._schema.name in BATCH_NORMS and args[5]:
        return tensors_in(args[3:5])
    if not func._schema.is_mutable:
        return []
    named = {a.name: a.alias_info for a in func._schema.arguments}
    given = (*zip(named, args, strict=False), *kwargs.items())
    return [
        t for name, value in given if (info := named.get(name)) and info.is_write for t in tensors_in(value)
    ]


def memory_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The piece of memory that a tensor lies in; ``None`` of a tensor that has no memory of one piece."""
    return tensor.untyped_storage() if tensor.layout is torch.strided else None


def tensors_in(values: Any) -> list[torch.Tensor]:
    """All tensors of a structure."""
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)]


def _rounding(values: Any) -> float:
    """One rounding of the first floating tensor among them; zero where there is none. Numbers that are bare
    exponents are judged as integers, and what is cast to them was rounded before."""
    floats = (t for t in tensors_in(values) if t.is_floating_point() and t.dtype is not EXPONENTS)
    return next((FINFO(t.dtype).eps / 2 for t in floats), 0.0)
