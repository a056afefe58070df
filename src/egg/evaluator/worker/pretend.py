"""A worker without a GPU, as a candidate's host code sees it: as if the target were there.

Candidates ask at import time how many multiprocessors there are, assert that their inputs
are on the GPU, and allocate on ``"cuda"``; a kernel that does so is no worse for it. Queries
get the target's numbers, and inside the candidate's own code tensors claim to be where they
would be. Everybody else sees the truth.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from egg.evaluator.offline.fakecuda import FakeStream
from egg.evaluator.offline.properties import properties
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.restrict.names import CANDIDATE_FILE
from egg.evaluator.static.likeness import answering
from egg.evaluator.tensors import hosts
from egg.evaluator.worker.held import parts_of, state_of

_DEVICE = torch.Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_IS_CUDA = torch.Tensor.is_cuda.__get__  # pyright: ignore[reportAttributeAccessIssue]


_PARSED = torch._C._nn._parse_to  # pyright: ignore[reportAttributeAccessIssue]
_IS_CPU = torch.Tensor.is_cpu.__get__  # pyright: ignore[reportAttributeAccessIssue]
_MOVES = {torch.Tensor.cuda: "cuda", torch.Tensor.cpu: "cpu"}
_READS = (torch.Tensor.item, torch.Tensor.tolist)
"""By which the host waits for the device."""
_BOTH = """
    to copy_ _foreach_copy_ __get__ __set__ __getitem__ __setitem__ index_put index_put_ type_as expand_as
    view_as reshape_as resize_as_ is_same_size result_type can_cast broadcast_tensors set_ is_set_to
    _has_compatible_shallow_copy_type pack_padded_sequence _pack_padded_sequence tensor_split ctc_loss
"""
APART = frozenset(_BOTH.split())
"""Functions that take tensors of both devices: they copy, index, or look at a form."""


class ClaimCuda(TorchFunctionMode):
    """``x.is_cuda`` is true and ``x.device`` a GPU, for calls made by the candidate's own code.

    A device that is named to PyTorch (``device=x.device``) means here, in any code: it may be the answer
    that the candidate was given. What is made without a device, by any code, or moved to the CPU by the
    candidate's own is on the host (:mod:`egg.evaluator.tensors.hosts`), and so is what is made of such
    tensors alone. Code of PyTorch sees the truth: where it names the CPU it may have asked an operand.

    Operands on both devices raise as they would there, and so does a second GPU.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        names = sys._getframe(1).f_globals
        caller = str(names.get("__name__", ""))
        own = str(names.get("__file__", "")).endswith(CANDIDATE_FILE)
        if own and func in (_IS_CUDA, _IS_CPU, _DEVICE, torch.Tensor.get_device):
            return _claimed(func, hosts.on_host(args[0]))
        if func is _PARSED:  # of ``module.to(device)``, which moves its tensors one by one
            return func(*args, **kwargs)
        given = list(_tensors((args, kwargs)))
        named = _named(func, args, kwargs) or _MOVES.get(func)
        if named is None:
            host = all(map(hosts.on_host, given))
        elif named == "cpu" and not own:
            host = bool(given) and all(map(hosts.on_host, given))
        else:
            host = named == "cpu"
        _require_one_device(func, given, caller)
        if func in _READS and not hosts.on_host(args[0]):
            hosts.arrive()
        if func in _MOVES:
            result = args[0]
        else:
            result = func(*map(_here, args), **{name: _here(v, name) for name, v in kwargs.items()})
        late = bool(kwargs.get("non_blocking")) or any(value is True for value in args[1:])
        if func in _MOVES or func is torch.Tensor.to:
            moved = _moved(result, args[0], host)
            if host and moved is not args[0]:
                hosts.underway(moved) if late else hosts.arrive()
            return moved
        if func is torch.Tensor.copy_ and hosts.on_host(args[0]) and not all(map(hosts.on_host, given)):
            hosts.underway(args[0]) if late else hosts.arrive()
        for tensor in _tensors(result):
            if not hosts.known(tensor):
                (hosts.leave_on_host if host else hosts.take_from_host)(tensor)
        return result


