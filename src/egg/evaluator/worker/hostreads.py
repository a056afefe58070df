"""How many values of tensors the host's Python code got to see in a call.

A kernel file that reads its inputs into Python, computes there and has a kernel copy the result runs no
operator of PyTorch that computes. Every way from a tensor to Python's numbers goes through PyTorch's
functions, which a mode sees, also where no operator is dispatched.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from egg.evaluator.operators.ops import Recorder
from egg.evaluator.transport.protocol import Record, Spent
from egg.evaluator.worker.launches import Launches

WHOLE = frozenset(
    [
        "tolist",
        "numpy",
        "__array__",
        "__repr__",
        "__format__",
        "__dlpack__",
        "__reduce_ex__",
        "apply_",
        "map_",
        "map2_",
    ]
)
SINGLE = frozenset(["item", "__float__", "__int__", "__bool__", "__index__", "__complex__", "is_nonzero"])


def recorded(recorder: Recorder, reads: HostReads, launches: Launches) -> Record:
    """What one call ran."""
    before, whole = (Spent(spent.products, spent.others, spent.moved) for spent in recorder.work())
    return Record(
        ops=dict(recorder.compute),
        moves=dict(recorder.moves),
        copies=dict(recorder.copies),
        reads=dict(reads.seen),
        launches=launches.counts(),
        before=before,
        work=whole,
    )


ACTIVE: list[TorchFunctionMode] = []
"""At work, innermost last."""


class HostReads(TorchFunctionMode):
    """Counts elements by kind, ``floats`` and ``others``, while active."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Any:
        ACTIVE.append(self)
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        ACTIVE.remove(self)
        return super().__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in WHOLE or name in SINGLE:
            tensor = args[0] if args else None
            if isinstance(tensor, torch.Tensor):
                kind = "floats" if tensor.is_floating_point() or tensor.is_complex() else "others"
                self.seen[kind] += tensor.numel() if name in WHOLE else 1
        return func(*args, **(kwargs or {}))
