"""What ``egg.optimize`` returns: a verified kernel inside its domain, the original everywhere else.

It has the original's parameters, buffers and submodules themselves, not copies: the same ``state_dict``, the
same optimizer, and whatever is done to one is done to the other. Before every call it asks whether the
capture and the kernel are for this call (:meth:`_Dispatch.outside`); the first reason against it is counted,
and the original answers. A kernel that raises is put out of use for the rest of the process: the original
answers that call too, and the failure is kept.
"""

from __future__ import annotations

import copy
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

from egg.modules.arguments import Arguments
from egg.modules.arithmetic import is_coarser
from egg.modules.calling import Called, twins_of
from egg.modules.capture_types import TENSOR, Captured
from egg.modules.held import TENSORS, HeldKernel, OutsideDomain, runs_on
from egg.modules.outcome import Outcome
from egg.modules.saving import save
from egg.modules.state import Watch
from egg.modules.structure import same_leaf
from egg.modules.twin import Twin

GRADIENTS = "gradients are wanted"
MOST_SHAPES = 256


@dataclass(frozen=True)
class Stats:
    """How often the kernel answered, and how often the original, by reason."""

    kernel: int
    original: int
    reasons: Mapping[str, int]
    failure: str = ""
    """The kernel's exception, where one put it out of use."""

    def __str__(self) -> str:
        lines = [f"kernel {self.kernel}, original {self.original}"]
        lines += [f"  {count}: {reason}" for reason, count in self.reasons.items()]
        return "\n".join([*lines, *self.failure.splitlines()[-1:]])


class Optimized(Twin):
    """A drop-in for the module it was made from. See ``result`` and ``stats()``."""

    def __init__(
        self, original: nn.Module, captured: Captured, result: Outcome, *, use_unmeasured: bool = False
    ) -> None:
        super().__init__(original)
        self.__dict__["_dispatch"] = _Dispatch(original, captured, result, use_unmeasured)

    @property
    def captured(self) -> Captured:
        return self.__dict__["_dispatch"].captured

    @property
    def result(self) -> Outcome:
        """What the kernel is worth."""
        return self.__dict__["_dispatch"].result

    def stats(self) -> Stats:
        """Who answered the calls so far."""
        return self.__dict__["_dispatch"].stats()

    def save(self, folder: str | Path) -> Path:
        """Keep the kernel and what ties it to the module, for ``egg.load``; the weights are not in there."""
        return save(self.original, self.captured, self.result, Path(folder))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__["_dispatch"].call(args, kwargs)

    def __repr__(self) -> str:
        return f"Optimized({self.original!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Optimized:
        dispatch: _Dispatch = self.__dict__["_dispatch"]
        return _again(copy.deepcopy(self.original, memo), self.captured, self.result, dispatch.use_unmeasured)

    def __reduce__(self) -> tuple[Any, ...]:
        dispatch: _Dispatch = self.__dict__["_dispatch"]
        return _again, (self.original, self.captured, self.result, dispatch.use_unmeasured)


def _again(original: nn.Module, captured: Captured, result: Outcome, use_unmeasured: bool) -> Optimized:
    return Optimized(original, captured, result, use_unmeasured=use_unmeasured)