def settle(module: nn.Module) -> None:
    """Of a module that was moved: its parameters are on the GPU, and what it merely holds is not.

    What was made where this mode does not see it (``torch.from_numpy``) is on the host, like a module in a
    list, which is no part of this one.
    """
    for tensor in state_of(module, persistent=False).values():
        hosts.take_from_host(tensor)
    for _, part in parts_of(module):
        for name, held in vars(part).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                for tensor in _tensors(held):
                    if not hosts.known(tensor):
                        hosts.leave_on_host(tensor)


def _require_one_device(func: Any, given: list[torch.Tensor], caller: str) -> None:
    """A lone number of the host's goes with any tensor; the judge's own code compares what it likes."""
    if len(given) < 2 or caller.startswith("egg."):
        return
    lie = [hosts.on_host(tensor) for tensor in given]
    name = getattr(func, "__name__", "").split(".")[0]
    if name in APART and not (name == "__getitem__" and lie[0]):
        return
    if not all(lie) and any(host and tensor.dim() for host, tensor in zip(lie, given, strict=True)):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu "
            f"(in {getattr(func, '__name__', func)}): make a tensor with device=x.device, or register it as "
            "a buffer"
        )


def _claimed(func: Any, host: bool) -> Any:
    if func in (_IS_CUDA, _IS_CPU):
        return host == (func == _IS_CPU)
    if func == _DEVICE:
        return torch.device("cpu") if host else torch.device("cuda", 0)
    return -1 if host else 0


def _moved(result: torch.Tensor, before: torch.Tensor, host: bool) -> torch.Tensor:
    """A copy where a GPU would make one: what has another name still lies where it lay."""
    if result is before and hosts.on_host(before) == host:
        return result
    if host and not hosts.on_host(before):
        moved = torch.empty_like(result)
        hosts.leave_on_host(moved)
        return moved.copy_(result)  # an operator from the device to the host, as the recorder would see there
    moved = result.clone() if result is before else result
    (hosts.leave_on_host if host else hosts.take_from_host)(moved)
    return moved


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """By the built-in classes' own methods: those of a class that derives from one are the file's."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list):
        for item in list.__iter__(value):
            yield from _tensors(item)
    elif isinstance(value, tuple):
        for item in tuple.__iter__(value):
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in dict.values(value):
            yield from _tensors(item)
    elif isinstance(value, nn.Module):
        yield from (*value.parameters(), *value.buffers())


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The kind of device that a call names, if it names one; there is one GPU."""
    numbered = kwargs.get("device", args[1] if func is torch.Tensor.cuda and len(args) > 1 else None)
    if isinstance(numbered, int):
        return _of_one(torch.device("cuda", numbered))
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.device):
            return _of_one(value)
        if isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu"):
            return _of_one(torch.device(value))
    if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], torch.Tensor):
        return "cpu" if hosts.on_host(args[1]) else "cuda"
    return None


def _of_one(device: torch.device) -> str:
    if device.type == "cuda" and device.index:
        raise RuntimeError(
            f"CUDA error: invalid device ordinal: {device}; the inputs are on cuda:0, and a machine may have "
            "no other: use x.device"
        )
    return device.type


def _here(value: Any, name: str = "") -> Any:
    named = isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] == "cuda")
    numbered = name == "device" and isinstance(value, int)
    return torch.device("cpu") if numbered or (named and str(value).startswith("cuda")) else value


class ArrivingStream(FakeStream):
    """Waiting for it completes copies that were under way."""

    def synchronize(self) -> None:
        hosts.arrive()


def answer_for(target: GpuTarget) -> None:
    """Answer device queries as a machine with ``target`` would, for the rest of this process's life.

    ``torch.cuda.device`` stays PyTorch's: what it calls does nothing.
    """
    answers = {
        "is_available": True,
        "device_count": random.choice((1, 2, 4, 8)),
        "current_device": 0,
        "get_device_name": target.card,
        "get_device_capability": target.capability,
        "get_device_properties": properties(target),
        "current_stream": ArrivingStream(),
        "default_stream": ArrivingStream(),
        "is_current_stream_capturing": True,  # so a file that replays a recording makes its launches
        "empty_cache": None,
        "set_device": None,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
    }
    torch.cuda.synchronize = answering(torch.cuda.synchronize, hosts.arrive)
    for name, value in answers.items():
        setattr(torch.cuda, name, answering(getattr(torch.cuda, name), lambda value=value: value))
