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

from egg.evaluator.offline.fakecuda import FakeContext, FakeStream, properties
from egg.evaluator.offline.target import GpuTarget
from egg.evaluator.tensors import hosts

CANDIDATE = "candidate"
_DEVICE = torch.Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_IS_CUDA = torch.Tensor.is_cuda.__get__  # pyright: ignore[reportAttributeAccessIssue]


_PARSED = torch._C._nn._parse_to  # pyright: ignore[reportAttributeAccessIssue]
_MOVES = {torch.Tensor.cuda: "cuda", torch.Tensor.cpu: "cpu"}


class ClaimCuda(TorchFunctionMode):
    """``x.is_cuda`` is true and ``x.device`` a GPU, for calls made by the candidate's own code.

    A device that is named to PyTorch (``device=x.device``) means here, in any code: it may be the answer
    that the candidate was given. What the candidate's own code makes without a device, or moves to the CPU,
    is on the host (:mod:`egg.evaluator.tensors.hosts`), and so is what is made of such tensors alone. Code of
    PyTorch, which sees the truth, makes tensors where its operands are.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        own = sys._getframe(1).f_globals.get("__name__") == CANDIDATE
        if own and func in (_IS_CUDA, _DEVICE, torch.Tensor.get_device):
            return _claimed(func, _on_host(args[0]))
        if func is _PARSED:  # of ``module.to(device)``, which moves its tensors one by one
            return func(*args, **kwargs)
        given = list(_tensors((args, kwargs)))
        named = _MOVES.get(func) or _named(func, args, kwargs)
        if named is None or (named == "cpu" and not own):
            host = all(map(_on_host, given)) if given else own
        else:
            host = named == "cpu"
        if func in _MOVES:
            result = args[0]
        else:
            result = func(*(_here(a) for a in args), **{name: _here(v) for name, v in kwargs.items()})
        if func in _MOVES or func is torch.Tensor.to:
            moved = _moved(result, args[0], host)
            if host and moved is not args[0] and (kwargs.get("non_blocking") or True in args[1:]):
                hosts.underway(moved)
            return moved
        for tensor in _tensors(result):
            if not any(tensor is other for other in given):
                (hosts.leave_on_host if host else hosts.take_from_host)(tensor)
        return result


def settle(module: nn.Module) -> None:
    """Of a module that was moved: its parameters are on the GPU, and what it merely holds is not.

    A parameter in a list is no parameter of the module's; neither is one that PyTorch's code made where this
    mode does not see it. What the constructor itself made on the GPU has been noted.
    """
    moved = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for part in module.modules():
        for name, held in vars(part).items():
            if name not in ("_parameters", "_buffers", "_modules"):
                for tensor in _tensors(held):
                    if id(tensor) not in moved and not hosts.on_device(tensor):
                        hosts.leave_on_host(tensor)
    for parameter in module.parameters():
        hosts.take_from_host(parameter)


def _on_host(tensor: torch.Tensor) -> bool:
    """A parameter is made on the CPU and moves with its module, which is noted."""
    return hosts.on_host(tensor) or (isinstance(tensor, nn.Parameter) and not hosts.on_device(tensor))


def _claimed(func: Any, host: bool) -> Any:
    if func == _IS_CUDA:
        return not host
    if func == _DEVICE:
        return torch.device("cpu") if host else torch.device("cuda", 0)
    return -1 if host else 0


def _moved(result: torch.Tensor, before: torch.Tensor, host: bool) -> torch.Tensor:
    """A copy where a GPU would make one: what has another name still lies where it lay."""
    if result is before and _on_host(before) == host:
        return result
    moved = result.clone() if result is before else result
    (hosts.leave_on_host if host else hosts.take_from_host)(moved)
    return moved


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)


def _named(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The kind of device that a call names, if it names one."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.device):
            return value.type
        if isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu"):
            return value.split(":")[0]
    if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], torch.Tensor):
        return "cpu" if _on_host(args[1]) else "cuda"
    return None


def _here(value: Any) -> Any:
    named = isinstance(value, torch.device) or (isinstance(value, str) and value.split(":")[0] == "cuda")
    return torch.device("cpu") if named and str(value).startswith("cuda") else value


class ArrivingStream(FakeStream):
    """Waiting for it completes copies that were under way."""

    def synchronize(self) -> None:
        hosts.arrive()


def answer_for(target: GpuTarget) -> None:
    """Answer device queries as a machine with ``target`` would, for the rest of this process's life."""

    def always(value: Any) -> Any:
        return lambda *_, **__: value

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
    }
    torch.cuda.synchronize = lambda *_: hosts.arrive()
    for name, value in answers.items():
        setattr(torch.cuda, name, always(value))
    torch.cuda.device = FakeContext  # pyright: ignore[reportAttributeAccessIssue]
