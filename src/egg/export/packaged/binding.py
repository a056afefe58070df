"""Calls a module's forward as a function of its tensors: from an operator to ``nn.Module`` classes.

An operator has no state: it is given every input, parameter and buffer as an argument. Here a module is built
once for the constructor's arguments and the signature of its state, is lent the tensors of a call, and gives
them back. So the guards of a kernel file, which check weights when a signature is new, see each new one.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from triton import knobs

Outputs = Tensor | tuple[Tensor, ...]


class KeptByWeight(dict):
    """What a kernel file computes from a weight, kept as long as that weight is alive.

    The keys hold the weight itself, which would keep it alive for ever: its identity stands for it, and the
    entry goes when the weight does.
    """

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        plain = _plain(key)
        super().__setitem__(plain, value)
        for part in key:
            if isinstance(part, Tensor):
                weakref.finalize(part, self.pop, plain, None)

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(_plain(key), default)


def _plain(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(id(part) if isinstance(part, Tensor) else part for part in key)


class Bound:
    """The classes of a kernel file and of the program that it replaces, as functions of tensors."""

    def __init__(self, kernel: Callable[..., nn.Module], reference: Callable[..., nn.Module]) -> None:
        self._kernel = kernel
        self._reference = reference
        self._kept = threading.local()

    def run(
        self, built: Mapping[str, Any], state: Mapping[str, Tensor], inputs: Sequence[Any], training: bool
    ) -> Outputs:
        """The kernels' answer, contiguous; :class:`ValueError` for a call outside their domain.

        Triton has no CPU backend: tensors on the CPU get the program itself, unless Triton interprets.
        """
        tensors = [*state.values(), *_tensors(inputs)]
        here = all(tensor.device.type == "cpu" for tensor in tensors)
        maker = self._reference if here and not knobs.runtime.interpret else self._kernel
        module = self._module(maker, built, state, training)
        with torch.no_grad(), lent(module, state):
            return _settled(module(*inputs), tensors)

    def shapes(
        self, built: Mapping[str, Any], state: Mapping[str, Tensor], inputs: Sequence[Any], training: bool
    ) -> Outputs:
        """Empty tensors like the program's outputs, for tensors without data."""
        module = self._program(built, training, _tensors([*inputs, *state.values()]))
        with torch.no_grad(), lent(module, state):
            results = module(*inputs)
        if isinstance(results, Tensor):
            return results.new_empty(results.shape)
        return tuple(result.new_empty(result.shape) for result in results)

    def gradients(
        self,
        built: Mapping[str, Any],
        state: Mapping[str, Tensor],
        inputs: Sequence[Any],
        training: bool,
        given: Sequence[Tensor | None],
    ) -> tuple[list[Tensor | None], dict[str, Tensor | None]]:
        """Of the inputs and of the state, by the program itself: the kernels compute forward only."""
        with torch.enable_grad():
            owned = {name: _leaf(tensor) for name, tensor in state.items()}
            handed = [_leaf(value) if isinstance(value, Tensor) else value for value in inputs]
            module = self._program(built, training, _tensors([*inputs, *state.values()]))
            with lent(module, owned):
                results = module(*handed)
            results = (results,) if isinstance(results, Tensor) else tuple(results)
            wanted = [t for t in [*handed, *owned.values()] if isinstance(t, Tensor) and t.requires_grad]
            pairs = [(r, g) for r, g in zip(results, given, strict=True) if g is not None and r.requires_grad]
            found: Sequence[Tensor | None] = ()
            if pairs and wanted:
                roots, heads = zip(*pairs, strict=True)
                found = torch.autograd.grad(roots, wanted, heads, allow_unused=True)
        by_tensor = {id(tensor): gradient for tensor, gradient in zip(wanted, found, strict=False)}
        return [by_tensor.get(id(value)) for value in handed], {
            name: by_tensor.get(id(tensor)) for name, tensor in owned.items()
        }

    def _program(self, built: Mapping[str, Any], training: bool, tensors: Sequence[Tensor]) -> nn.Module:
        """The original program. For tensors of a compiler it is built anew, in the mode that made them: what
        is made there must not outlive the mode."""
        if all(type(tensor) in (Tensor, nn.Parameter) for tensor in tensors):
            return self._module(self._reference, built, {}, training)
        with torch.no_grad(), torch.device(tensors[0].device):
            return self._reference(**built).train(training)

    def _module(
        self,
        maker: Callable[..., nn.Module],
        built: Mapping[str, Any],
        state: Mapping[str, Tensor],
        training: bool,
    ) -> nn.Module:
        """One per thread, constructor arguments, mode and signature of the state; it holds no tensors."""
        if not hasattr(self._kept, "modules"):
            self._kept.modules = {}
        signature = tuple((t.shape, t.dtype, t.device, t.stride()) for t in state.values())
        key = maker, repr(built), training, signature
        module = self._kept.modules.get(key)
        if module is None:
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                module = maker(**built).train(training)
            for part in module.modules():
                for held in _tables(part):
                    for name, tensor in held.items():
                        held[name] = None if tensor is None else tensor.to("meta")
            if hasattr(module, "packed_weights"):
                module.__dict__["packed_weights"] = KeptByWeight()
            self._kept.modules[key] = module
        return module


@contextmanager
def lent(module: nn.Module, state: Mapping[str, Tensor]) -> Iterator[None]:
    """The module with ``state`` for its parameters and buffers; what it rebinds is written into ``state``."""
    places = {}
    for name, tensor in state.items():
        owner, _, leaf = name.rpartition(".")
        part = module.get_submodule(owner)
        held = next(table for table in _tables(part) if leaf in table)
        places[name] = held, leaf, held[leaf]
        held[leaf] = tensor
    try:
        yield
        for name, (held, leaf, _) in places.items():
            now = held[leaf]
            if now is not state[name]:
                state[name].copy_(now)
    finally:
        for held, leaf, before in places.values():
            held[leaf] = before


def built_with(
    model: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """The constructor's arguments by name, with defaults."""
    bound = inspect.signature(model).bind(*arguments, **options)
    bound.apply_defaults()
    return dict(bound.arguments)


def check_fixed(built: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Raise where an argument of the constructor that the operator does not take has another value."""
    for name, value in fixed.items():
        if built[name] != value:
            raise ValueError(f"{name} is {built[name]!r}, and this operator was exported for {value!r}")


def _settled(results: Any, given: Sequence[Tensor]) -> Outputs:
    """Contiguous, and never a view of what was given: an operator must not return its arguments."""
    taken = {tensor.untyped_storage().data_ptr() for tensor in given}

    def own(result: Tensor) -> Tensor:
        result = result.contiguous()
        return result.clone() if result.untyped_storage().data_ptr() in taken else result

    return own(results) if isinstance(results, Tensor) else tuple(own(result) for result in results)


def _tables(part: nn.Module) -> tuple[Any, Any]:
    return part._parameters, part._buffers


def _tensors(inputs: Sequence[Any]) -> list[Tensor]:
    flat = (value if isinstance(value, list | tuple) else (value,) for value in inputs)
    return [part for value in flat for part in value if isinstance(part, Tensor)]


def _leaf(tensor: Tensor) -> Tensor:
    owned = tensor.detach()
    return owned.requires_grad_() if owned.is_floating_point() else owned
