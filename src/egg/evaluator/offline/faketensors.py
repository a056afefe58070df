"""Tensors of any size that take no memory and claim to live on ``cuda:0``.

They are ordinary fake tensors *on the CPU* (a build of PyTorch without CUDA cannot hold
fake CUDA tensors: many of its operators ask for a device guard that is not linked in). A
function mode stands in front and keeps up appearances: it answers what a candidate asks
about the device, turns requests for CUDA into requests for the CPU, and hands out virtual
addresses, whose alignment is what Triton specialises on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from egg.evaluator.offline.fakedriver import DEVICE, Recorder

_ALIGNMENT = 512
"""Of PyTorch's caching allocator on CUDA."""
_FIRST_ADDRESS = 0x7F00_0000_0000

_ALLOCATIONS = frozenset(
    f"aten.{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
_QUESTIONS = frozenset(
    f"aten.{name}" for name in ("is_same_size", "_local_scalar_dense", "is_pinned", "lift_fresh")
)


class AddressSpace:
    """Gives every storage its own virtual range, aligned as PyTorch's allocator aligns."""

    def __init__(self) -> None:
        self._next = _FIRST_ADDRESS
        self._bases: dict[int, tuple[int, Any]] = {}

    def address(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        known = self._bases.get(storage._cdata)
        if known is None:
            # The storage is held, so that its identity is not given to another one.
            known = self._bases[storage._cdata] = (self._next, storage)
            self._next += -(-max(storage.nbytes(), 1) // _ALIGNMENT) * _ALIGNMENT
        return known[0] + int(tensor.storage_offset()) * tensor.element_size()


class Inside:
    """Whether PyTorch's own code is running: it gets the true device, the candidate does not."""

    def __init__(self) -> None:
        self.depth = 0

    @contextmanager
    def torch(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def device_property(self) -> property:
        """For ``FakeTensor.device``, which is plain Python and so passes by every mode."""
        truth: Any = FakeTensor.device.fget

        def device(tensor: FakeTensor) -> torch.device:
            return truth(tensor) if self.depth else torch.device("cuda", DEVICE)

        return property(device)


class PretendCuda(TorchFunctionMode):
    """Every tensor says it is on ``cuda:0``; every request for CUDA is served by the CPU's fake tensors."""

    def __init__(self, inside: Inside) -> None:
        super().__init__()
        self._inside = inside
        self._addresses = AddressSpace()
        self._answers: dict[Any, Callable[..., Any]] = {
            torch.Tensor.data_ptr: self._addresses.address,
            torch.Tensor.device.__get__: lambda tensor: torch.device("cuda", DEVICE),  # pyright: ignore
            torch.Tensor.is_cuda.__get__: lambda tensor: True,  # pyright: ignore
            torch.Tensor.is_cpu.__get__: lambda tensor: False,  # pyright: ignore
            torch.Tensor.get_device: lambda tensor: DEVICE,
            torch.Tensor.cuda: lambda tensor, *_, **__: tensor,
            torch.Tensor.cpu: lambda tensor, *_, **__: tensor.clone(),
            torch.Tensor.pin_memory: lambda tensor, *_, **__: tensor,
            torch.Tensor.is_pinned: lambda tensor, *_, **__: False,
            torch.Tensor.record_stream: lambda tensor, *_: None,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        answer = self._answers.get(func)
        if answer is not None:
            return answer(*args, **kwargs)
        kwargs = {k: _on_cpu(v) if k == "device" else v for k, v in kwargs.items() if k != "pin_memory"}
        if func is torch.Tensor.to:
            args = (args[0], *(_on_cpu(a) if not isinstance(a, bool) else a for a in args[1:]))
        else:
            args = tuple(_on_cpu(a) if isinstance(a, torch.device) else a for a in args)
        with self._inside.torch():
            return func(*args, **kwargs)


def _on_cpu(device: Any) -> Any:
    """The CPU in place of a CUDA device however it is named (object, string, index); else as it was."""
    if isinstance(device, torch.device):
        return torch.device("cpu") if device.type == "cuda" else device
    if isinstance(device, str):
        return "cpu" if device.startswith("cuda") else device
    return "cpu" if isinstance(device, int) else device


class CountOutsideOps(TorchDispatchMode):
    """Counts the aten operators that do work outside Triton kernels.

    Views and questions about metadata move nothing, and an allocation writes nothing:
    they are left out. Filling (``zeros``, ``fill_``) and copying are work and stay in. The
    names are those the CPU dispatches to: where a layer has its own operator per device
    (recurrent layers, attention), that one is seen.
    """

    def __init__(self, recorder: Recorder, inside: Inside) -> None:
        super().__init__()
        self._recorder, self._inside = recorder, inside

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func.overloadpacket)
        if not (_is_view(func) or name in _ALLOCATIONS or name in _QUESTIONS or name.startswith("prim.")):
            self._recorder.trace.ops[name] += 1
        with self._inside.torch():
            if name == "aten._local_scalar_dense":
                return self._scalar(func, args[0])
            result = func(*args, **(kwargs or {}))
        self._note_storage(func, name, args, kwargs or {}, result)
        return result

    def _scalar(self, func: Any, tensor: torch.Tensor) -> Any:
        """A tensor's one value; where it has none, the next of those that were given as answers."""
        answers = self._recorder.answers
        if answers is None or not isinstance(tensor, FakeTensor) or tensor.constant is not None:
            value = func(tensor)
        else:
            value = next(answers, 1)
            kind = float if tensor.is_floating_point() else bool if tensor.dtype is torch.bool else int
            value = kind(value.real if isinstance(value, complex) else value)
        self._recorder.scalars.append(value)
        return value

    def _note_storage(self, func: Any, name: str, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """What was allocated stays raw until an operator writes to it; kernels are looked at elsewhere."""
        raw = self._recorder.raw
        if name in _ALLOCATIONS and isinstance(result, torch.Tensor):
            storage = result.untyped_storage()
            raw[storage._cdata] = storage
            return
        written = [
            given
            for given, argument in zip(args, func._schema.arguments, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        written += [kwargs[t.name] for t in func._schema.arguments if t.name in kwargs and t.is_out]
        for tensor in written:
            if isinstance(tensor, torch.Tensor) and name != "aten.resize_":
                raw.pop(tensor.untyped_storage()._cdata, None)


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def move_parameters(module: nn.Module, fn: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
    """``nn.Module._apply`` for fake parameters: PyTorch's own swaps tensors, which fake ones refuse."""
    if recurse:
        for child in module.children():
            child._apply(fn)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            moved = fn(parameter)
            if moved is not parameter:
                module._parameters[name] = nn.Parameter(moved.detach(), parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = fn(buffer)
    return module


def describe(value: Any) -> Any:
    """Shape and dtype of every leaf of ``value``, in JSON's types."""
    if isinstance(value, torch.Tensor):
        return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, Mapping):
        return {str(k): describe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [describe(v) for v in value]
    return value if isinstance(value, int | float | str | None) else repr(value)
