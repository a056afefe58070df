"""Running a program on tensors without data, whatever its forward calls.

Meta tensors have shapes and strides and no elements. Some calls need more than that: here each becomes a call
that needs shapes only, so that a forward shows in milliseconds whether sizes fit together.
"""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.overrides import TorchFunctionMode

from egg.core.errors import TaskError
from egg.core.policy import Precision
from egg.evaluator.task import chosen
from egg.evaluator.task.foreach import PREFIX, each_of_lists
from egg.evaluator.task.lines import limited_lines
from egg.evaluator.task.meta import META, Recurrence, on_meta
from egg.evaluator.task.program import Program
from egg.evaluator.task.shapes import quick_result
from egg.evaluator.tensors.forms import KnownForms

LONGEST_LITERAL = 256
"""Numbers of a ``torch.tensor([...])`` that are filled tensors one by one; more are one operator of ours."""

_TYPES = {
    "FloatTensor": torch.float32, "HalfTensor": torch.float16, "BFloat16Tensor": torch.bfloat16,
    "DoubleTensor": torch.float64, "LongTensor": torch.int64, "IntTensor": torch.int32,
    "ShortTensor": torch.int16, "CharTensor": torch.int8, "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}  # fmt: skip
_PLAIN = {torch.bool: torch.uint8}
"""How numbers are written down that are no numbers in Python."""


class Uncaptured(TaskError):
    """The program does something that a graph cannot say; the message tells what."""


def run_without_data(program: Program) -> None:
    """A forward that is not written down, to see whether it works; :class:`TaskError` where it does not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forward_without_data(program, on_meta(program), program.inputs(0, META, Precision.MATCH))


def calls_without_data(program: Program) -> list[str]:
    """What a forward calls, with the rank of every result; :class:`TaskError` where it does not work."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = program.inputs(0, META, Precision.MATCH)
        return forward_without_data(program, on_meta(program), inputs, recorded=True)[1]


def forward_without_data(
    program: Program, module: nn.Module, inputs: list[Any], *, recorded: bool = False
) -> tuple[Any, list[str]]:
    """What ``module`` returns for ``inputs``, and what it called where that is asked for."""
    calls: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with META, KnownForms(), WithoutData(calls if recorded else None, quick=True), limited_lines():
            return program.run(module, inputs), calls


class WithoutData(TorchFunctionMode):
    """Turns what meta tensors cannot do into what they can.

    A recurrent layer would be run step by step: it becomes one call of an operator of ours that knows only
    its shapes. Numbers in ``torch.tensor`` would be lost: they become filled tensors. And there is one
    device only.
    """

    def __init__(self, calls: list[str] | None = None, quick: bool = False) -> None:
        super().__init__()
        self._quick = quick
        """Whether forms of results will do, as their makers are not recorded."""
        self._calls = calls
        """What is called, in order, with the rank of each result, where it is asked for."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = self._answered(func, args, dict(kwargs or {}))
        if self._calls is not None and isinstance(result, torch.Tensor | list | tuple):
            rank = result.dim() if isinstance(result, torch.Tensor) else len(result)
            self._calls.append(f"{getattr(func, '__name__', '')} {rank}")
        return result

    def _answered(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if "device" in named:
            named["device"] = META
        name = getattr(func, "__name__", "")
        if (found := chosen.answered(func, name, args, named)) is not NotImplemented:
            return found
        if name in _MAKERS and (made := _made_of_numbers(name, args, named)) is not None:
            return made
        if name in ("cuda", "cpu") and isinstance(args[0], torch.Tensor):
            return args[0]
        if name == "to" and len(args) > 1 and isinstance(args[1], str | torch.device):
            args = (args[0], META, *args[2:])
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            args = tuple(_with_literals(part) if at == 1 else part for at, part in enumerate(args))
        if name == "type" and len(args) == 2 and (dtype := _named_type(args[1])) is not None:
            return args[0].to(dtype)
        if func in (torch.nn.functional.cross_entropy, torch.nn.functional.nll_loss):
            losses = _each_loss(func, args, named)
            if losses is not None:
                return losses
        if name.startswith(PREFIX) and (made := each_of_lists(name, args, named)) is not NotImplemented:
            return made
        layer = Recurrence.of(func, args)
        if layer is not None:
            return _whole(layer, args)
        if self._quick and (result := quick_result(func, args, named)) is not None:
            return result
        if name.startswith("conv_transpose"):
            _check_channels(*args[:2])
        return func(*args, **named)


def _with_literals(index: Any) -> Any:
    """An index with tensors in the place of lists of numbers, as in ``image[..., [2, 1, 0]]``: PyTorch would
    make them unseen, on another device."""
    parts = index if isinstance(index, tuple) else (index,)
    made = tuple(
        _literal(part, torch.int64)
        if isinstance(part, list) and part and all(type(number) is int for number in part)
        else part
        for part in parts
    )
    return made if isinstance(index, tuple) else made[0]


def _named_type(kind: object) -> torch.dtype | None:
    """The type of elements that ``x.type(y.type())`` asks for: a meta tensor's is ``torch.meta.FloatTensor``,
    which no tensor becomes by its name."""
    return _TYPES.get(kind.rsplit(".", 1)[-1]) if isinstance(kind, str) else None


def _check_channels(x: torch.Tensor, weight: torch.Tensor) -> None:
    """On the meta device a transposed convolution takes any number of channels."""
    if x.shape[1 - weight.dim()] != weight.shape[0]:
        raise RuntimeError(f"{x.shape[1 - weight.dim()]} channels for a weight of {weight.shape[0]}")


def _each_loss(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> torch.Tensor | None:
    """Losses that are not reduced, by their formula: PyTorch's tracer takes those for a single number.

    A target to be ignored is no valid place, so place 0 is read in its stead.
    """
    given = inspect.signature(func).bind(*args, **named)
    given.apply_defaults()
    bound = given.arguments
    x, target, weight = bound["input"], bound["target"], bound["weight"]
    whole = bound["reduction"] == "none" and bound["size_average"] is None and bound["reduce"] is None
    if not whole or target.is_floating_point() or bound.get("label_smoothing", 0.0):
        return None
    dim = 0 if x.dim() == 1 else 1
    logs = torch.log_softmax(x, dim) if func is torch.nn.functional.cross_entropy else x
    kept = target != bound["ignore_index"]
    place = torch.where(kept, target, 0)
    found = -logs.gather(dim, place.unsqueeze(dim)).squeeze(dim)
    found = found if weight is None else found * weight[place]
    return torch.where(kept, found, 0.0)


_MAKERS = frozenset(["tensor", "as_tensor", "asarray", "from_numpy", "new_tensor"])
"""Functions that make a tensor of numbers of Python's."""


def _made_of_numbers(name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> torch.Tensor | None:
    """What such a function returns; ``None`` where it is given a tensor. ``x.new_tensor`` has x's dtype."""
    dtype = named.get("dtype")
    if name == "new_tensor":
        dtype, args = dtype or args[0].dtype, args[1:]
    data = args[0] if args else named.get("data", named.get("obj"))
    return None if data is None or isinstance(data, torch.Tensor) else _literal(data, dtype)


def _literal(data: Any, dtype: torch.dtype | None) -> torch.Tensor:
    if isinstance(data, bool | int | float):
        return torch.full((), data, dtype=dtype)
    with disable_proxy_modes_tracing():
        sample = torch.tensor(data, dtype=dtype, device="cpu")
        numbers, nested = (
            sample.flatten().tolist(),
            sample.to(_PLAIN.get(sample.dtype, sample.dtype)).tolist(),
        )
    if len(set(numbers)) == 1:
        return torch.full(sample.shape, numbers[0], dtype=sample.dtype)
    if len(numbers) > LONGEST_LITERAL:
        if not all(map(math.isfinite, numbers)):
            raise Uncaptured(f"forward makes a tensor of {len(numbers)} numbers, not all of them finite")
        operator, _ = _literal_operator()
        return operator(torch.full((), 0.0), repr(nested), list(sample.shape), sample.dtype)
    return torch.stack([torch.full((), n, dtype=sample.dtype) for n in numbers]).reshape(sample.shape)


def _whole(layer: Recurrence, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    if isinstance(args[4], bool):
        raise Uncaptured("a recurrent layer over a packed sequence")
    _, _, _, bias, layers, dropout, training, bidirectional, batch_first = args
    if dropout and training and layers > 1:
        raise Uncaptured("a recurrent layer with dropout in training mode")
    operator, _ = _recurrent_operator()
    more = (bias, layers, bidirectional, batch_first)
    return tuple(operator(layer.name, layer.sequence, list(layer.states), list(layer.weights), *more))


@functools.cache
def _literal_operator() -> tuple[Any, torch.library.Library]:
    """``torch.tensor`` of many numbers, which are kept as text. The tracer sees calls with a tensor only."""
    kept = torch.library.Library("egg_capture", "FRAGMENT")
    kept.define("literal(Tensor any, str numbers, int[] shape, ScalarType dtype) -> Tensor")

    def empty(any: torch.Tensor, numbers: str, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=META)

    kept.impl("literal", empty, "Meta")
    return torch.ops.egg_capture.literal.default, kept


@functools.cache
def _recurrent_operator() -> tuple[Any, torch.library.Library]:
    """Registered when first needed; the library object keeps the registration alive."""
    kept = torch.library.Library("egg_capture", "FRAGMENT")
    kept.define(
        "recurrent(str cell, Tensor sequence, Tensor[] states, Tensor[] weights, bool bias, int layers, "
        "bool bidirectional, bool batch_first) -> Tensor[]"
    )

    def shapes(
        cell: str, sequence: torch.Tensor, states: list[torch.Tensor], weights: list[torch.Tensor],
        bias: bool, layers: int, bidirectional: bool, batch_first: bool,
    ) -> list[torch.Tensor]:  # fmt: skip
        width = (2 if bidirectional else 1) * states[0].shape[-1]
        made = sequence.new_empty((*sequence.shape[:-1], width))
        return [made, *(state.new_empty(state.shape) for state in states)]

    kept.impl("recurrent", shapes, "Meta")
    return torch.ops.egg_capture.recurrent.default, kept