class _Dispatch:
    """Decides, call by call, who answers."""

    def __init__(
        self, original: nn.Module, captured: Captured, result: Outcome, use_unmeasured: bool
    ) -> None:
        self.original, self.captured, self.result = original, captured, result
        self.use_unmeasured = use_unmeasured
        self._failure = ""
        self._answered = 0
        self._reasons: Counter[str] = Counter()
        self._watch = Watch(original)
        self._arguments = Arguments(original, captured)
        self._several = sum(leaf is TENSOR for leaf in captured.fixed) > 1
        self._shapes: dict[tuple[torch.Size, ...], str] = {}
        self._never = _unusable(result, use_unmeasured)
        self._kernel = HeldKernel(result.source or "", captured, original) if not self._never else None

    def stats(self) -> Stats:
        reasons = dict(self._reasons.most_common())
        return Stats(self._answered, sum(reasons.values()), reasons, self._failure)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        reason, leaves = self._never, ()
        if not reason:
            reason, leaves = self.outside(args, kwargs)
        if not reason:
            try:
                found = self._run(leaves)
            except OutsideDomain as outside:
                reason = f"outside the kernel's domain: {outside}"
            except torch.OutOfMemoryError:
                if self.captured.written:  # perhaps by half
                    raise
                reason = "the kernel was out of memory"
            except Exception as error:  # kept, counted and shown; a program must not end for a kernel
                reason = self._put_out_of_use(error)
            else:
                self._answered += 1
                return found
        self._reasons[reason] += 1
        return self.original(*args, **kwargs)

    def outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Sequence[Any]]:
        """Why the kernel is not for this call, empty where it is; and the leaves of the arguments."""
        if reason := _surroundings(self.captured, self.result):
            return reason, ()
        if reason := self._watch.changed():
            return reason, ()
        leaves = self._arguments.leaves(args, kwargs)
        if leaves is None:
            return "the arguments have another structure", ()
        assert self._kernel is not None
        reason = self._outside_leaves(leaves) or self._kernel.changed()
        return reason or self._outside_tensors(leaves, self._kernel), leaves

    def _outside_leaves(self, leaves: Sequence[Any]) -> str:
        for place, (leaf, fixed) in enumerate(zip(leaves, self.captured.fixed, strict=True)):
            if fixed is TENSOR:
                if not isinstance(leaf, torch.Tensor):
                    return f"{self.captured.arguments.paths[place]} is no tensor"
            elif isinstance(leaf, torch.Tensor) or not same_leaf(leaf, fixed):
                return f"an argument is {_brief(leaf)}, not {_brief(fixed)}"
        if self._several and twins_of(leaves) != self.captured.twins:
            return "other arguments are one and the same tensor"
        return ""

    def _outside_tensors(self, leaves: Sequence[Any], kernel: HeldKernel) -> str:
        tensors = [leaves[place] for place in self.captured.given]
        for tensor in tensors:
            if type(tensor) not in TENSORS:
                return f"a tensor is a {type(tensor).__name__}"
        if torch.is_grad_enabled() and (any(t.requires_grad for t in tensors) or kernel.trains):
            return GRADIENTS
        devices = kernel.devices.union([tensor.device for tensor in tensors])
        if len(devices) > 1:
            return "the tensors are on several devices"
        if devices and (reason := self._outside_device(devices.pop())):
            return reason
        for tensor, dtype in zip(tensors, self.captured.dtypes, strict=True):
            if tensor.dtype != dtype:
                return f"an input is {tensor.dtype}, not {dtype}"
        shapes = tuple(tensor.shape for tensor in tensors)
        known = self._shapes.get(shapes)
        if known is None:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            known = self._shapes[shapes] = self.captured.sizes.outside(shapes)
        return known

    def _outside_device(self, device: torch.device) -> str:
        if not runs_on(device.type):
            return f"the tensors are on {device.type}"
        measured = self.result.measured
        if measured is None or self.use_unmeasured:
            return ""
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return "" if name == measured.gpu else f"it was measured on {measured.gpu}, and this is {name}"

    def _run(self, leaves: Sequence[Any]) -> Any:
        assert self._kernel is not None
        outputs = self._kernel.answer([leaves[place] for place in self.captured.given])
        found: list[Any] = []
        for result in self.captured.results:
            match result.kind:
                case "computed":
                    found.append(outputs[result.place])
                case "input":
                    found.append(leaves[result.place])
                case "held":
                    found.append(_fetched(self.original, result.path))
                case _:
                    found.append(result.value)
        return self.captured.returned.built(found)

    def _put_out_of_use(self, error: Exception) -> str:
        self._failure = "".join(traceback.format_exception(error))
        self._never = f"the kernel failed and is out of use: {type(error).__name__}: {_brief(str(error))}"
        self._kernel = None
        if self.captured.mutates:
            raise error
        return self._never


def _unusable(result: Outcome, use_unmeasured: bool) -> str:
    """Why a result's kernel is used for no call at all."""
    if not result.verified:
        return f"there is no verified kernel: {result.reason}"
    if use_unmeasured or result.faster:
        return ""
    if result.faster is None:
        return "the kernel's speed is not known: no GPU measured it"
    return f"the kernel is not faster than {result.opponent or 'the original'}"


def _surroundings(captured: Captured, result: Outcome) -> str:
    """Why no kernel may run where the program is now."""
    if result.evaluation is not None and is_coarser(result.evaluation.policy.precision):
        return "TF32 is switched off, and the kernel was judged with PyTorch's defaults"
    if torch.is_autocast_enabled(captured.device):
        return "autocast is enabled"
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return "the program is being traced"
    if torch._C._len_torch_dispatch_stack() or retrieve_all_functorch_interpreters():
        return "a mode or a transform of PyTorch is active"
    return ""


def _fetched(module: nn.Module, path: str) -> Any:
    where, _, name = path.rpartition(".")
    return getattr(module.get_submodule(where), name)


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:117]}..."


def as_module(module: Any) -> nn.Module:
    """What is optimized, as a module: a function becomes one."""
    return module if isinstance(module, nn.Module) else Called(module)
