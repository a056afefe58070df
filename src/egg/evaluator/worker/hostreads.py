"""How many values of tensors the host's Python code got to see in a call.

A kernel file that reads its inputs into Python, computes there and has a kernel copy the result runs no
operator of PyTorch that computes. Values are counted in three places, and the largest count holds:

- the dispatcher (:class:`~egg.evaluator.operators.ops.Recorder`): a number that is read, by whatever
  function or argument, and elements that are copied from the device into the host's memory, whatever else
  lies there (an array, a bytearray). On a GPU nothing comes to the host without that;
- PyTorch's functions, which a mode sees, also where no operator is dispatched (a tensor of the host's);
- without a GPU, where a tensor of the device's can be read in place, the methods that do so. A mode is off
  inside PyTorch's own functions, and code of the candidate's may run there (``__index__`` of a size, a
  function that is an argument); the methods are not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from egg.evaluator.operators.ops import Recorder, kind_of
from egg.evaluator.static.likeness import alike
from egg.evaluator.tensors import hosts
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
IN_PLACE = ("tolist", "numpy", "__dlpack__", "apply_", "map_", "map2_")
"""Those of them that read memory of the host's without an operator."""
SHARING = ("asarray", "as_tensor", "from_numpy")
"""Functions of a file's whose result may lie in the memory of an object that is no tensor."""
SINGLE = frozenset(["item", "__float__", "__int__", "__bool__", "__index__", "__complex__", "is_nonzero"])


def recorded(recorder: Recorder, reads: HostReads, launches: Launches) -> Record:
    """What one call ran."""
    before, whole = (Spent(*astuple(spent)) for spent in recorder.work())
    return Record(
        ops=dict(recorder.compute),
        moves=dict(recorder.moves),
        copies=dict(recorder.copies),
        lossy=recorder.lossy,
        narrowed=dict(recorder.narrowed),
        overwritten=recorder.overwritten,
        reads=dict(reads.seen | reads.in_place | recorder.reads),
        launches=launches.counts(),
        before=before,
        work=whole,
        parts=dict(recorder.parts),
    )


ACTIVE: list[HostReads] = []
"""At work, innermost last."""


class HostReads(TorchFunctionMode):
    """Counts elements by kind, ``floats`` and ``others``, while active."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.in_place: Counter[str] = Counter()
        """By methods, whether a mode saw them or not."""

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
                self.seen[kind_of(tensor)] += tensor.numel() if name in WHOLE else 1
        return func(*args, **(kwargs or {}))


def watch_methods() -> None:
    """Count in the methods themselves, for the rest of this process's life: for a process without a GPU."""
    for name in IN_PLACE:
        setattr(torch.Tensor, name, _counted(getattr(torch.Tensor, name)))
    for name in SHARING:
        setattr(torch, name, _on_host(getattr(torch, name)))


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    def counted(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        for reads in ACTIVE[-1:] if not caller.startswith("egg.") else ():  # sketches are the judge's
            reads.in_place[kind_of(tensor)] += tensor.numel()
        return method(tensor, *args, **kwargs)

    return alike(counted, method)


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        data = next(iter((*args, *kwargs.values())))
        if not isinstance(data, torch.Tensor) and not hosts.known(result):
            hosts.leave_on_host(result)
        return result

    return alike(made, function)
